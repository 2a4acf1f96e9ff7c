//! What one reduction says.

use std::fmt;

use kolo_comm::Group;

use crate::buckets::Bucket;
use crate::error::Error;
use crate::shares::Assignment;
use kolo_optim::Layout;

/// The reduction of one bucket, step after step.
///
/// In each step: for every one of this rank's shards contributions ([`Reduction::add`],
/// [`Reduction::add_nothing`]) and [`Reduction::end_shard`]; then [`Reduction::start`]; then, as often as one
/// likes, [`Reduction::is_over`] and [`Reduction::wait`]; [`Reduction::result`]; and [`Reduction::reset`].
/// All but what it starts runs on the training thread.
///
/// What it gives must be the same bits on all ranks, whatever the number of ranks, and however spans are cut
/// into buckets: slices begin at multiples of [`BLOCK`](crate::BLOCK) elements of their span. Slices of a
/// [`Kind::Statistic`](crate::Kind::Statistic) are always summed exactly.
pub trait Reduction: Send {
    /// Takes a contribution to elements `offset ..` of the bucket in the shard whose pass is under way: the
    /// first one to them, or a further one, which is to be added.
    fn add(&mut self, offset: usize, gradient: &[f32], first: bool);

    /// No contribution has come to elements `offset .. offset + len` in the shard whose pass is over: their
    /// gradient is zero.
    fn add_nothing(&mut self, offset: usize, len: usize);

    /// All elements of a shard, which is number `shard` of the job's, are there.
    fn end_shard(&mut self, shard: usize);

    /// All shards of this rank are there: starts to combine them with those of `group`, or without one among
    /// themselves. What goes wrong is said by [`Reduction::wait`].
    fn start(&mut self, group: Option<&Group>, assignment: &Assignment);

    /// Whether what was started is over, and has not been waited for.
    fn is_over(&mut self) -> bool;

    /// Waits for the other ranks. Returns how many seconds the collectives took; nothing if they have been
    /// waited for already.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), now or before ([`Error::Lost`]).
    fn wait(&mut self) -> Result<Option<f64>, Error>;

    /// What the optimizer sees, of all shards, when it has been waited for: one value for each element of the
    /// bucket.
    fn result(&mut self) -> &mut [f32];

    /// A new step begins.
    fn reset(&mut self);

    /// What it keeps from step to step for each of this rank's shards, in their order: one value for each
    /// element of the bucket. Kolo saves it in checkpoints, hands it over where shards move, and carries it
    /// along where buckets are cut anew.
    fn residuals(&mut self) -> &mut [Vec<f32>] {
        &mut []
    }
}

/// What a reduction is made for.
pub struct Context<'a> {
    /// The ranks that train together; buffers come from here.
    pub group: &'a Group,
    /// The model's tensors.
    pub layout: &'a Layout,
    /// What is reduced.
    pub bucket: &'a Bucket,
    /// Who has which shards.
    pub assignment: &'a Assignment,
}

/// A reduction as the user chooses it: an entry of [`REDUCTIONS`](super::REDUCTIONS), or one of the user's
/// own.
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in one line, with its source.
    pub about: &'static str,
    /// Whether it keeps something from step to step ([`Reduction::residuals`]): what the optimizer sees is
    /// not the sum itself then, and a worker that dies takes a part of it along.
    pub keeps_residuals: bool,
    /// Makes one for a bucket.
    ///
    /// # Errors
    ///
    /// Memory cannot be had.
    pub build: fn(&Context<'_>) -> Result<Box<dyn Reduction>, Error>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reduction {}", self.name)
    }
}

/// Equal by name.
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
