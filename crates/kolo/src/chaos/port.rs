//! Where etcd and launchers meet.

use std::net::TcpListener;

use kolo::Failure;

/// A port of loopback that nobody listens at.
pub(super) fn free_port() -> Result<u16, Failure> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    free.map(|address| address.port()).map_err(|cause| Failure::work(format!("no port is free: {cause}")))
}
