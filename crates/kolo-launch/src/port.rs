//! The port of rank 0's store: a free one, or the given one if it is free.
//!
//! The launcher only tests the port; if another program takes it before rank 0 does, rank 0 reports it.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::error::LaunchError;
use crate::job::Job;

/// Chooses the port of this job's store. Only the node that will serve it can test it.
pub(crate) fn choose(job: &Job) -> Result<u16, LaunchError> {
    match job.master_port {
        Some(port) if job.node_rank > 0 => Ok(port),
        port => {
            let patience = if job.nnodes > 1 { NAMED_WITHIN } else { Duration::ZERO };
            bound(&job.master_addr, port.unwrap_or(0), patience)
        }
    }
}

/// Time in which this node's name has to resolve: a pod's name does so some seconds after its start.
const NAMED_WITHIN: Duration = Duration::from_secs(20);

fn resolve(host: &str, port: u16, patience: Duration) -> io::Result<Vec<SocketAddr>> {
    let until = Instant::now() + patience;
    loop {
        match (host, port).to_socket_addrs() {
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(200)),
            found => return Ok(found?.collect()),
        }
    }
}

fn bound(host: &str, port: u16, patience: Duration) -> Result<u16, LaunchError> {
    let free = || -> io::Result<u16> {
        // A name may have several addresses: one that can be bound is enough.
        let addresses = resolve(host, port, patience)?;
        let listener = TcpListener::bind(&*addresses).or_else(|error| match error.kind() {
            // The name leads here indirectly (a service's address, for example), so only the port is tested.
            ErrorKind::AddrNotAvailable => TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
            _ => Err(error),
        })?;
        Ok(listener.local_addr()?.port())
    };
    free().map_err(|cause| match cause.kind() {
        ErrorKind::AddrInUse => LaunchError::PortInUse { host: host.into(), port },
        _ => LaunchError::Master { host: format!("{host}:{port}"), cause },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_listened_at() {
        let port = choose(&Job::new(["true"], 1)).unwrap();
        TcpListener::bind(("127.0.0.1", port)).unwrap();
    }

    #[test]
    fn a_port_in_use_is_named_except_on_a_node_that_does_not_serve_it() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let mut job = Job { nnodes: 2, master_port: Some(port), ..Job::new(["true"], 1) };
        let error = choose(&job).unwrap_err();
        assert!(matches!(error, LaunchError::PortInUse { .. }), "{error}");
        assert!(error.to_string().contains(&port.to_string()) && error.to_string().contains("--master-port"));
        job.node_rank = 1;
        assert_eq!(choose(&job).unwrap(), port);
    }

    #[test]
    fn a_host_that_does_not_resolve_is_named() {
        let job = Job { master_addr: "no such host".into(), ..Job::new(["true"], 1) };
        let error = choose(&job).unwrap_err().to_string();
        assert!(error.contains("no such host") && error.contains("--master-addr"), "{error}");
    }

    #[test]
    fn an_address_of_elsewhere_still_gets_a_port() {
        // 192.0.2.0/24 is for documentation: no machine has it.
        let job = Job { master_addr: "192.0.2.1".into(), ..Job::new(["true"], 1) };
        assert_ne!(choose(&job).unwrap(), 0);
    }
}
