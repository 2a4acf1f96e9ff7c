//! What an algorithm is: a pure function from a problem to one rank's schedule.

use crate::cost::Cost;
use crate::operation::Operation;
use crate::rank::Rank;
use crate::schedule::{Range, Schedule, Source, Step};
use crate::topology::Topology;
use crate::tree::Contributions;

/// What an algorithm needs to know.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    /// What is to be done.
    pub operation: &'a Operation,
    /// The rank whose schedule is wanted.
    pub rank: Rank,
    /// Elements in one part; for all operations but reductions, of the whole buffer.
    pub len: usize,
    /// Who contributes what to a reduction.
    pub contributions: &'a Contributions,
    /// Who shares memory with whom.
    pub topology: &'a Topology,
    /// Largest message, in elements.
    pub segment: usize,
}

impl Problem<'_> {
    pub(crate) fn world(&self) -> usize {
        self.contributions.world()
    }

    /// Whether each rank contributes one subtree and all are of one size: then pairwise additions of neighbours are those
    /// of the tree, at any number of ranks.
    pub(crate) fn one_subtree_each(&self) -> Result<(), &'static str> {
        let node = |rank: usize| self.contributions.of(Rank(rank)).first().copied();
        let size = node(0).map_or(0, |node| node.count);
        let one = |rank| self.contributions.of(Rank(rank)).len() == 1;
        let equal = (0..self.world()).all(|rank| {
            one(rank) && node(rank).is_some_and(|node| node.count == size && node.first == rank * size)
        });
        if equal { Ok(()) } else { Err("it needs an equal, power-of-two number of shards on every rank") }
    }

    /// Whether each rank contributes something.
    pub(crate) fn something_each(&self) -> Result<(), &'static str> {
        match (0..self.world()).any(|rank| self.contributions.of(Rank(rank)).is_empty()) {
            true => Err("it needs at least one shard on every rank"),
            false => Ok(()),
        }
    }

    /// The step that adds a rank's own parts into part 0, for algorithms in which a rank's contribution travels as one
    /// value.
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

/// A way to do some of the operations.
#[derive(Debug)]
pub struct Algorithm {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it costs and when to take it, in one line.
    pub about: &'static str,
    /// The operations it does, by [`Operation::name`].
    pub operations: &'static [&'static str],
    /// Whether it adds in the order of the tree, so that the result does not depend on the number of ranks.
    pub keeps_tree: bool,
    /// Whether it adds all contributions at once, so that 16-bit floats are rounded once.
    pub adds_at_once: bool,
    /// Whether it can solve this problem, which is one of its operations; otherwise why not.
    pub supports: fn(&Problem<'_>) -> Result<(), &'static str>,
    /// What it costs.
    pub cost: fn(&Problem<'_>) -> Cost,
    /// The schedule of one rank.
    pub build: fn(&Problem<'_>) -> Schedule,
}

impl Algorithm {
    /// Whether it does this operation at all, be it not on every group.
    pub fn does(&self, operation: &Operation) -> bool {
        self.operations.contains(&operation.name())
    }
}
