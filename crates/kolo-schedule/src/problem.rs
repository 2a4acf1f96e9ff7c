//! A problem is what an algorithm is asked: an operation, on these ranks, on so many elements.

use crate::operation::Operation;
use crate::rank::Rank;
use crate::schedule::{Range, Source, Step};
use crate::topology::Topology;
use crate::tree::Contributions;

/// What an algorithm needs to know to build one rank's schedule.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    /// What is to be done.
    pub operation: &'a Operation,
    /// The rank whose schedule is wanted.
    pub rank: Rank,
    /// Elements in one part; for all operations but reductions, of this rank's whole buffer.
    pub len: usize,
    /// The parts that each rank contributes to a reduction.
    pub contributions: &'a Contributions,
    /// The ranks that share memory.
    pub topology: &'a Topology,
    /// Largest message, in elements ([`Network::longest_message`](crate::Network::longest_message)).
    pub segment: usize,
}

impl Problem<'_> {
    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.contributions.world()
    }

    /// The same problem as another rank sees it. None if this rank cannot know: in an all-to-all and in an
    /// exchange each rank names its own messages only.
    pub fn seen_by(&self, rank: Rank) -> Option<Self> {
        let len = match self.operation {
            // The root's buffer has a chunk for each rank, the others' are one chunk.
            Operation::Gather(root) | Operation::Scatter(root) => {
                let each = if self.rank == *root { self.len / self.world() } else { self.len };
                if rank == *root { each * self.world() } else { each }
            }
            Operation::AllToAll { .. } | Operation::Exchange { .. } if rank != self.rank => return None,
            _ => self.len,
        };
        Some(Problem { rank, len, ..self.clone() })
    }

    /// Refuses unless each rank contributes one subtree and all are of one size: then pairwise additions of
    /// neighbours are those of the tree, at any number of ranks.
    pub(crate) fn one_subtree_each(&self) -> Result<(), &'static str> {
        let size = self.contributions.one_subtree_each();
        size.map(|_| ()).ok_or("it needs an equal, power-of-two number of shards on every rank")
    }

    /// Refuses unless each rank contributes something.
    pub(crate) fn every_rank_contributes(&self) -> Result<(), &'static str> {
        match (0..self.world()).any(|rank| self.contributions.of(Rank(rank)).is_empty()) {
            true => Err("it needs at least one shard on every rank"),
            false => Ok(()),
        }
    }

    /// The step that adds a rank's own parts into part 0, for algorithms in which a rank's contribution
    /// travels as one value.
    pub(crate) fn fold_own(&self) -> Option<Step> {
        let nodes = self.contributions.of(self.rank);
        (nodes.len() > 1).then(|| Step::Reduce {
            range: Range { start: 0, len: self.len },
            sources: (0..nodes.len()).map(|part| Source::Own(part * self.len)).collect(),
            program: crate::tree::fold(nodes).into(),
            complete: false,
        })
    }
}
