//! Ports of etcd and launchers.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use kolo_program::Failure;

/// Ports above those at which launchers meet, and below those that Linux gives to connections by itself
/// (`net.ipv4.ip_local_port_range`), which it may take between the check and the use.
const PORTS: Range<u16> = 30_000..32_700;

/// Returns a loopback port without a listener, another one in each call.
pub(super) fn free_port() -> Result<u16, Failure> {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let count = u32::from(PORTS.end - PORTS.start);
    // Programs that run at the same time begin at different ports.
    let first = std::process::id().wrapping_mul(101);
    let next = |_| first.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % count;
    let port = (0..count).map(next).filter_map(|next| PORTS.clone().nth(next as usize)).find(is_free);
    port.ok_or_else(|| Failure::work(format!("no port of {PORTS:?} is free on 127.0.0.1")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_no_two_are_the_same() {
        let ports = [free_port().unwrap(), free_port().unwrap()];
        assert!(ports[0] != ports[1] && ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
    }
}
