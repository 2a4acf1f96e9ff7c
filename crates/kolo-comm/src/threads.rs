//! Groups whose ranks are threads of this process: for several workers in one program, and for tests.

use std::sync::Arc;

use crate::group::Group;
use crate::options::Options;
use kolo_rendezvous::{Error, Liveness};
use kolo_schedule::{Rank, Topology};
use kolo_transport::Connected;
use kolo_transport::{Backing, GroupContext, Routes, THREADS, connect_threads};

/// Creates one group for each of `world` ranks; each belongs on its own thread.
///
/// # Errors
///
/// The operating system has no more memory.
pub fn groups(world: usize, options: &Options) -> Result<Vec<Group>, Error> {
    if world == 1 {
        return Ok(vec![Group::alone()]);
    }
    let liveness = Arc::new(Liveness::new(world));
    let topology = Arc::new(Topology::single(world));
    let context = GroupContext::of_threads(options.arrival());
    let mut groups = Vec::new();
    for (rank, transport) in connect_threads(world, &context.copies, &liveness)?.into_iter().enumerate() {
        let peers = (0..world).filter(|peer| *peer != rank).map(Rank).collect();
        let routes = Routes::new(world, vec![(&THREADS, transport, peers)]);
        let (topology, context) = (topology.clone(), context.clone());
        let connected = Connected { routes, topology, backing: Backing::Heap, context };
        groups.push(Group::of_threads(Rank(rank), connected, liveness.clone(), options)?);
    }
    Ok(groups)
}

/// Runs `work` on `world` ranks, each a thread with its group; returns their results in rank order.
///
/// # Errors
///
/// The operating system has no more memory.
///
/// # Panics
///
/// Panics if `work` panics on any rank, after all ranks have ended.
pub fn spawn<R: Send>(world: usize, work: impl Fn(Group) -> R + Sync) -> Result<Vec<R>, Error> {
    let groups = groups(world, &Options::default())?;
    let work = &work;
    Ok(std::thread::scope(|scope| {
        let threads: Vec<_> = groups.into_iter().map(|group| scope.spawn(move || work(group))).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        let unwrap =
            |result: std::thread::Result<R>| result.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        results.into_iter().map(unwrap).collect()
    }))
}
