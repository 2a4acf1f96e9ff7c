//! A question to whoever listens at a place, which may be no store at all.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::wire::{self, Reply, Request};

/// The value that a store at `address` has for a key now. An error when nobody is there or it is no store.
///
/// Connecting may take as long as `patience`, and so may each part of the answer.
pub(crate) fn probe(address: SocketAddr, key: &str, patience: Duration) -> io::Result<Option<String>> {
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    wire::write(&mut stream, &Request::Get { key: key.into(), wait_ms: 0 })?;
    match wire::read(&mut stream)? {
        Reply::Value(value) => Ok(value),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
