//! Traits of a reduction.

use std::fmt;
use std::ops::Range;

use kolo_comm::schedule::WireCost;
use kolo_comm::{Buffer, Deferred, Group, Readers, SumParts, Timing};

use super::samples::SampleCount;
use crate::buckets::Bucket;
use crate::error::Error;
use kolo_optim::{GroupSettings, Layout, Optimizer, Settings};
use kolo_sampler::Assignment;

/// Reduction of a job's buckets: makes a [`Reduction`] for each of them. An entry of
/// [`REDUCTIONS`](super::REDUCTIONS), or one of the user's own.
pub trait Reducer: Send + Sync + 'static {
    /// Name in errors and in the comparison of the ranks' settings; the default is the type's name.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// Settings that must be the same on all ranks; others are not compared.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// Names of the state that its reductions keep for each shard from step to step
    /// ([`Reduction::shard_state`]). If there is any, the optimizer does not see the sum itself.
    fn shard_state(&self) -> &'static [&'static str] {
        &[]
    }

    /// Names of the state that its reductions keep from step to step and that is the same on all ranks
    /// ([`Reduction::common_state`]).
    fn common_state(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns true if the optimizer sees the sum of all gradients, except for rounding, as the noise scale
    /// needs it.
    fn is_sum(&self) -> bool {
        false
    }

    /// Returns the cost on the wire, of which `kolo plan` makes predictions; `None` if it is not known. The
    /// actual bytes are those of [`Reduction::wire_bytes`].
    fn wire_cost(&self) -> Option<WireCost> {
        None
    }

    /// Upper bound of contributions: if the sum of their magnitudes for each element of a tensor is below
    /// it, the result and its squares are finite. If it is not, which does not happen in training that goes
    /// well, Kolo checks the whole result before a parameter changes.
    fn safe_below(&self) -> f32 {
        // 2⁴⁰: for rules that multiply two of them, or their norms.
        1.0e12
    }

    /// Returns true if a tensor must be in one bucket as a whole, however large it is.
    fn needs_whole_tensors(&self) -> bool {
        false
    }

    /// Refuses an optimizer, by its name and settings, that does not work with this reduction. Called with
    /// the settings of each group of parameters.
    ///
    /// # Errors
    ///
    /// The reason and the remedy, in one sentence.
    fn check(&self, _optimizer: &str, _settings: &Settings) -> Result<(), String> {
        Ok(())
    }

    /// Makes the reduction of a bucket. Fails if memory runs out.
    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error>;
}

/// The reduction of one bucket, step after step.
///
/// In each step: for every one of this rank's shards contributions ([`Reduction::add`],
/// [`Reduction::add_nothing`]) and [`Reduction::end_shard`]; then [`Reduction::start`], or if it
/// [`is_deferred`](Reduction::is_deferred) [`Reduction::defer`] and [`Reduction::deferred`]; then any number
/// of calls of [`Reduction::is_over`] and [`Reduction::wait`]; [`Reduction::result`]; and
/// [`Reduction::reset`]. All but the started work runs on the training thread.
///
/// With scaled losses (`Config::loss_scaling`) it sees gradients without the scale, unless it is a sum
/// ([`Reducer::is_sum`]) without state, for which the scale makes no difference.
///
/// The result must be the same bits on all ranks, for any number of ranks and any cut of spans into buckets.
/// Slices begin at multiples of [`BLOCK`](crate::BLOCK) elements of their span. Slices of a
/// [`Kind::Statistic`](kolo_optim::Kind::Statistic) are always summed exactly.
pub trait Reduction: Send {
    /// Takes a contribution to elements `offset ..` of the bucket in the shard whose pass is running: the
    /// first one to them, or a further one, which is to be added.
    fn add(&mut self, offset: usize, gradient: &[f32], first: bool);

    /// Sets the gradient of elements `offset .. offset + len` to zero in the shard whose pass is over: no
    /// contribution has come to them.
    fn add_nothing(&mut self, offset: usize, len: usize);

    /// Ends a shard: all of its elements are complete.
    fn end_shard(&mut self, shard: FinishedShard);

    /// Starts to combine the shards of this rank, which are complete, with those of `group`, or without a
    /// group among themselves. [`Reduction::wait`] returns the error.
    fn start(&mut self, group: Option<&Group>, assignment: &Assignment, step: &ReadyStep);

    /// Returns true if nothing is started in the current step, because the sum is deferred to its reader:
    /// then this rank's part of it goes to [`Reduction::defer`]. The same on all ranks.
    fn is_deferred(&self) -> bool {
        false
    }

    /// Returns this rank's part of a deferred sum, in place of [`Reduction::start`], if
    /// [`Reduction::is_deferred`]. No data is sent, so there is no hurry: when all passes are over the ranks
    /// exchange the places of the parts of all buckets at once, and the sum comes by
    /// [`Reduction::deferred`].
    fn defer(&mut self, _assignment: &Assignment) -> Option<SumParts<f32>> {
        None
    }

    /// Takes the deferred sum, once all ranks have announced their parts.
    fn deferred(&mut self, _sum: Deferred<f32>, _announced: Timing) {}

    /// Returns true if the started work is over, and has not been waited for.
    fn is_over(&mut self) -> bool;

    /// Waits for the other ranks. Returns the time in which the collectives ran; `None` if they have been
    /// waited for already.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), now or before ([`Error::Lost`]).
    fn wait(&mut self) -> Result<Option<Timing>, Error>;

    /// The gradient of all shards for the optimizer, after [`Reduction::wait`]: one value for each element
    /// of the bucket.
    fn result(&mut self) -> &mut [f32];

    /// Some elements of [`Reduction::result`], for a caller that reads each of them once and in no other
    /// way. The result lies in `room`, which has that length, or in this reduction.
    fn read_once<'a>(&'a mut self, elements: Range<usize>, _room: &'a mut [f32]) -> &'a [f32] {
        &self.result()[elements]
    }

    /// Announces that from the next step on the result is read by [`Reduction::read_once`] wherever
    /// possible, so that sums may be deferred to the reader. Called in the same step on all ranks.
    fn will_be_read_once(&mut self) {}

    /// Returns true if a shard keeps late contributions, which come after elements `offset ..` have been
    /// started ([`Reduction::keep_late`]), with its other state. Otherwise their sum over all shards is
    /// added to the result ([`Reduction::add_late`]). The same on all ranks; called after
    /// [`Reduction::wait`].
    fn keeps_late(&self, _offset: usize) -> bool {
        false
    }

    /// Keeps a late contribution to elements `offset ..` of this rank's shard `own`, counted from 0.
    fn keep_late(&mut self, _own: usize, _offset: usize, _gradient: &[f32]) {}

    /// Adds the sum over all shards of the late contributions to elements `offset ..`.
    fn add_late(&mut self, offset: usize, sum: &[f32]) {
        let result = &mut self.result()[offset..offset + sum.len()];
        result.iter_mut().zip(sum).for_each(|(result, late)| *result += late);
    }

    /// Lends the buffer of the result, which has been read for the last time in this step, for other data of
    /// as many elements as the bucket has. `None` if there is no such buffer.
    fn lend(&mut self) -> Option<Buffer<f32>> {
        None
    }

    /// Takes back the buffer that it has lent.
    fn take_back(&mut self, _buffer: Buffer<f32>) {}

    /// Prepares for a new step.
    fn reset(&mut self);

    /// Bytes on the wire for one shard's gradient, if they are not four for each element.
    fn wire_bytes(&self) -> Option<usize> {
        None
    }

    /// State of each of this rank's shards, in their order, for each name of [`Reducer::shard_state`]: one
    /// value for each element of the bucket. Kolo saves it in checkpoints, transfers it when shards move,
    /// copies it when buckets are cut anew, and restores it after a skipped step.
    fn shard_state(&mut self) -> Vec<&mut [Vec<f32>]> {
        Vec::new()
    }

    /// State that is the same on all ranks, for each name of [`Reducer::common_state`]: one value for each
    /// element of the bucket. Kolo saves it in checkpoints, sends it to ranks that join, copies it when
    /// buckets are cut anew, and restores it after a skipped step.
    fn common_state(&mut self) -> Vec<&mut [f32]> {
        Vec::new()
    }
}

/// A shard whose pass is over.
#[derive(Clone, Copy, Debug)]
pub struct FinishedShard {
    /// Number of the shard in the job, from 0.
    pub number: usize,
    /// The step, from 0; steps that were skipped (`StepReport::skipped`) are not counted.
    pub step: u64,
    /// Number of samples, or of the items that the loss counts, over which the gradient is summed.
    pub count: f64,
}

/// A step in which all shards of this rank are complete.
#[derive(Clone, Debug)]
pub struct ReadyStep {
    /// Number of the step, counted as [`FinishedShard::step`].
    pub number: u64,
    /// Divisor of the sum over all shards. A reduction that keeps a part of a gradient for the next step
    /// keeps it as a part of the mean, because the next step may have another number of samples.
    pub samples: SampleCount,
    /// Ranks that read the result, or each run of its elements. A reduction may give it to all.
    pub readers: Readers,
}

/// Surroundings of a reduction that is to be made.
pub struct Context<'a> {
    /// The ranks that train together; buffers come from here.
    pub group: &'a Group,
    /// The model's tensors.
    pub layout: &'a Layout,
    /// The bucket to be reduced.
    pub bucket: &'a Bucket,
    /// Distribution of the shards among the ranks.
    pub assignment: &'a Assignment,
}

kolo_comm::opaque_debug!(Context<'_> { group, bucket });

impl dyn Reducer {
    /// Checks, as [`Reducer::check`] does, the settings of an optimizer and those that differ in its groups.
    ///
    /// # Errors
    ///
    /// As [`Reducer::check`]; for a group the error names it.
    pub fn fits(&self, optimizer: &dyn Optimizer, groups: &[GroupSettings]) -> Result<(), String> {
        let (name, settings) = (optimizer.name(), optimizer.settings());
        self.check(name, &settings)?;
        for group in groups.iter().filter(|group| !group.is_frozen()) {
            let together = settings.clone().into_iter().chain(group.settings.clone()).collect();
            let problem = |problem| format!("{problem}, in the group of {} too", group.tensors);
            self.check(name, &together).map_err(problem)?;
        }
        Ok(())
    }

    /// Returns true if its reductions keep state from step to step, for a shard or on all ranks.
    pub fn keeps_state(&self) -> bool {
        !(self.shard_state().is_empty() && self.common_state().is_empty())
    }
}

/// Formats it as on the command line: `qsgd:bits=4,block=512,…`.
impl fmt::Display for dyn Reducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.settings();
        let colon = if settings.is_empty() { "" } else { ":" };
        write!(f, "{}{colon}{settings}", self.name())
    }
}

impl fmt::Debug for dyn Reducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reduction {self}")
    }
}

/// Equal by name and settings.
impl PartialEq for dyn Reducer {
    fn eq(&self, other: &Self) -> bool {
        (self.name(), self.settings()) == (other.name(), other.settings())
    }
}
