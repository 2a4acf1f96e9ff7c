//! The core, which every way to synchronize runs: one rank's layout, values, optimizer, step and observers.

use std::sync::Arc;

use kolo_comm::{Group, Rank};

use super::backup::copies::Backups;
use super::first_values::FirstValues;
use super::handover::progress::Handover;
use super::notes::JobState;
use super::offload;
use super::state_share::StateShare;
use super::tuning_observer::TuningObserver;
use super::weights::Weights;
use crate::config::Config;
use crate::replica::straggler_observer::StragglerObserver;
use crate::same_settings::Stated;
use crate::sharding::Sharding;
use crate::sync::SyncTraits;
use crate::verify::Verifier;
use crate::warning::Warnings;
use kolo_comm::Processor;
use kolo_optim::{Layout, Optimizer, ParamSpec, SpanGroups, SpanId, Turns};
use kolo_reduction::transform::Transforms;
use kolo_reduction::{BucketCaps, Error};
use kolo_sampler::equal;
use kolo_step::{LastStep, LossScaler, MembershipObserver, NoiseProbe, Step};
use kolo_values::Loan;

/// One rank's share of a model that is trained by steps over all ranks of a group.
pub struct Core {
    /// Settings.
    pub config: Config,
    /// Ranks that train together, and this one among them.
    pub ranks: Ranks,
    /// Values and their optimizer.
    pub weights: Weights,
    /// The step that runs, or comes next.
    pub step: Step,
    /// Gradient transforms.
    pub transforms: Transforms,
    /// Scale of the losses.
    pub scaler: LossScaler,
    /// Steps so far.
    pub progress: Progress,
    /// Copies to which an elastic job goes back if a rank keeps state that dies with it.
    pub backups: Backups,
    /// On rank 0, the number of steps done at the last gathering, with all notes and the other ranks' arrays
    /// then.
    pub gathered: Option<(u64, JobState)>,
    /// Progress of this rank's part of the state, where it is divided.
    pub(crate) handover: Handover,
    /// Observers of the steps.
    pub observers: Observers,
    /// Settings that the program stated, and warnings for it.
    pub notices: Notices,
}

kolo_comm::opaque_debug!(Core { ranks, weights, progress });

/// Ranks that train together.
#[derive(Debug)]
pub struct Ranks {
    pub group: Arc<Group>,
    /// Number of shards of a step; it never changes within a job.
    pub shards: usize,
    /// True if this rank is a summation server, whose values are not updated.
    pub server: bool,
    /// True for each rank of the group that is a summation server.
    pub(crate) servers: Arc<[bool]>,
    /// Processor that this rank computes on.
    pub processor: Processor,
    /// Processors of all ranks at the last warning that they differ.
    pub told_processors: Option<Vec<Processor>>,
}

/// Progress of training.
#[derive(Debug, Default)]
pub struct Progress {
    /// True if the values are the job's, not this rank's initial ones.
    pub joined: bool,
    /// Number of steps begun; updates of the last one may be pending.
    pub steps: u64,
    /// Last complete step.
    pub last: Option<LastStep>,
    /// Steps of the round of islands that ended last, or was to end; where updates are one step late, the
    /// steps that completed when all updates were applied.
    pub(crate) round: Vec<LastStep>,
    /// Error that [`Core::latest`] could not return.
    pub failure: Option<Error>,
}

/// Observers of steps.
#[derive(Debug)]
pub struct Observers {
    pub verifier: Verifier,
    pub stragglers: StragglerObserver,
    pub members: MembershipObserver,
    pub noise: NoiseProbe,
    pub(crate) tuning: TuningObserver,
}

/// Settings that the program stated, and warnings for it.
#[derive(Debug, Default)]
pub struct Notices {
    /// Settings outside the configuration that must be the same on all ranks.
    pub stated: Stated,
    /// True for each tensor that a warning has already named as unused in some step.
    pub(crate) known_unused: Vec<bool>,
    pub warnings: Warnings,
}

impl Core {
    /// Creates a core whose ranks do not share one state yet.
    ///
    /// # Errors
    ///
    /// A setting is invalid, a parameter group selects no parameter (naming the group), or memory allocation
    /// failed.
    pub fn new(
        group: &Arc<Group>,
        specs: Vec<ParamSpec>,
        values: impl Into<FirstValues>,
        config: Config,
        optimizer: Box<dyn Optimizer>,
    ) -> Result<Self, Error> {
        let mut optimizer = offload::placed(optimizer, &config)?;
        let (layout, values) = (Arc::new(Layout::new(specs)), values.into());
        assert_eq!(values.len(), layout.len(), "as many values as the tensors have elements");
        let shards = config.shards.unwrap_or(group.world_size());
        let servers: Arc<[bool]> = vec![false; group.world_size()].into();
        let groups = SpanGroups::new(&config.groups, &layout)?;
        let turns = Turns::new(&config.turns, &layout)?;
        if !config.groups.is_empty() {
            optimizer.set_groups(groups.settings())?;
        }
        let sharded = !matches!(config.sharding, Sharding::Nothing | Sharding::Host);
        let ranks: Vec<Rank> = (0..group.world_size()).map(Rank).collect();
        let share = sharded
            .then(|| StateShare::new(group.clone(), &layout, optimizer.scope(), &ranks, config.redundancy));
        let initial = match values {
            FirstValues::Parts(_, print) => Some(print),
            FirstValues::Whole(_) => None,
        };
        // Where values are still to be divided, the state takes the memory of those that are freed.
        let is_divided =
            config.sharding == Sharding::Parameters && (group.world_size() > 1 || config.elastic);
        match is_divided && initial.is_none() {
            true => optimizer.init(&Layout::new(Vec::new())),
            false => optimizer.init(share.as_ref().map_or(&*layout, StateShare::layout)),
        }
        offload::check(&mut *optimizer, group.rank())?;
        let refused = |problem| Error::ReductionRefused { problem };
        config.reduction.fits(&*optimizer, groups.settings()).map_err(refused)?;
        // A step without tensors, until the ranks share one state.
        let (nothing, shares) = (Arc::new(Layout::new(Vec::new())), equal(shards, group.world_size()));
        let (caps, reduction) = (BucketCaps::of_mib(25.0), config.reduction.clone());
        let step = Step::new(group.clone(), nothing, &shares, servers.clone(), reduction, caps, None)?;
        Ok(Core {
            step,
            transforms: Transforms::named(&config.transforms, &layout)?,
            scaler: LossScaler::new(config.loss_scaling),
            observers: Observers {
                verifier: Verifier::new(&config)?,
                stragglers: StragglerObserver::new(config.straggler, Vec::new(), [].into()),
                members: MembershipObserver::default(),
                noise: NoiseProbe::new(config.noise_scale, &layout),
                tuning: TuningObserver::default(),
            },
            ranks: Ranks {
                group: group.clone(),
                shards,
                server: group.is_server(),
                servers,
                processor: Processor::here(),
                told_processors: None,
            },
            weights: Weights::new(layout, values, optimizer, groups, turns, share),
            progress: Progress::default(),
            backups: Backups::default(),
            gathered: None,
            handover: Handover { initial, ..Handover::default() },
            notices: Notices::default(),
            config,
        })
    }

    /// Properties of the way to synchronize.
    pub fn traits(&self) -> SyncTraits {
        self.config.sync.traits()
    }

    /// Applies the last step's updates whose gradients are back; discards the step if some are missing.
    pub fn roll_back(&mut self) {
        self.progress.failure = None;
        if self.step.outstanding() > 0 {
            self.weights.withdraw();
        }
        // An error here has been returned before.
        let _ = self.apply_outstanding();
        let rolled_back = match self.handover.ending.take() {
            Some(ending) => self.roll_back_ending(ending),
            None if self.handover.ready.is_some() => Ok(()),
            None => {
                if self.step.give_up() {
                    self.progress.steps -= 1;
                    if let Some(undo) = &mut self.weights.undo {
                        undo.revert(&mut self.weights.values);
                    }
                }
                self.transforms.take_back()
            }
        };
        if let Err(error) = rolled_back {
            self.progress.failure = Some(error);
        }
    }

    /// Begins the next pass of the core's own step, and returns the pass's number. Errors: another pass is
    /// under way, this rank has no more shards in this step, or an earlier update has failed.
    pub(crate) fn begin_pass(&mut self, loss: f64, count: f64) -> Result<u64, Error> {
        self.apply_outstanding()?;
        self.begin_trace(self.step.shares().iter().sum())?;
        self.step.begin_shard(loss, count, self.step_number())
    }

    /// Writes the values with which the first step of `shards` shards begins to the trace of `kolo verify`,
    /// if there is one. May be called repeatedly, before a step has changed anything.
    ///
    /// # Errors
    ///
    /// Names the file that cannot be written.
    pub fn begin_trace(&mut self, shards: usize) -> Result<(), Error> {
        if !self.observers.verifier.is_to_begin(&self.ranks.group) {
            return Ok(());
        }
        let prints = self.prints()?;
        self.observers.verifier.begin(&self.ranks.group, &self.weights.layout, prints, shards)
    }

    /// Workers: all ranks but summation servers, among them rank 0.
    pub fn workers(&self) -> Vec<Rank> {
        (0..self.ranks.servers.len()).filter(|rank| !self.ranks.servers[*rank]).map(Rank).collect()
    }

    /// Summation servers.
    pub(crate) fn server_ranks(&self) -> Vec<Rank> {
        (0..self.ranks.servers.len()).filter(|rank| self.ranks.servers[*rank]).map(Rank).collect()
    }

    /// All values of the model after all steps so far. Where values are divided it is a collective, which
    /// gathers them all. Fails if the last step's reduction failed (naming the rank).
    pub fn values(&mut self) -> Result<&[f32], Error> {
        self.apply_outstanding()?;
        if let Some(divided) = self.weights.divided.clone() {
            self.gather_all(&divided)?;
            return Ok(&self.weights.gathered);
        }
        Ok(&self.weights.values)
    }

    /// Values of one tensor after all steps so far. Waits only for the buckets that hold the tensor. If
    /// their reduction failed, the values are those before the step, and the next fallible call returns the
    /// error.
    pub fn latest(&mut self, id: SpanId) -> &[f32] {
        if let Err(error) = self.apply_tensor(id) {
            self.progress.failure.get_or_insert(error);
        }
        if let Some(divided) = self.divided(id) {
            self.weights.gathered = divided.gather_or_nan(id);
            return &self.weights.gathered;
        }
        &self.weights.values[self.weights.layout.span(id).range()]
    }

    /// Lends the values of one tensor after all steps so far, as [`Core::latest`] returns them; `None` if
    /// they are to be copied.
    pub fn lend(&mut self, id: SpanId) -> Option<Loan> {
        if self.weights.share.is_some() {
            return None;
        }
        self.latest(id);
        self.weights.values.lend(id)
    }

    /// Adds a warning about the job to the next report, on rank 0 only.
    pub fn warn(&mut self, warning: crate::warning::Warning) {
        if self.ranks.group.rank() == Rank(0) {
            self.notices.warnings.add(warning);
        }
    }

    /// Ranks that compute a shard.
    pub(crate) fn holders(&self, shard: usize) -> Vec<Rank> {
        let shares = self.step.shares().iter();
        let ends = shares.scan(0, |end, share| {
            *end += share;
            Some(*end)
        });
        ends.enumerate().find(|(_, end)| shard < *end).map(|(rank, _)| Rank(rank)).into_iter().collect()
    }
}
