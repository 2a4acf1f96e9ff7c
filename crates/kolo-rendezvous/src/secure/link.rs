//! A connection of the store: plain on loopback, sealed where there is a token.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::access::Access;
use super::handshake::{self, Purpose};
use super::record::{PREFIX, ROOM, Session};
use super::refusal::CallError;
use crate::liveness::lock;

/// How long a handshake may take, on both sides.
pub const HASTE: Duration = Duration::from_secs(5);

/// A stream whose every byte must come before a moment: whoever sends one byte now and then is cut off as well.
pub(super) struct Hurried<'a> {
    pub(super) stream: &'a TcpStream,
    pub(super) until: Instant,
}

impl Hurried<'_> {
    fn rest(&self) -> io::Result<Option<Duration>> {
        let rest = self.until.saturating_duration_since(Instant::now());
        if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(rest)) }
    }
}

impl Read for Hurried<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.rest()?)?;
        (&mut &*self.stream).read(into)
    }
}

impl Write for Hurried<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.rest()?)?;
        (&mut &*self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Says who we are on a new connection, before `until`.
pub fn introduce(
    stream: &TcpStream,
    access: &Access,
    purpose: Purpose,
    identity: &[u8],
    until: Instant,
) -> Result<Option<Session>, CallError> {
    let mut hurried = Hurried { stream, until: until.min(Instant::now() + HASTE) };
    let session = handshake::call(&mut hurried, access, purpose, identity)?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(session)
}

/// A connection of the store. One clone may read while others write.
pub struct Link {
    stream: TcpStream,
    keys: Option<Arc<Keys>>,
    /// What was opened and not read yet.
    opened: Vec<u8>,
    read: usize,
}

struct Keys {
    session: Mutex<Session>,
    /// Records must leave in the order in which they were sealed.
    speaking: Mutex<()>,
}

impl Link {
    pub fn new(stream: TcpStream, session: Option<Session>) -> Link {
        let keys = session.map(|session| Keys { session: Mutex::new(session), speaking: Mutex::new(()) });
        Link { stream, keys: keys.map(Arc::new), opened: Vec::new(), read: 0 }
    }

    /// The same connection, to write to.
    pub fn mouth(&self) -> io::Result<Link> {
        let stream = self.stream.try_clone()?;
        Ok(Link { stream, keys: self.keys.clone(), opened: Vec::new(), read: 0 })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Ends every read and write after so long; more than zero.
    pub fn hurry(&self, silence: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(silence))?;
        self.stream.set_write_timeout(Some(silence))
    }

    pub fn shutdown(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Both)
    }
}

impl Read for Link {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(keys) = &self.keys else { return self.stream.read(into) };
        while self.read == self.opened.len() {
            let mut len = [0; PREFIX];
            match self.stream.read(&mut len[..1])? {
                0 => return Ok(0),
                _ => self.stream.read_exact(&mut len[1..])?,
            }
            let mut record = vec![0; usize::from(u16::from_le_bytes(len))];
            self.stream.read_exact(&mut record)?;
            self.opened.resize(record.len(), 0);
            self.read = 0;
            let opened = lock(&keys.session).open(&record, &mut self.opened);
            self.opened.truncate(*opened.as_ref().unwrap_or(&0));
            opened?;
        }
        let count = into.len().min(self.opened.len() - self.read);
        into[..count].copy_from_slice(&self.opened[self.read..][..count]);
        self.read += count;
        Ok(count)
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(keys) = &self.keys else { return self.stream.write(bytes) };
        let count = bytes.len().min(ROOM);
        let mut frame = Vec::new();
        let _speaking = lock(&keys.speaking);
        lock(&keys.session).seal(&bytes[..count], &mut frame)?;
        self.stream.write_all(&frame)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
