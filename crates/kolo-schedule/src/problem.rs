//! A problem is the input of an algorithm: an operation, the ranks, and the number of elements.

use crate::operation::Operation;
use crate::rank::Rank;
use crate::schedule::{Range, Source, Step};
use crate::topology::Topology;
use crate::tree::Contributions;

/// Input from which an algorithm builds one rank's schedule.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    /// Operation to perform.
    pub operation: &'a Operation,
    /// Rank whose schedule is built.
    pub rank: Rank,
    /// Number of elements in one part; for operations that do not reduce, in this rank's whole buffer.
    pub len: usize,
    /// Parts that each rank contributes to a reduction.
    pub contributions: &'a Contributions,
    /// Node of every rank; the ranks of a node share memory.
    pub topology: &'a Topology,
    /// Maximum message length, in elements ([`Network::longest_message`](crate::Network::longest_message)).
    pub segment: usize,
}

impl Problem<'_> {
    /// Returns the number of ranks.
    pub fn world(&self) -> usize {
        self.contributions.world()
    }

    /// Returns the same problem from the view of another rank. Returns `None` if this rank cannot know it:
    /// in an all-to-all or an exchange each rank knows only its own messages.
    pub fn seen_by(&self, rank: Rank) -> Option<Self> {
        let len = match self.operation {
            // The root's buffer has one chunk per rank; each other rank's buffer is one chunk.
            Operation::Gather(root) | Operation::Scatter(root) => {
                let each = if self.rank == *root { self.len / self.world() } else { self.len };
                if rank == *root { each * self.world() } else { each }
            }
            Operation::AllToAll { .. } | Operation::Exchange { .. } if rank != self.rank => return None,
            _ => self.len,
        };
        Some(Problem { rank, len, ..self.clone() })
    }

    /// Returns an error unless each rank contributes one subtree and all subtrees have the same size.
    /// Pairwise additions of neighbors are then those of the tree, for any number of ranks.
    pub(crate) fn one_subtree_each(&self) -> Result<(), &'static str> {
        let size = self.contributions.one_subtree_each();
        size.map(|_| ()).ok_or("it needs an equal, power-of-two number of shards on every rank")
    }

    /// Returns an error unless each rank contributes at least one part.
    pub(crate) fn every_rank_contributes(&self) -> Result<(), &'static str> {
        match (0..self.world()).any(|rank| self.contributions.of(Rank(rank)).is_empty()) {
            true => Err("it needs at least one shard on every rank"),
            false => Ok(()),
        }
    }

    /// Returns the step that adds a rank's parts into part 0, for algorithms that send them as one value.
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
