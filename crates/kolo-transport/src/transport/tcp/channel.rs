//! A connection for data between two ranks: plain, or sealed if `KOLO_ENCRYPT=1`.
//!
//! A channel reads and writes like a nonblocking `TcpStream`, with one more rule: after a write that
//! would block, the next one must begin with the same bytes, because they are already sealed.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use kolo_rendezvous::secure::Session;
use kolo_rendezvous::secure::{MAX_FRAME, MAX_PLAINTEXT, PREFIX};

/// A connection between two ranks, plain or sealed.
pub(crate) enum Channel {
    Plain(TcpStream),
    Sealed(Box<Sealed>),
}

/// A stream and the records that are in flight on it. Takes 0.4 MB for each peer.
pub(crate) struct Sealed<S = TcpStream> {
    stream: S,
    session: Session,
    /// The outgoing record, the number of its bytes that are written, and the number of plain bytes in it.
    outgoing: Vec<u8>,
    left: usize,
    stands_for: usize,
    /// The joined pieces of a vectored write.
    gathered: Vec<u8>,
    /// Bytes from the peer; `incoming[taken..filled]` is not decrypted yet.
    incoming: Vec<u8>,
    taken: usize,
    filled: usize,
    /// Decrypted bytes; `opened[read..]` is not read yet.
    opened: Vec<u8>,
    read: usize,
}

impl Channel {
    pub(crate) fn new(stream: TcpStream, session: Option<Session>) -> Channel {
        let Some(session) = session else { return Channel::Plain(stream) };
        Channel::Sealed(Box::new(Sealed::new(stream, session)))
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        match self {
            Channel::Plain(stream) => stream,
            Channel::Sealed(sealed) => &sealed.stream,
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream().as_fd()
    }
}

impl Read for Channel {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Channel::Plain(stream) => stream.read(into),
            Channel::Sealed(sealed) => sealed.read(into),
        }
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Channel::Plain(stream) => stream.write(bytes),
            Channel::Sealed(sealed) => sealed.write(&[IoSlice::new(bytes)]),
        }
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Channel::Plain(stream) => stream.write_vectored(pieces),
            Channel::Sealed(sealed) => sealed.write(pieces),
        }
    }

    /// Does nothing: a write has reached the kernel when it returns.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: Read + Write> Sealed<S> {
    pub(crate) fn new(stream: S, session: Session) -> Self {
        Sealed {
            stream,
            session,
            outgoing: Vec::new(),
            left: 0,
            stands_for: 0,
            gathered: Vec::new(),
            // Room for two records: the next one arrives while one is decrypted.
            incoming: vec![0; 2 * MAX_FRAME],
            taken: 0,
            filled: 0,
            opened: Vec::new(),
            read: 0,
        }
    }

    /// Returns the keys after the last read.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn into_session(self) -> Session {
        self.session
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.left == self.outgoing.len() {
            self.seal(pieces)?;
        }
        while self.left < self.outgoing.len() {
            match self.stream.write(&self.outgoing[self.left..])? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => self.left += count,
            }
        }
        Ok(self.stands_for)
    }

    /// Seals the first bytes into one record.
    fn seal(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let mut filled = pieces.iter().filter(|piece| !piece.is_empty());
        let plain = match (filled.next(), filled.next()) {
            (Some(only), None) => &only[..only.len().min(MAX_PLAINTEXT)],
            _ => {
                self.gathered.clear();
                for piece in pieces {
                    let room = MAX_PLAINTEXT - self.gathered.len();
                    self.gathered.extend(&piece[..piece.len().min(room)]);
                }
                &self.gathered
            }
        };
        self.stands_for = plain.len();
        self.left = 0;
        self.outgoing.clear();
        if plain.is_empty() {
            return Ok(());
        }
        self.session.seal(plain, &mut self.outgoing)
    }

    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            if self.read < self.opened.len() {
                let count = into.len().min(self.opened.len() - self.read);
                into[..count].copy_from_slice(&self.opened[self.read..][..count]);
                self.read += count;
                return Ok(count);
            }
            if let Some(count) = self.open(into)? {
                if count > 0 {
                    return Ok(count);
                }
                continue;
            }
            self.incoming.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
            match self.stream.read(&mut self.incoming[self.filled..])? {
                0 => return Ok(0),
                count => self.filled += count,
            }
        }
    }

    /// Decrypts the next record if all of it is here: directly into `into` if that has room, and returns its
    /// length. Otherwise keeps the record in `opened` and returns 0. `None` if part of it is missing.
    fn open(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let bytes = &self.incoming[self.taken..self.filled];
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let long = usize::from(u16::from_le_bytes(*prefix));
        let Some(record) = rest.get(..long) else { return Ok(None) };
        self.taken += PREFIX + long;
        if into.len() >= long {
            return self.session.open(record, into).map(Some);
        }
        self.opened.resize(long, 0);
        self.read = 0;
        let opened = self.session.open(record, &mut self.opened);
        self.opened.truncate(*opened.as_ref().unwrap_or(&0));
        opened.map(|_| Some(0))
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
