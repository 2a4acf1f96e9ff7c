//! The collective and the buffer that measure an operation.

use std::sync::Arc;

use kolo_comm::schedule::{Chunks, Message, OperationKind, Range};
use kolo_comm::tree::Contributions;
use kolo_comm::{Collective, Op, Rank, Readers};

/// A collective and the size of a rank's buffer for it.
pub(super) struct Shape {
    pub(super) collective: Collective,
    pub(super) elements: usize,
}

/// Returns the number of elements to move for a requested `len`: a multiple of the number of ranks if the
/// operation divides a buffer into one chunk for each.
pub(super) fn fitting(operation: OperationKind, len: usize, world: usize) -> usize {
    if operation.properties().in_chunks { (len / world).max(1) * world } else { len }
}

/// Returns an all-reduce over the workers of a group that has servers.
pub(super) fn served(len: usize, servers: &[bool]) -> Shape {
    let shards: Vec<usize> = servers.iter().map(|server| usize::from(!server)).collect();
    let contributions = Arc::new(Contributions::of_shares(&shards).with_servers(servers));
    Shape { collective: Collective::tree_sum(contributions, len), elements: len }
}

/// Returns the collective and the buffer size that measure an operation on `len` elements. Messages go round
/// the ring of ranks; rank r and the next one read block r of a sum for readers.
pub(super) fn shape(
    operation: OperationKind,
    len: usize,
    op: Op,
    root: Rank,
    rank: Rank,
    world: usize,
) -> Shape {
    let each = len / world;
    let whole = |collective| Shape { collective, elements: len };
    let at_root = |collective| Shape { collective, elements: if rank == root { len } else { each } };
    match operation {
        OperationKind::AllReduce => whole(Collective::AllReduce(op)),
        OperationKind::ReduceScatter => whole(Collective::ReduceScatter(op, Chunks::Equal)),
        OperationKind::ReduceToReaders => {
            let contributions = Arc::new(Contributions::one_each(world));
            let readers = |block: usize| (block..(block + 2).min(world)).map(Rank);
            let readers = Readers::of_blocks((0..world).map(|block| (each, readers(block))));
            whole(Collective::TreeSum { contributions, len, readers })
        }
        OperationKind::AllGather => whole(Collective::AllGather(Chunks::Equal)),
        OperationKind::Broadcast => whole(Collective::Broadcast(root)),
        OperationKind::Reduce => whole(Collective::Reduce(op, root)),
        OperationKind::Gather => at_root(Collective::Gather(root)),
        OperationKind::Scatter => at_root(Collective::Scatter(root)),
        OperationKind::AllToAll => {
            let (send, receive) = (vec![each; world].into(), vec![each; world].into());
            Shape { collective: Collective::AllToAll { send, receive }, elements: 2 * len }
        }
        OperationKind::Exchange => {
            let message = |rank: usize, start| Message { peer: Rank(rank), range: Range { start, len } };
            let others = |message| if world > 1 { vec![message] } else { Vec::new() };
            let send = others(message((rank.0 + 1) % world, len)).into();
            let receive = others(message((rank.0 + world - 1) % world, 0)).into();
            Shape { collective: Collective::Exchange { send, receive }, elements: 2 * len }
        }
    }
}
