//! One harness for every test: `world` ranks over a transport, each with its group.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use kolo_comm::env::WorkerEnv;
use kolo_comm::{Error, Group, Options, Rank, TransportChoice, threads};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Over {
    Threads,
    Shm,
    Tcp,
    /// Nodes of two ranks: shared memory within, TCP between them.
    Mixed,
}

pub const ALL: [Over; 4] = [Over::Threads, Over::Shm, Over::Tcp, Over::Mixed];

/// A port nobody listens on, a moment ago.
pub fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
    listener.local_addr().expect("a bound socket has an address")
}

/// Runs `work` on every rank, a thread each. Shared memory and sockets are used as between processes: a thread
/// opens the others' memory through /proc and connects to their ports.
pub fn spawn<R: Send>(
    over: Over,
    world: usize,
    options: &Options,
    work: impl Fn(Group) -> R + Sync,
) -> Vec<Result<R, Error>> {
    let transport = match over {
        Over::Threads | Over::Mixed => None,
        Over::Shm => Some(TransportChoice::Shm),
        Over::Tcp => Some(TransportChoice::Tcp),
    };
    let options = Options { transport, ..options.clone() };
    let mut ready = match over {
        Over::Threads => threads::groups(world, &options).expect("memory").into_iter().map(Some).collect(),
        _ => (0..world).map(|_| None).collect::<Vec<Option<Group>>>(),
    };
    let master = free_port();
    let (work, options) = (&work, &options);
    std::thread::scope(|scope| {
        let run = |(rank, group): (usize, Option<Group>)| {
            scope.spawn(move || {
                let node = (over == Over::Mixed).then(|| format!("node {}", rank / 2));
                let options = &Options { node, ..options.clone() };
                let place = WorkerEnv {
                    rank: Rank(rank),
                    world_size: world,
                    local_rank: rank,
                    endpoint: master.into(),
                };
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
