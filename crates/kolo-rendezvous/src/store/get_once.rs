//! One request to whatever listens at an address, which may be no store at all.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::wire::{self, Reply, Request};
use crate::secure::{Access, HandshakeError, Protocol, SecureStream, connect, dial};

/// The value that a store at `address` has for a key now, by a connection of its own.
///
/// Connecting may take as long as `timeout`, and so may each part of the answer.
///
/// # Errors
///
/// Nothing listens there, or it is no store of this job, or does not let this process in.
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
