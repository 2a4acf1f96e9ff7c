//! What every way to synchronize works on: one rank's layout, values, optimizer and step, and what observes
//! them.

use std::sync::Arc;

use kolo_comm::{Group, Rank};

use super::backup::copies::Backups;
use super::noise::NoiseProbe;
use super::overflow::Overflow;
use super::tuning::TuningObserver;
use super::undo::Undo;
use crate::buckets::BucketCaps;
use crate::config::Config;
use crate::error::Error;
use crate::last_step::LastStep;
use crate::loss_scaling::LossScaler;
use crate::membership::MembershipObserver;
use crate::processor::Processor;
use crate::same_settings::Stated;
use crate::shares::equal;
use crate::step::Step;
use crate::straggler::StragglerObserver;
use crate::sync::SyncTraits;
use crate::transform::Transforms;
use crate::verify::Verifier;
use crate::warning::Warnings;
use kolo_optim::{Layout, Optimizer, ParamSpec, SpanGroups, SpanId};

/// One rank's share of a model that is trained by steps over all ranks of a group.
pub(crate) struct Core {
    pub(crate) group: Arc<Group>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) values: Vec<f32>,
    pub(crate) step: Step,
    pub(crate) transforms: Transforms,
    pub(crate) optimizer: Box<dyn Optimizer>,
    pub(crate) groups: SpanGroups,
    /// For the gradient of a tensor that the optimizer needs whole and that comes in several buckets, or for a
    /// piece of a gradient.
    pub(crate) room: Vec<f32>,
    pub(crate) config: Config,
    /// Shards of a step, which stay what they were when the job began.
    pub(crate) shards: usize,
    /// Whether this rank is a summation server, whose values nobody keeps up, and which ranks of the group
    /// are.
    pub(crate) server: bool,
    pub(crate) servers: Arc<[bool]>,
    /// Whether the values are the job's.
    pub(crate) joined: bool,
    pub(crate) undo: Option<Undo>,
    /// Copies to which an elastic job goes back where a rank has something that dies with it.
    pub(crate) backups: Backups,
    /// Steps begun: of the last one some updates may be due.
    pub(crate) steps: u64,
    /// The last one that is complete.
    pub(crate) last: Option<LastStep>,
    /// The steps of the round of islands that ended last, or was to end; where updates are one step late
    /// those that ended when all were made.
    pub(crate) round: Vec<LastStep>,
    /// What those updates multiply the summed gradient by, and by what besides, as its transforms have
    /// decided.
    pub(crate) scale: f64,
    pub(crate) factor: f64,
    pub(crate) scaler: LossScaler,
    /// Whether updates have left values that are not finite.
    pub(crate) overflow: Overflow,
    /// What went wrong when [`Replica::latest`] could not say so.
    pub(crate) failure: Option<Error>,
    /// On rank 0 what the reduction kept for all shards when so many steps were done.
    pub(crate) gathered: Option<(u64, Vec<Vec<f32>>)>,
    /// What the program has given besides the configuration, and must be the same on all ranks.
    pub(crate) stated: Stated,
    /// The tensors that the last step did not use, and those of which the user knows that some step did not.
    pub(crate) unused: Vec<bool>,
    pub(crate) known_unused: Vec<bool>,
    pub(crate) warnings: Warnings,
    /// What this rank computes on, and what all did when that was last told to differ.
    pub(crate) processor: Processor,
    pub(crate) told_processors: Option<Vec<Processor>>,
    pub(crate) verifier: Verifier,
    pub(crate) stragglers: StragglerObserver,
    pub(crate) members: MembershipObserver,
    pub(crate) noise: NoiseProbe,
    pub(crate) tuning: TuningObserver,
}

impl Core {
    /// Before its ranks have come to one state.
    ///
    /// # Errors
    ///
    /// A setting is wrong, a group of parameters selects none (naming it), or memory cannot be had.
    pub(crate) fn new(
        group: &Arc<Group>,
        specs: Vec<ParamSpec>,
        values: Vec<f32>,
        config: Config,
        mut optimizer: Box<dyn Optimizer>,
    ) -> Result<Self, Error> {
        let layout = Arc::new(Layout::new(specs));
        assert_eq!(values.len(), layout.len(), "as many values as the tensors have elements");
        let shards = config.shards.unwrap_or(group.world_size());
        let servers: Arc<[bool]> = vec![false; group.world_size()].into();
        // A step of nothing, until the ranks have come to one state.
        let (nothing, shares) = (Arc::new(Layout::new(Vec::new())), equal(shards, group.world_size()));
        let groups = SpanGroups::new(&config.groups, &layout)?;
        if !config.groups.is_empty() {
            optimizer.set_groups(groups.settings())?;
        }
        optimizer.init(&layout);
        let refused = |problem| Error::ReductionRefused { problem };
        config.reduction.fits(&*optimizer, groups.settings()).map_err(refused)?;
        let caps = BucketCaps::of_mib(25.0);
        let noise = NoiseProbe::new(config.noise_scale, &layout);
        let overflow = Overflow::new(&layout, &values);
        Ok(Core {
            step: Step::new(
                group.clone(),
                nothing,
                &shares,
                servers.clone(),
                config.reduction.clone(),
                caps,
            )?,
            transforms: Transforms::named(&config.transforms, &layout)?,
            optimizer,
            groups,
            room: Vec::new(),
            overflow,
            layout,
            values,
            shards,
            server: group.is_server(),
            servers,
            joined: false,
            undo: None,
            backups: Backups::default(),
            steps: 0,
            last: None,
            round: Vec::new(),
            scale: 0.0,
            factor: 1.0,
            scaler: LossScaler::new(config.loss_scaling),
            failure: None,
            gathered: None,
            stated: Stated::default(),
            unused: Vec::new(),
            known_unused: Vec::new(),
            warnings: Warnings::default(),
            processor: Processor::here(),
            told_processors: None,
            verifier: Verifier::new(&config)?,
            stragglers: StragglerObserver::new(config.straggler, Vec::new(), [].into()),
            members: MembershipObserver::default(),
            noise,
            tuning: TuningObserver::default(),
            config,
            group: group.clone(),
        })
    }

    /// Properties of the way to synchronize.
    pub(crate) fn traits(&self) -> SyncTraits {
        self.config.sync.traits()
    }

    /// Makes the updates of the last step whose gradients are back; forgets the step if some are not.
    pub(crate) fn roll_back(&mut self) {
        self.failure = None;
        // What fails here has failed before.
        let _ = self.apply_outstanding();
        if self.step.give_up() {
            self.steps -= 1;
            if let Some(undo) = &mut self.undo {
                undo.revert(&mut self.values);
            }
        }
        if let Err(error) = self.transforms.take_back() {
            self.failure = Some(error);
        }
    }

    /// Begins the next pass of the core's own step, and returns its number.
    ///
    /// # Errors
    ///
    /// Another pass is under way, this rank has no more shards in this step, or an earlier update has failed.
    pub(crate) fn begin_pass(&mut self, loss: f64, count: f64) -> Result<u64, Error> {
        self.apply_outstanding()?;
        let shards = self.step.shares().iter().sum();
        self.verifier.begin(&self.group, &self.layout, &self.values, shards)?;
        self.step.begin_shard(loss, count, self.step_number())
    }

    /// The ranks that train: all but summation servers, among them rank 0.
    pub(crate) fn workers(&self) -> Vec<Rank> {
        (0..self.servers.len()).filter(|rank| !self.servers[*rank]).map(Rank).collect()
    }

    /// The ranks that are summation servers.
    pub(crate) fn server_ranks(&self) -> Vec<Rank> {
        (0..self.servers.len()).filter(|rank| self.servers[*rank]).map(Rank).collect()
    }

    /// All values of the model after all steps so far.
    ///
    /// # Errors
    ///
    /// The last step's reduction failed (naming the rank).
    pub(crate) fn values(&mut self) -> Result<&[f32], Error> {
        self.apply_outstanding()?;
        Ok(&self.values)
    }

    /// The values of one tensor after all steps so far: waits for the buckets it is in, not for the others.
    /// Where its reduction has failed they are those before the step, and the next call that can fail says
    /// why.
    pub(crate) fn latest(&mut self, id: SpanId) -> &[f32] {
        if let Err(error) = self.apply_tensor(id) {
            self.failure.get_or_insert(error);
        }
        &self.values[self.layout.span(id).range()]
    }

    /// Tells the user what concerns the job; rank 0 speaks.
    pub(crate) fn warn(&mut self, warning: crate::warning::Warning) {
        if self.group.rank() == Rank(0) {
            self.warnings.add(warning);
        }
    }

    /// The ranks that compute a shard.
    pub(crate) fn holders(&self, shard: usize) -> Vec<Rank> {
        let shares = self.step.shares().iter();
        let ends = shares.scan(0, |end, share| {
            *end += share;
            Some(*end)
        });
        ends.enumerate().find(|(_, end)| shard < *end).map(|(rank, _)| Rank(rank)).into_iter().collect()
    }
}
