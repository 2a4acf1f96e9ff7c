//! Groups whose ranks are threads of this process: several workers in one program, and tests.

use std::sync::Arc;

use crate::group::Group;
use crate::membership::{Founded, Ground};
use crate::memory::{Backing, Mapping};
use crate::options::Options;
use crate::transport::mailbox::{Mailbox, inbox_len};
use kolo_rendezvous::Error;
use kolo_rendezvous::Liveness;
use kolo_schedule::Rank;
use kolo_schedule::Topology;

/// One group for each of `world` ranks; hand each to a thread of its own.
///
/// # Errors
///
/// The operating system has no memory for it.
pub fn groups(world: usize, options: &Options) -> Result<Vec<Group>, Error> {
    if world == 1 {
        return Ok(vec![Group::alone()]);
    }
    let inbox = |_| Mapping::create(inbox_len(world)).map(|(pages, _)| Some(Arc::new(pages)));
    let inboxes: Vec<Option<Arc<Mapping>>> = (0..world).map(inbox).collect::<Result<_, _>>()?;
    let liveness = Arc::new(Liveness::new(world));
    let topology = Arc::new(Topology::single(world));
    let group = |rank| {
        let transport = Box::new(Mailbox::within_process(Rank(rank), &inboxes, &liveness)?);
        let (topology, ground) = (topology.clone(), Ground::of_threads());
        let founded = Founded { transport, topology, backing: Backing::Heap, ground };
        Group::of_threads(Rank(rank), founded, liveness.clone(), options)
    };
    (0..world).map(group).collect()
}

/// Runs `work` on `world` ranks, each a thread with its group; returns their results in rank order.
///
/// # Errors
///
/// The operating system has no memory for it.
///
/// # Panics
///
/// If `work` panics on any rank, after all have ended.
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
