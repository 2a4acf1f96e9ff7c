//! Connections: the connecting side of the handshake, and the store's streams, encrypted with a token.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::access::Access;
use super::error::HandshakeError;
use super::handshake::{self, Protocol};
use super::keepalive;
use super::record::{MAX_PLAINTEXT, PREFIX, Session};

/// Time limit of a handshake, on both sides.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// A stream with a deadline for all bytes, so that a peer that sends one byte now and then is cut off, too.
pub(super) struct DeadlineStream<'a> {
    pub(super) stream: &'a TcpStream,
    pub(super) until: Instant,
}

impl DeadlineStream<'_> {
    fn rest(&self) -> io::Result<Option<Duration>> {
        let rest = self.until.saturating_duration_since(Instant::now());
        if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(rest)) }
    }
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.rest()?)?;
        (&mut &*self.stream).read(into)
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.rest()?)?;
        (&mut &*self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs the connecting side of the handshake on a new connection, before `until` and within 5 s. `identity`
/// is sent to the listener, at most 240 bytes. Returns the session for all further bytes, if the connection
/// stays encrypted.
///
/// # Errors
///
/// The listener rejected this side or does not belong to this job, or the connection broke.
pub fn connect(
    stream: &TcpStream,
    access: &Access,
    protocol: Protocol,
    identity: &[u8],
    until: Instant,
) -> Result<Option<Session>, HandshakeError> {
    let mut limited = DeadlineStream { stream, until: until.min(Instant::now() + HANDSHAKE_TIMEOUT) };
    let session = handshake::initiate(&mut limited, access, protocol, identity)?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(session)
}

/// A connection of the store, or of messages. One copy may read while others write.
pub struct SecureStream {
    stream: TcpStream,
    keys: Option<Arc<Keys>>,
    /// Decrypted bytes, of which the first `read` have been read.
    decrypted: Vec<u8>,
    read: usize,
}

kolo_schedule::opaque_debug!(SecureStream { stream });

struct Keys {
    session: Mutex<Session>,
    /// Held while a record is sealed and sent, so that records leave in the order of their sealing.
    sending: Mutex<()>,
}

impl SecureStream {
    /// Creates the stream of a connection from the session of its handshake. The stream breaks soon after
    /// the other host has vanished.
    pub fn new(stream: TcpStream, session: Option<Session>) -> SecureStream {
        keepalive::enable(&stream);
        let keys = session.map(|session| Keys { session: Mutex::new(session), sending: Mutex::new(()) });
        SecureStream { stream, keys: keys.map(Arc::new), decrypted: Vec::new(), read: 0 }
    }

    /// Returns a second handle of the connection for writing.
    ///
    /// # Errors
    ///
    /// This process has too many open files.
    pub fn write_half(&self) -> io::Result<SecureStream> {
        let stream = self.stream.try_clone()?;
        Ok(SecureStream { stream, keys: self.keys.clone(), decrypted: Vec::new(), read: 0 })
    }

    /// Returns the address of this end.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Limits every read and write to `timeout`, which is more than zero; `None` removes the limit.
    ///
    /// # Errors
    ///
    /// The time is zero, or the connection broke.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(timeout)?;
        self.stream.set_write_timeout(timeout)
    }

    /// Closes the connection for all copies.
    ///
    /// # Errors
    ///
    /// The connection is closed already.
    pub fn shutdown(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Both)
    }
}

impl Read for SecureStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(keys) = &self.keys else { return self.stream.read(into) };
        while self.read == self.decrypted.len() {
            let mut len = [0; PREFIX];
            match self.stream.read(&mut len[..1])? {
                0 => return Ok(0),
                _ => self.stream.read_exact(&mut len[1..])?,
            }
            let mut record = vec![0; usize::from(u16::from_le_bytes(len))];
            self.stream.read_exact(&mut record)?;
            self.decrypted.resize(record.len(), 0);
            self.read = 0;
            let opened = keys.session.lock().open(&record, &mut self.decrypted);
            self.decrypted.truncate(*opened.as_ref().unwrap_or(&0));
            opened?;
        }
        let count = into.len().min(self.decrypted.len() - self.read);
        into[..count].copy_from_slice(&self.decrypted[self.read..][..count]);
        self.read += count;
        Ok(count)
    }
}

impl Write for SecureStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(keys) = &self.keys else { return self.stream.write(bytes) };
        let count = bytes.len().min(MAX_PLAINTEXT);
        let mut frame = Vec::new();
        let _sending = keys.sending.lock();
        keys.session.lock().seal(&bytes[..count], &mut frame)?;
        self.stream.write_all(&frame)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
