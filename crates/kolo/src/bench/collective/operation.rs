//! The operations that can be measured: one line each.

use kolo_comm::schedule::{Chunks, Message, Range};
use kolo_comm::{Collective, Op, Rank};

/// A collective by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    Reduce,
    Gather,
    Scatter,
    AllToAll,
    SendReceive,
}

/// What a rank's buffer looks like, and what is asked.
pub(super) struct Shape {
    pub(super) collective: Collective,
    /// Elements of the buffer.
    pub(super) elements: usize,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::AllReduce => "all-reduce",
            Operation::ReduceScatter => "reduce-scatter",
            Operation::AllGather => "all-gather",
            Operation::Broadcast => "broadcast",
            Operation::Reduce => "reduce",
            Operation::Gather => "gather",
            Operation::Scatter => "scatter",
            Operation::AllToAll => "all-to-all",
            Operation::SendReceive => "send-receive",
        }
    }

    /// Bus bandwidth by algorithm bandwidth, as nccl-tests has it (doc/PERFORMANCE.md).
    pub(super) fn bus_factor(self, world: usize) -> f64 {
        let world = world as f64;
        let share = (world - 1.0) / world;
        match self {
            Operation::AllReduce => 2.0 * share,
            Operation::Broadcast | Operation::Reduce | Operation::SendReceive => 1.0,
            _ => share,
        }
    }

    /// Whether `len` elements divide into chunks, one for each rank.
    fn divides(self) -> bool {
        !matches!(
            self,
            Operation::AllReduce | Operation::Broadcast | Operation::Reduce | Operation::SendReceive
        )
    }

    /// The elements really moved where at most `len` are asked for.
    pub(super) fn fitting(self, len: usize, world: usize) -> usize {
        if self.divides() { (len / world).max(1) * world } else { len }
    }

    pub(super) fn shape(self, len: usize, op: Op, root: Rank, rank: Rank, world: usize) -> Shape {
        let each = len / world;
        let whole = |collective| Shape { collective, elements: len };
        let at_root = |collective| Shape { collective, elements: if rank == root { len } else { each } };
        match self {
            Operation::AllReduce => whole(Collective::AllReduce(op)),
            Operation::ReduceScatter => whole(Collective::ReduceScatter(op, Chunks::Equal)),
            Operation::AllGather => whole(Collective::AllGather(Chunks::Equal)),
            Operation::Broadcast => whole(Collective::Broadcast(root)),
            Operation::Reduce => whole(Collective::Reduce(op, root)),
            Operation::Gather => at_root(Collective::Gather(root)),
            Operation::Scatter => at_root(Collective::Scatter(root)),
            Operation::AllToAll => {
                let (send, receive) = (vec![each; world].into(), vec![each; world].into());
                Shape { collective: Collective::AllToAll { send, receive }, elements: 2 * len }
            }
            Operation::SendReceive => {
                let message = |rank: usize, start| Message { peer: Rank(rank), range: Range { start, len } };
                let others = |message| if world > 1 { vec![message] } else { Vec::new() };
                let send = others(message((rank.0 + 1) % world, len)).into();
                let receive = others(message((rank.0 + world - 1) % world, 0)).into();
                Shape { collective: Collective::Exchange { send, receive }, elements: 2 * len }
            }
        }
    }
}
