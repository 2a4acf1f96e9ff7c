//! One harness for every test: `world` ranks over a transport, each with its group.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use kolo_comm::env::WorkerEnv;
use kolo_comm::{Error, Group, Options, Rank, SHM, TCP, THREADS, TRANSPORTS, TransportKind, threads};

/// Transports between the ranks of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Over {
    /// One transport, between all ranks.
    Only(&'static TransportKind),
    /// Nodes of two ranks: the nearest transport within a node, the next one between nodes.
    Mixed,
}

impl Over {
    /// Threads of one process.
    pub const THREADS: Over = Over::Only(&THREADS);
    /// Memory that processes share.
    pub const SHM: Over = Over::Only(&SHM);
    /// TCP on loopback.
    pub const TCP: Over = Over::Only(&TCP);
}

/// Every transport of the table by itself, and all of them together.
pub const ALL: [Over; TRANSPORTS.len() + 1] = {
    let mut all = [Over::Mixed; TRANSPORTS.len() + 1];
    let mut index = 0;
    while index < TRANSPORTS.len() {
        all[index] = Over::Only(TRANSPORTS[index]);
        index += 1;
    }
    all
};

/// Returns a port on which no process listened a moment ago.
pub fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
    listener.local_addr().expect("a bound socket has an address")
}

/// Runs `work` on every rank, with a thread for each. The ranks use shared memory and sockets like
/// processes: a thread opens the other ranks' memory through /proc and connects to their ports.
pub fn spawn<R: Send>(
    over: Over,
    world: usize,
    options: &Options,
    work: impl Fn(Group) -> R + Sync,
) -> Vec<R> {
    try_spawn(over, world, options, work).into_iter().map(Result::unwrap).collect()
}

/// Works like [`spawn`], but returns the error of a rank that cannot join the group.
pub fn try_spawn<R: Send>(
    over: Over,
    world: usize,
    options: &Options,
    work: impl Fn(Group) -> R + Sync,
) -> Vec<Result<R, Error>> {
    let transport = match over {
        Over::Only(kind) => Some(kind).filter(|kind| kind.is_for_jobs()),
        Over::Mixed => None,
    };
    let options = Options { transport, ..options.clone() };
    let mut ready = match over {
        Over::Only(kind) if !kind.is_for_jobs() => {
            threads::groups(world, &options).expect("memory").into_iter().map(Some).collect()
        }
        _ => (0..world).map(|_| None).collect::<Vec<Option<Group>>>(),
    };
    let master = free_port();
    let (work, options) = (&work, &options);
    std::thread::scope(|scope| {
        let run = |(rank, group): (usize, Option<Group>)| {
            scope.spawn(move || {
                let node = (over == Over::Mixed).then(|| format!("node {}", rank / 2));
                let options = &Options { node, ..options.clone() };
                let place = WorkerEnv { rank: Rank(rank), world_size: world, endpoint: master.into() };
                let group = match group {
                    Some(group) => group,
                    None => Group::join(&place, options)?,
                };
                Ok(work(group))
            })
        };
        let threads: Vec<_> = ready.drain(..).enumerate().map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank panicked")).collect()
    })
}
