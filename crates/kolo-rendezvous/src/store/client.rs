//! The client of the store, on every rank.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::wire::{self, Reply, Request};
use crate::error::{Error, is_out_of_files};
use crate::secure::{Access, Protocol, SecureStream, connect, dial, is_loopback_down};
use crate::wait_notice::WaitNotice;
use kolo_schedule::Rank;

/// Result of [`Store::gather`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gathered {
    /// All values of the topic, in order.
    All(Vec<String>),
    /// Numbers of the missing values, the first thousand of them.
    Missing(Vec<usize>),
}

/// A connection to the store for requests.
pub struct Store {
    stream: SecureStream,
    address: SocketAddr,
}

kolo_schedule::opaque_debug!(Store { address });

impl Store {
    /// Connects to the store, waiting up to `timeout` until rank 0 serves it.
    ///
    /// # Errors
    ///
    /// Nothing listens at `address` in time ([`Error::Missing`]). The listener has another token
    /// ([`Error::TokenDiffers`]) or rejects this worker ([`Error::JoinRejected`]). Without a token,
    /// `address` must be loopback ([`Error::Environment`]).
    pub fn connect(address: SocketAddr, access: &Access, timeout: Duration) -> Result<Store, Error> {
        Ok(Store { stream: open(address, access, timeout, false)?, address })
    }

    /// Connects to a store that has been served before: if nothing listens there any more, it is gone.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::connect`]; [`Error::StoreLost`]: the store is gone.
    pub fn connect_served(address: SocketAddr, access: &Access, timeout: Duration) -> Result<Store, Error> {
        Ok(Store { stream: open(address, access, timeout, true)?, address })
    }

    /// Returns the address of this end of the connection. Hosts that reach the store reach this host there.
    ///
    /// # Errors
    ///
    /// [`Error::StoreLost`]: the connection broke.
    pub fn local_ip(&self) -> Result<IpAddr, Error> {
        self.stream.local_addr().map(|address| address.ip()).map_err(|cause| lost(self.address, cause))
    }

    /// Sets the value of a key, replacing an older one.
    ///
    /// # Errors
    ///
    /// [`Error::StoreLost`]: the connection broke. [`Error::StoreRefuses`]: the store is full or the key too
    /// long.
    pub fn set(&mut self, key: &str, value: String) -> Result<(), Error> {
        self.expect_kept(&Request::Set { key: key.into(), value })
    }

    /// Sets a value when this connection ends, for whatever reason: a last will, in MQTT's terms. Fails as
    /// [`Store::set`] does.
    pub fn will(&mut self, key: &str, value: String) -> Result<(), Error> {
        self.expect_kept(&Request::Will { key: key.into(), value })
    }

    fn expect_kept(&mut self, request: &Request) -> Result<(), Error> {
        match self.request(request)? {
            Reply::Kept => Ok(()),
            other => Err(self.refusal(other)),
        }
    }

    /// Limits the time for every answer to `timeout`, which should exceed any wait that a request names.
    ///
    /// # Errors
    ///
    /// [`Error::StoreLost`]: the connection broke.
    pub fn set_timeout(&mut self, timeout: Duration) -> Result<(), Error> {
        self.stream.set_timeout(Some(timeout)).map_err(|cause| lost(self.address, cause))
    }

    /// Returns the value of a key as soon as any rank has set it; `None` after `wait`.
    ///
    /// # Errors
    ///
    /// [`Error::StoreLost`]: the connection broke. [`Error::StoreRefuses`]: the process that serves the store
    /// could not keep the value there.
    pub fn get(&mut self, key: &str, wait: Duration) -> Result<Option<String>, Error> {
        self.find(&Request::Get { key: key.into(), wait_ms: milliseconds(wait) })
    }

    /// Works like [`Store::get`], and removes the value from the store: for messages with one reader. Fails
    /// as [`Store::get`] does.
    pub fn take(&mut self, key: &str, wait: Duration) -> Result<Option<String>, Error> {
        self.find(&Request::Take { key: key.into(), wait_ms: milliseconds(wait) })
    }

    /// Waits for the values of `topic/0` to `topic/<count − 1>`; returns the missing ones after `wait`.
    /// Fails as [`Store::get`] does.
    pub fn gather(&mut self, topic: &str, count: usize, wait: Duration) -> Result<Gathered, Error> {
        let mut values = Vec::new();
        while values.len() < count {
            let (from, wait_ms) = (values.len(), milliseconds(wait));
            match self.request(&Request::Gather { topic: topic.into(), from, count, wait_ms })? {
                Reply::Values(more) if !more.is_empty() => values.extend(more),
                Reply::Absent { missing } => return Ok(Gathered::Missing(missing)),
                other => return Err(self.refusal(other)),
            }
        }
        Ok(Gathered::All(values))
    }

    fn find(&mut self, request: &Request) -> Result<Option<String>, Error> {
        match self.request(request)? {
            Reply::Value(value) => Ok(value),
            other => Err(self.refusal(other)),
        }
    }

    /// Converts a reply other than the expected one to an error.
    fn refusal(&self, reply: Reply) -> Error {
        match reply {
            Reply::Refused { why } => Error::StoreRefuses { address: self.address, cause: why },
            _ => lost(self.address, io::ErrorKind::InvalidData.into()),
        }
    }

    fn request(&mut self, request: &Request) -> Result<Reply, Error> {
        let answer = wire::write(&mut self.stream, request).and_then(|()| wire::read(&mut self.stream));
        answer.map_err(|cause| lost(self.address, cause))
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn lost(address: SocketAddr, cause: io::Error) -> Error {
    if is_out_of_files(&cause) {
        return Error::io(format!("cannot connect to the store at {address}"), cause);
    }
    let cause = match cause.kind() {
        // The host acknowledges packets for a stopped process.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not answer; it may be stopped".into(),
        _ => cause.to_string(),
    };
    Error::StoreLost { address, cause }
}

/// Connects to the store, waiting up to `timeout` until rank 0 serves it, unless it was `served` before.
pub(super) fn open(
    address: SocketAddr,
    access: &Access,
    timeout: Duration,
    served: bool,
) -> Result<SecureStream, Error> {
    // Otherwise this rank would wait for a rank 0 that refuses to start.
    access.may_listen(address.ip())?;
    let until = Instant::now() + timeout;
    let mut notice = WaitNotice::new();
    loop {
        let rest = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let (cause, rejection) = match dial(address, rest.min(Duration::from_secs(5))) {
            Ok(stream) => match connect(&stream, access, Protocol::Store, &[], until) {
                Ok(session) => return Ok(SecureStream::new(stream, session)),
                Err(error) => match error.token_rejection() {
                    Some(reason) => return Err(Error::TokenDiffers { address, reason }),
                    None => (error.to_string(), Some(error)),
                },
            },
            Err(cause) if is_out_of_files(&cause) => return Err(lost(address, cause)),
            Err(cause) if is_loopback_down(address.ip(), &cause) => {
                return Err(Error::LoopbackDown { address: address.ip() });
            }
            Err(cause) if served && cause.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(lost(address, cause));
            }
            // Rank 0 may not serve yet.
            Err(cause) => (cause.to_string(), None),
        };
        if let Some(waited) = notice.due() {
            log::warn!(
                "no store of the job has answered at {address} for {waited:?} ({cause}); this worker waits for {timeout:?}"
            );
        }
        match rejection {
            Some(error) if !error.is_transient() || Instant::now() >= until => {
                return Err(Error::JoinRejected { address, cause });
            }
            None if Instant::now() >= until => {
                let (missing, refused) = (vec![Rank(0)], Vec::new());
                return Err(Error::Missing { missing, address, waited: timeout, refused });
            }
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::secure::RejectReason;

    #[test]
    fn a_store_that_is_gone_is_not_waited_for() {
        let access = Access::new(None, false).unwrap();
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let wait = Duration::from_millis(300);
        let connected = Store::connect_served(gone, &access, Duration::from_secs(600)).map(drop);
        assert!(matches!(connected, Err(Error::StoreLost { .. })), "{connected:?}");
        let waited = Store::connect(gone, &access, wait).map(drop);
        assert!(matches!(waited, Err(Error::Missing { .. })), "it may not serve yet: {waited:?}");
    }

    #[test]
    fn an_earlier_rejection_is_not_the_reason_why_nothing_answers() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let rejecting = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            drop(listener);
            stream.read_exact(&mut [0; 8]).unwrap();
            stream.write_all(&[0, 0, RejectReason::Late as u8]).unwrap();
            // A connection that is closed with unread bytes loses the answer.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let access = Access::default();
        let waited = Store::connect(address, &access, Duration::from_millis(300)).map(drop);
        assert!(matches!(waited, Err(Error::Missing { .. })), "{waited:?}");
        rejecting.join().unwrap();
    }
}
