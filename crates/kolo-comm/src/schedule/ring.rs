//! Ring (Patarasuk & Yuan 2009): every rank sends to its successor only.
//!
//! N−1 rounds in which a chunk travels once round the ring and grows, N−1 rounds in which the finished chunks
//! travel round. Cost: 2(N−1) messages and 2(N−1)/N·n bytes a rank. Each chunk is added in ring order starting
//! behind its owner, so the bits depend on N: all ranks get the same bits, but not those of another world size.

use super::{Algorithm, Problem, Schedule, Source, Step, owned, pair};
use crate::rank::Rank;

pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "ring",
    about: "2(N-1) messages to one neighbour, 2(N-1)/N bytes; any N; bits depend on N",
    keeps_tree: false,
    supports: |contributions| match (0..contributions.world()).find(|&r| contributions.of(Rank(r)).is_empty())
    {
        Some(_) => Err("ring needs at least one shard on every rank"),
        None => Ok(()),
    },
    build: all_reduce,
};

fn all_reduce(problem: &Problem<'_>) -> Schedule {
    let (rank, world) = (problem.rank.0, problem.contributions.world());
    let chunks = owned(problem.len, world);
    let (next, previous) = (Rank((rank + 1) % world), Rank((rank + world - 1) % world));
    // Chunk number, counted backwards round the ring from this rank.
    let behind = |distance: usize| chunks[(rank + 2 * world - distance) % world];

    let mut steps: Vec<Step> = fold_own(problem).into_iter().collect();
    for round in 1..world {
        let (send, add) = (behind(round), behind(round + 1));
        if send.len > 0 {
            steps.push(Step::Send { to: next, part: 0, range: send });
        }
        if add.len > 0 {
            steps.push(Step::Reduce {
                range: add,
                sources: [Source::From(previous), Source::Own(0)].into(),
                program: pair(),
                complete: round == world - 1,
            });
        }
    }
    for round in 0..world.saturating_sub(1) {
        let (send, take) = (behind(round), behind(round + 1));
        if send.len > 0 {
            steps.push(Step::Send { to: next, part: 0, range: send });
        }
        if take.len > 0 {
            steps.push(Step::Receive { from: previous, range: take });
        }
    }
    Schedule { steps }
}

/// The step that folds a rank's own parts into part 0: a chunk travels as one value.
fn fold_own(problem: &Problem<'_>) -> Option<Step> {
    let nodes = problem.contributions.of(problem.rank);
    (nodes.len() > 1).then(|| Step::Reduce {
        range: super::Range { start: 0, len: problem.len },
        sources: (0..nodes.len()).map(Source::Own).collect(),
        program: crate::tree::fold(nodes).into(),
        complete: false,
    })
}
