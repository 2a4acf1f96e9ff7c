//! Rendezvous of the ranks of each generation of an elastic job.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use kolo_comm::env::WorkerEnv;
use kolo_comm::{Group, Options, Rank, TCP, TransportKind};
use kolo_ddp::Error;

/// Time limit: a worker that fails would keep the others waiting.
const PATIENCE: Duration = Duration::from_secs(60);

/// Rendezvous of the ranks of each generation.
#[derive(Default)]
pub struct Meeting {
    /// For each generation the number of ranks that have come, and their address once all are there.
    generations: Mutex<BTreeMap<usize, (usize, Option<SocketAddr>)>>,
    changed: Condvar,
}

impl Meeting {
    /// Waits for all `world` members of a generation, and forms their group.
    pub fn join(
        &self,
        generation: usize,
        world: usize,
        transport: &'static TransportKind,
    ) -> Result<Arc<Group>, Error> {
        let mut generations = self.generations.lock().unwrap();
        let (count, master) = generations.entry(generation).or_default();
        let rank = *count;
        *count += 1;
        if *count == world {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            *master = Some(listener.local_addr().unwrap());
        }
        self.changed.notify_all();
        let master = loop {
            if let (_, Some(master)) = generations[&generation] {
                break master;
            }
            let (next, timeout) = self.changed.wait_timeout(generations, PATIENCE).unwrap();
            assert!(!timeout.timed_out(), "generation {generation} waits for {world} ranks");
            generations = next;
        };
        drop(generations);
        let place =
            WorkerEnv { rank: Rank(rank), world_size: world, local_rank: rank, endpoint: master.into() };
        // Over sockets a delay, so that a death finds buckets in flight.
        let delay = Duration::from_millis(if transport == &TCP { 1 } else { 0 });
        let options = Options { transport: Some(transport), delay, ..Options::default() };
        Ok(Arc::new(Group::join(&place, &options)?))
    }
}
