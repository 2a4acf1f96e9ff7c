//! One request to a listener that may not be a store.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::wire::{self, Reply, Request};
use crate::secure::{Access, HandshakeError, Protocol, SecureStream, connect, dial};

/// Returns the current value of a key in the store at `address`, over a new connection.
///
/// Connecting may take as long as `timeout`, and so may each part of the answer.
///
/// # Errors
///
/// Nothing listens there, the listener is no store of this job, or it rejects this process.
pub fn get_once(
    address: SocketAddr,
    access: &Access,
    key: &str,
    timeout: Duration,
) -> Result<Option<String>, HandshakeError> {
    let stream = dial(address, timeout)?;
    let session = connect(&stream, access, Protocol::Store, &[], Instant::now() + timeout)?;
    let mut stream = SecureStream::new(stream, session);
    stream.set_timeout(Some(timeout))?;
    wire::write(&mut stream, &Request::Get { key: key.into(), wait_ms: 0 })?;
    match wire::read(&mut stream)? {
        Reply::Value(value) => Ok(value),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
    }
}
