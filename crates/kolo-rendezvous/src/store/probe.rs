//! A question to whoever listens at a place, which may be no store at all.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::wire::{self, Reply, Request};
use crate::secure::{Access, Link, Purpose, introduce};

/// The value that a store at `address` has for a key now. An error when nobody is there or it is no store.
///
/// Connecting may take as long as `patience`, and so may each part of the answer.
pub fn probe(
    address: SocketAddr,
    access: &Access,
    key: &str,
    patience: Duration,
) -> io::Result<Option<String>> {
    let stream = TcpStream::connect_timeout(&address, patience)?;
    let session = introduce(&stream, access, Purpose::Store, &[], Instant::now() + patience)
        .map_err(|refused| io::Error::other(refused.to_string()))?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut stream = Link::new(stream, session);
    wire::write(&mut stream, &Request::Get { key: key.into(), wait_ms: 0 })?;
    match wire::read(&mut stream)? {
        Reply::Value(value) => Ok(value),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
