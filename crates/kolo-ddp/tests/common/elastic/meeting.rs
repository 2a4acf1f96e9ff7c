//! Rendezvous of the ranks of each generation of an elastic job.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use kolo_comm::env::WorkerEnv;
use kolo_comm::{Group, Options, Rank};
use kolo_ddp::Error;

/// Time limit: a member that fails would keep the others waiting.
const PATIENCE: Duration = Duration::from_secs(60);

/// Numbers of workers and servers of a generation that have come, and their address once all are there.
type Come = ([usize; 2], Option<SocketAddr>);

/// Rendezvous of the ranks of each generation.
#[derive(Default)]
pub struct Meeting {
    generations: Mutex<BTreeMap<usize, Come>>,
    changed: Condvar,
}

impl Meeting {
    /// Waits for all members of a generation, so many workers and then servers, and forms their group.
    pub fn join(
        &self,
        generation: usize,
        [workers, servers]: [usize; 2],
        options: &Options,
    ) -> Result<Arc<Group>, Error> {
        let mut generations = self.generations.lock().unwrap();
        let (come, master) = generations.entry(generation).or_default();
        let rank = if options.server { workers + come[1] } else { come[0] };
        come[usize::from(options.server)] += 1;
        if *come == [workers, servers] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            *master = Some(listener.local_addr().unwrap());
        }
        self.changed.notify_all();
        let master = loop {
            if let (_, Some(master)) = generations[&generation] {
                break master;
            }
            let (next, timeout) = self.changed.wait_timeout(generations, PATIENCE).unwrap();
            assert!(!timeout.timed_out(), "generation {generation} waits for its members");
            generations = next;
        };
        drop(generations);
        let (rank, world_size) = (Rank(rank), workers + servers);
        let place = WorkerEnv { rank, world_size, endpoint: master.into() };
        Ok(Arc::new(Group::join(&place, options)?))
    }
}
