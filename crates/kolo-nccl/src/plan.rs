//! The NCCL calls of a collective. Pure: NCCL runs a list as one group, so no call waits for another.

use kolo_comm::Collective;
use kolo_rendezvous::{BackendError, Error};
use kolo_schedule::{Chunks, Op, Range, Rank};

/// One NCCL call. Ranges are elements of this rank's buffer; all calls are in place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    AllReduce {
        op: Op,
        range: Range,
    },
    /// Reduces equal chunks, which begin at the buffer's start; the result is chunk `rank`.
    ReduceScatter {
        op: Op,
        each: usize,
    },
    /// Gathers equal chunks, which begin at the buffer's start; this rank's is chunk `rank`.
    AllGather {
        each: usize,
    },
    Broadcast {
        root: Rank,
        range: Range,
    },
    Reduce {
        op: Op,
        root: Rank,
        range: Range,
    },
    Send {
        peer: Rank,
        range: Range,
    },
    Receive {
        peer: Rank,
        range: Range,
    },
}

/// Returns the calls of rank `rank` of `world` for a collective on `elements` elements.
///
/// Refuses the calls that [`Collective::check`] refuses, and sums in tree order, which NCCL does not offer.
pub(super) fn plan(
    collective: &Collective,
    rank: Rank,
    world: usize,
    elements: usize,
) -> Result<Vec<Step>, Error> {
    collective.check(rank, world, elements)?;
    let range = Range { start: 0, len: elements };
    let each = elements / world;
    let ranks = || (0..world).map(Rank);
    let chunks = |chunks: &Chunks| ranks().zip(chunks.ranges(elements, world)).collect::<Vec<_>>();
    Ok(match collective {
        Collective::AllReduce(op) => vec![Step::AllReduce { op: *op, range }],
        // The value of its one element is unspecified, so any operation will do.
        Collective::Barrier => vec![Step::AllReduce { op: Op::Max, range }],
        Collective::TreeSum { .. } => return Err(BackendError::TreeOrder { backend: "NCCL".into() }.into()),
        Collective::ReduceScatter(op, Chunks::Equal) => vec![Step::ReduceScatter { op: *op, each }],
        Collective::ReduceScatter(op, varied) => {
            chunks(varied).into_iter().map(|(root, range)| Step::Reduce { op: *op, root, range }).collect()
        }
        Collective::AllGather(Chunks::Equal) => vec![Step::AllGather { each }],
        Collective::AllGather(varied) => {
            chunks(varied).into_iter().map(|(root, range)| Step::Broadcast { root, range }).collect()
        }
        Collective::Broadcast(root) => vec![Step::Broadcast { root: *root, range }],
        Collective::Reduce(op, root) => vec![Step::Reduce { op: *op, root: *root, range }],
        Collective::Gather(root) if *root != rank => vec![Step::Send { peer: *root, range }],
        Collective::Scatter(root) if *root != rank => vec![Step::Receive { peer: *root, range }],
        // The root's own chunk is already in its place.
        Collective::Gather(_) => {
            let others = chunks(&Chunks::Equal).into_iter().filter(|(peer, _)| *peer != rank);
            others.map(|(peer, range)| Step::Receive { peer, range }).collect()
        }
        Collective::Scatter(_) => {
            let others = chunks(&Chunks::Equal).into_iter().filter(|(peer, _)| *peer != rank);
            others.map(|(peer, range)| Step::Send { peer, range }).collect()
        }
        Collective::AllToAll { send, receive } => {
            let received: usize = receive.iter().sum();
            let into = Chunks::Varied(receive.clone()).ranges(0, world);
            let from = Chunks::Varied(send.clone()).ranges(0, world);
            let from = from.into_iter().map(|Range { start, len }| Range { start: received + start, len });
            ranks()
                .zip(from.zip(into))
                .flat_map(|(peer, (from, into))| {
                    [Step::Send { peer, range: from }, Step::Receive { peer, range: into }]
                })
                .collect()
        }
        Collective::Exchange { send, receive } => {
            let send = send.iter().map(|message| Step::Send { peer: message.peer, range: message.range });
            let receive =
                receive.iter().map(|message| Step::Receive { peer: message.peer, range: message.range });
            send.chain(receive).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use kolo_schedule::{Message, Readers};

    fn range(start: usize, len: usize) -> Range {
        Range { start, len }
    }

    fn of(collective: Collective, rank: usize, elements: usize) -> Vec<Step> {
        plan(&collective, Rank(rank), 3, elements).unwrap()
    }

    #[test]
    fn a_collective_of_nccl_is_one_call() {
        let whole = range(0, 6);
        let root = Rank(1);
        for (collective, step) in [
            (Collective::AllReduce(Op::Max), Step::AllReduce { op: Op::Max, range: whole }),
            (Collective::Broadcast(root), Step::Broadcast { root, range: whole }),
            (Collective::Reduce(Op::Sum, root), Step::Reduce { op: Op::Sum, root, range: whole }),
            (Collective::AllGather(Chunks::Equal), Step::AllGather { each: 2 }),
            (Collective::ReduceScatter(Op::Sum, Chunks::Equal), Step::ReduceScatter { op: Op::Sum, each: 2 }),
        ] {
            assert_eq!(of(collective, 2, 6), [step]);
        }
    }

    #[test]
    fn other_collectives_are_made_of_messages() {
        let root = Rank(0);
        assert_eq!(of(Collective::Gather(root), 1, 2), [Step::Send { peer: root, range: range(0, 2) }]);
        assert_eq!(
            of(Collective::Gather(root), 0, 6),
            [
                Step::Receive { peer: Rank(1), range: range(2, 2) },
                Step::Receive { peer: Rank(2), range: range(4, 2) }
            ]
        );
        assert_eq!(of(Collective::Scatter(root), 2, 2), [Step::Receive { peer: root, range: range(0, 2) }]);
        let counts: Arc<[usize]> = [1, 0, 2].into();
        let varied = of(Collective::AllGather(Chunks::Varied(counts)), 0, 3);
        assert_eq!(varied[2], Step::Broadcast { root: Rank(2), range: range(1, 2) });
        assert_eq!(varied.len(), 3);
    }

    #[test]
    fn all_to_all_receives_at_the_start_and_sends_from_behind_it() {
        let (send, receive) = ([1, 2, 3].into(), [4, 2, 0].into());
        let steps = of(Collective::AllToAll { send, receive }, 1, 12);
        assert_eq!(
            steps,
            [
                Step::Send { peer: Rank(0), range: range(6, 1) },
                Step::Receive { peer: Rank(0), range: range(0, 4) },
                Step::Send { peer: Rank(1), range: range(7, 2) },
                Step::Receive { peer: Rank(1), range: range(4, 2) },
                Step::Send { peer: Rank(2), range: range(9, 3) },
                Step::Receive { peer: Rank(2), range: range(6, 0) },
            ]
        );
    }

    #[test]
    fn wrong_calls_are_refused() {
        let refused = |collective, elements, expected: &str| {
            let error = plan(&collective, Rank(0), 3, elements).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        refused(Collective::AllGather(Chunks::Equal), 4, "do not divide into 3 equal chunks");
        refused(Collective::Broadcast(Rank(3)), 4, "the group has 3 ranks");
        refused(Collective::Barrier, 2, "a barrier's buffer has one element");
        let beyond = [Message { peer: Rank(1), range: range(3, 2) }].into();
        refused(Collective::Exchange { send: beyond, receive: [].into() }, 4, "4 elements");
        let contributions = Arc::new(kolo_schedule::tree::Contributions::one_each(3));
        refused(Collective::tree_sum(contributions.clone(), 4), 4, "in its own order");
        let readers = Readers::of_blocks([(4, [Rank(0)])]);
        refused(Collective::TreeSum { contributions, len: 4, readers }, 4, "in its own order");
    }
}
