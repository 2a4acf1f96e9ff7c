//! What one reduction says.

use std::fmt;
use std::ops::Range;

use kolo_comm::{Deferred, Group, SumParts, Timing};

use super::samples::SampleCount;
use crate::buckets::Bucket;
use crate::error::Error;
use crate::shares::Assignment;
use kolo_optim::{GroupSettings, Layout, Optimizer, Settings};

/// How the buckets of a job are reduced: makes a [`Reduction`] for each of them. An entry of
/// [`REDUCTIONS`](super::REDUCTIONS), or one of the user's own.
pub trait Reducer: Send + Sync + 'static {
    /// What it is called in errors and where the ranks' settings are compared: that of its type, unless it
    /// says otherwise.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// Its settings, which must be the same on all ranks; what it does not state is not compared.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// What its reductions keep for each shard from step to step ([`Reduction::shard_state`]), by name. What
    /// the optimizer sees is not the sum itself then.
    fn shard_state(&self) -> &'static [&'static str] {
        &[]
    }

    /// What its reductions keep from step to step that is the same on all ranks
    /// ([`Reduction::common_state`]), by name.
    fn common_state(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether what the optimizer sees is the sum of all gradients but for its rounding, as the noise scale
    /// needs it.
    fn is_sum(&self) -> bool {
        false
    }

    /// Where the magnitudes of all contributions to a tensor are together below this, what it gives is finite,
    /// and so are squares of that. Where they are not, which they are not in training that goes well, Kolo
    /// looks at all that it gives before a parameter changes.
    fn safe_below(&self) -> f32 {
        // 2⁴⁰: for rules that multiply two of them, or their norms.
        1.0e12
    }

    /// Whether a tensor must be in one bucket as a whole, however large it is.
    fn needs_whole_tensors(&self) -> bool {
        false
    }

    /// Refuses an optimizer of this name that it makes no sense with. Asked for the settings of each group of
    /// parameters.
    ///
    /// # Errors
    ///
    /// Why, in one sentence that says what to do.
    fn check(&self, _optimizer: &str, _settings: &Settings) -> Result<(), String> {
        Ok(())
    }

    /// Makes the reduction of a bucket.
    ///
    /// # Errors
    ///
    /// Memory cannot be had.
    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error>;
}

/// The reduction of one bucket, step after step.
///
/// In each step: for every one of this rank's shards contributions ([`Reduction::add`],
/// [`Reduction::add_nothing`]) and [`Reduction::end_shard`]; then [`Reduction::start`], or where it
/// [`is_lent`](Reduction::is_lent) [`Reduction::lend`] and [`Reduction::lent`]; then, as often as one likes,
/// [`Reduction::is_over`] and [`Reduction::wait`]; [`Reduction::result`]; and [`Reduction::reset`].
/// All but what it starts runs on the training thread.
///
/// Where losses are scaled ([`Config::loss_scaling`](crate::Config::loss_scaling)) it sees gradients without
/// the scale, unless it is a sum ([`Reducer::is_sum`]) that keeps nothing, and so has nothing to do with it.
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

    /// All elements of a shard are there.
    fn end_shard(&mut self, shard: FinishedShard);

    /// All shards of this rank are there: starts to combine them with those of `group`, or without one among
    /// themselves. What goes wrong is said by [`Reduction::wait`].
    fn start(&mut self, group: Option<&Group>, assignment: &Assignment, step: &ReadyStep);

    /// Whether in the step that runs nothing is started, because adding is left to the reader: then what this
    /// rank has is lent ([`Reduction::lend`]). It is the same on all ranks.
    fn is_lent(&self) -> bool {
        false
    }

    /// In the place of [`Reduction::start`], where [`Reduction::is_lent`]: what this rank gives to the sum.
    /// Nothing travels, so it need not set out early: when all passes are over the ranks tell each other at
    /// once what all buckets of a step lend, and the sum comes by [`Reduction::lent`].
    fn lend(&mut self, _assignment: &Assignment) -> Option<SumParts<f32>> {
        None
    }

    /// All ranks have lent what they have.
    fn lent(&mut self, _sum: Deferred<f32>, _told: Timing) {}

    /// Whether what was started is over, and has not been waited for.
    fn is_over(&mut self) -> bool;

    /// Waits for the other ranks. Returns when the collectives ran; nothing if they have been waited for
    /// already.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), now or before ([`Error::Lost`]).
    fn wait(&mut self) -> Result<Option<Timing>, Error>;

    /// What the optimizer sees, of all shards, when it has been waited for: one value for each element of the
    /// bucket.
    fn result(&mut self) -> &mut [f32];

    /// Some elements of [`Reduction::result`], for who reads each of them once and none of them otherwise.
    /// They lie in `room`, which has as many, or here.
    fn read_once<'a>(&'a mut self, elements: Range<usize>, _room: &'a mut [f32]) -> &'a [f32] {
        &self.result()[elements]
    }

    /// From the next step on what it gives is read by [`Reduction::read_once`] wherever possible, so that it
    /// may leave adding to the reader. It is the same step on all ranks.
    fn will_be_read_once(&mut self) {}

    /// Whether a shard keeps what it gets late, when elements `offset ..` have been started already
    /// ([`Reduction::keep_late`]), as it keeps whatever it has not said. Otherwise the sum of that over all
    /// shards is added to the result ([`Reduction::add_late`]). The same on all ranks; asked when it has been
    /// waited for.
    fn keeps_late(&self, _offset: usize) -> bool {
        false
    }

    /// A contribution to elements `offset ..` that has come late in this rank's shard `own`, counted from 0.
    fn keep_late(&mut self, _own: usize, _offset: usize, _gradient: &[f32]) {}

    /// What has come late for elements `offset ..`, summed over all shards.
    fn add_late(&mut self, offset: usize, sum: &[f32]) {
        let result = &mut self.result()[offset..offset + sum.len()];
        result.iter_mut().zip(sum).for_each(|(result, late)| *result += late);
    }

    /// A new step begins.
    fn reset(&mut self);

    /// Bytes in which one shard's gradient travels, if they are not four for each element.
    fn wire_bytes(&self) -> Option<usize> {
        None
    }

    /// What it keeps from step to step for each of this rank's shards, in their order, for each name of
    /// [`Reducer::shard_state`]: one value for each element of the bucket. Kolo saves it in checkpoints,
    /// hands it over where shards move, carries it along where buckets are cut anew, and brings it back after
    /// a step that is skipped.
    fn shard_state(&mut self) -> Vec<&mut [Vec<f32>]> {
        Vec::new()
    }

    /// What it keeps from step to step that is the same on all ranks, for each name of
    /// [`Reducer::common_state`]: one value for each element of the bucket. Kolo saves it in checkpoints,
    /// gives it to ranks that join, carries it along where buckets are cut anew, and brings it back after a
    /// step that is skipped.
    fn common_state(&mut self) -> Vec<&mut [f32]> {
        Vec::new()
    }
}

/// A shard whose pass is over.
#[derive(Clone, Copy, Debug)]
pub struct FinishedShard {
    /// Which of the job's, from 0.
    pub number: usize,
    /// The step, from 0; steps that were skipped ([`StepReport::skipped`](crate::StepReport::skipped)) are
    /// not counted.
    pub step: u64,
    /// Samples that its gradient is summed over, or whatever its loss counts.
    pub count: f64,
}

/// A step of which all shards of this rank are there.
#[derive(Clone, Debug)]
pub struct ReadyStep {
    /// Which one, counted as [`FinishedShard::step`].
    pub number: u64,
    /// What the sum over all shards will be divided by. A reduction that keeps something of a gradient for
    /// the next step keeps it as a part of the mean, because the next step may have other samples.
    pub samples: SampleCount,
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

impl dyn Reducer {
    /// As [`Reducer::check`], of the settings of an optimizer and of those that are others in its groups.
    ///
    /// # Errors
    ///
    /// As [`Reducer::check`]; of a group it says which.
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

    /// Whether its reductions keep anything from step to step, for a shard or on all ranks.
    pub fn keeps_state(&self) -> bool {
        !(self.shard_state().is_empty() && self.common_state().is_empty())
    }
}

/// As on the command line: `qsgd:bits=4,block=512,…`.
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
