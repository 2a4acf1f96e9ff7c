//! One worker's share of the model: flat parameters, the optimizer and the step. What a binding talks to.

mod assignment;
mod backup;
mod delayed;
mod elastic;
mod islands;
mod noise;
mod overflow;
mod report;
mod saved;
mod stale;
mod state_sync;
mod stepping;
mod tuning;
mod undo;
mod update;

use std::ops::Range;
use std::sync::Arc;

use kolo_comm::{Group, Rank};

use self::backup::Backups;
use self::delayed::Delay;
pub(crate) use self::islands::ISLAND_LOSS_SCALES;
use self::islands::{Islands, Plan, another};
use self::noise::NoiseProbe;
use self::overflow::Overflow;
pub use self::report::{Change, StepReport};
use self::stale::Stale;
use self::tuning::TuningObserver;
use self::undo::Undo;
use crate::buckets::{Bucket, BucketCaps};
use crate::config::Config;
use crate::error::Error;
use crate::last_step::LastStep;
use crate::loss_scaling::{LossScale, LossScaler};
use crate::membership::MembershipObserver;
use crate::processor::Processor;
use crate::same_settings::Stated;
use crate::shares::equal;
use crate::step::Step;
use crate::straggler::StragglerObserver;
use crate::transform::{GradientTransform, Transforms};
use crate::verify::Verifier;
use crate::warning::Warnings;
use kolo_optim::{Layout, Optimizer, ParamSpec, SpanGroups, SpanId};

/// A copy of the model that is trained together with those of other ranks.
///
/// A step's updates are made when somebody asks for the values: [`Replica::latest`] waits for one bucket
/// only, so that the next forward pass can begin while the gradients of later layers are still on the wire.
/// Everything else here waits for all.
pub struct Replica {
    /// Where servers hold the weights: what connects this rank with them. It ends before the group does.
    stale: Option<Stale>,
    group: Arc<Group>,
    layout: Arc<Layout>,
    values: Vec<f32>,
    step: Step,
    /// Where updates are one step late.
    delay: Option<Delay>,
    transforms: Transforms,
    optimizer: Box<dyn Optimizer>,
    groups: SpanGroups,
    /// For the gradient of a tensor that the optimizer needs whole and that comes in several buckets, or for a
    /// piece of a gradient.
    room: Vec<f32>,
    config: Config,
    /// Shards of a step, which stay what they were when the job began.
    shards: usize,
    /// Whether this rank is a summation server, whose values nobody keeps up, and which ranks of the group
    /// are.
    server: bool,
    servers: Arc<[bool]>,
    /// Whether the values are the job's.
    joined: bool,
    undo: Option<Undo>,
    /// Copies to which an elastic job goes back where a rank has something that dies with it.
    backups: Backups,
    /// Steps begun: of the last one some updates may be due.
    steps: u64,
    /// The last one that is complete.
    last: Option<LastStep>,
    /// The steps of the round of islands that ended last, or was to end; where updates are one step late
    /// those that ended when all were made.
    round: Vec<LastStep>,
    /// What those updates multiply the summed gradient by, and by what besides, as its transforms have
    /// decided.
    scale: f64,
    factor: f64,
    scaler: LossScaler,
    /// Whether updates have left values that are not finite.
    overflow: Overflow,
    /// What went wrong when [`Replica::latest`] could not say so.
    failure: Option<Error>,
    /// On rank 0 what the reduction kept for all shards when so many steps were done.
    gathered: Option<(u64, Vec<Vec<f32>>)>,
    /// What the program has given besides the configuration, and must be the same on all ranks.
    stated: Stated,
    /// The tensors that the last step did not use, and those of which the user knows that some step did not.
    unused: Vec<bool>,
    known_unused: Vec<bool>,
    warnings: Warnings,
    /// What this rank computes on, and what all did when that was last told to differ.
    processor: Processor,
    told_processors: Option<Vec<Processor>>,
    verifier: Verifier,
    stragglers: StragglerObserver,
    members: MembershipObserver,
    noise: NoiseProbe,
    tuning: TuningObserver,
    /// Where islands synchronise rarely: those of this rank. Then this replica is that of their outer step.
    islands: Option<Islands>,
}

impl Replica {
    /// A replica of the model with these tensors, whose `values` follow one another in the same order,
    /// stepped by an optimizer of the table ([`named`](kolo_optim::named)) or by the caller's own.
    /// Afterwards all ranks have the values of rank 0; or, where some of them have trained before
    /// ([`Replica::regroup`]), theirs.
    ///
    /// # Errors
    ///
    /// The ranks hold different models (naming the parameter), a setting is wrong, a group of parameters
    /// selects none (naming it), or a collective failed.
    pub fn new(
        group: Arc<Group>,
        specs: Vec<ParamSpec>,
        values: Vec<f32>,
        config: &Config,
        optimizer: impl Optimizer,
    ) -> Result<Self, Error> {
        let mut replica = Self::apart(&group, specs, values, config, Box::new(optimizer))?;
        replica.join(group)?;
        replica.form_stale(0)?;
        Ok(replica)
    }

    /// A replica before it has come to one state with the other ranks.
    fn apart(
        group: &Arc<Group>,
        specs: Vec<ParamSpec>,
        values: Vec<f32>,
        config: &Config,
        optimizer: Box<dyn Optimizer>,
    ) -> Result<Self, Error> {
        assignment::check(config)?;
        let Plan { config, mut optimizer, islands } = Plan::new(config, group.world_size(), optimizer)?;
        let stale = Stale::new(&config, &*optimizer)?;
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
        Ok(Replica {
            step: Step::new(
                group.clone(),
                nothing,
                &shares,
                servers.clone(),
                config.reduction.clone(),
                caps,
            )?,
            delay: None,
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
            islands,
            stale,
            config,
            group: group.clone(),
        })
    }

    /// Goes on with other ranks: those of the last group that are left, and new ones, which call
    /// [`Replica::new`]. A step that has not come to its end on any of them is forgotten, so that it can be
    /// done again; where one has, all get what it has. Where a rank has something that dies with it, all go
    /// back to the newest copy of that ([`Config::backup_every`]). The values go on in the same bits as if
    /// nothing had happened.
    ///
    /// To be called after an error, or between two steps. Shards are divided anew.
    ///
    /// # Errors
    ///
    /// As [`Replica::new`]; then it can be called again, with another group. The replica is not elastic.
    pub fn regroup(&mut self, group: Arc<Group>) -> Result<(), Error> {
        if !self.config.elastic {
            return Err(Error::Setting("only a replica with `Config::elastic` can regroup".into()));
        }
        self.roll_back();
        // Nobody is to take over such values.
        self.overflow.refuse()?;
        // Ranks may be others now, and fewer.
        self.members.take_reason();
        self.join(group)
    }

    /// Makes the updates of the last step whose gradients are back; forgets the step if some are not.
    fn roll_back(&mut self) {
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
        self.forget_round();
    }

    /// The ranks that train together.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Whether this rank is a summation server ([`Group::is_server`]): it has no shards and adds for the
    /// others, so that they send less. It gets no sums, so its values are not kept up: after its first step
    /// they are no numbers (NaN), which shows where somebody takes them for the model's.
    pub fn is_server(&self) -> bool {
        self.server
    }

    /// The ranks that train: all but summation servers, among them rank 0.
    pub fn workers(&self) -> Vec<Rank> {
        (0..self.servers.len()).filter(|rank| !self.servers[*rank]).map(Rank).collect()
    }

    /// The ranks that are summation servers.
    fn server_ranks(&self) -> Vec<Rank> {
        (0..self.servers.len()).filter(|rank| self.servers[*rank]).map(Rank).collect()
    }

    /// Where each tensor lives.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// All values of the model, in the order of the layout, after all steps so far; between two outer steps
    /// of islands, after the last of them; within a round of `stale`, what this rank last got; where updates
    /// are one step late, without the gradient that is on its way.
    ///
    /// # Errors
    ///
    /// The last step's reduction failed (naming the rank).
    pub fn values(&mut self) -> Result<&[f32], Error> {
        self.apply_outstanding()?;
        Ok(&self.values)
    }

    /// The values of one tensor after all steps so far: waits for the buckets it is in, not for the others.
    /// Where its reduction has failed they are those before the step, and the next call that can fail says
    /// why. Where islands synchronise rarely they are those of [`Replica::island`].
    pub fn latest(&mut self, id: SpanId) -> &[f32] {
        if self.island().is_some() {
            return self.latest_of_island(id);
        }
        if let Err(error) = self.apply_tensor(id) {
            self.failure.get_or_insert(error);
        }
        &self.values[self.layout.span(id).range()]
    }

    /// Buckets of the last step for which nobody has waited yet; where updates are one step late, of the step
    /// before.
    pub fn outstanding(&self) -> usize {
        self.step.outstanding() + self.outstanding_of_islands()
    }

    /// The shards of each step that are this rank's: each of them has a pass ([`Replica::begin_shard`]), in
    /// order.
    pub fn shards(&self) -> Range<usize> {
        self.shares_of_islands().map_or_else(|| self.step.shards(), |(shards, _)| shards)
    }

    /// Number of shards of every rank.
    pub fn shares(&self) -> &[usize] {
        self.shares_of_islands().map_or_else(|| self.step.shares(), |(_, shares)| shares)
    }

    /// What is reduced together, in the order in which it becomes ready; of islands, in their outer step.
    pub fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.step.buckets()
    }

    /// Whether a bucket's reduction is over, and its update is still to be made.
    pub fn is_back(&mut self, bucket: usize) -> bool {
        self.step.is_back(bucket)
    }

    /// With `false`, steps use this rank's own gradients only and ranks drift apart: for measuring what
    /// synchronisation costs. Where updates are one step late, to be called when all are made
    /// ([`Replica::end_round`]).
    pub fn synchronise(&mut self, synchronise: bool) {
        self.step.synchronise(synchronise && self.stale.is_none());
        if let Some(delay) = &mut self.delay {
            delay.synchronise(synchronise);
        }
    }

    /// Steps so far, also the last one if its updates are still to be made.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// What the loss of each shard is to be multiplied by before the backward pass of the step that runs or
    /// comes next ([`Config::loss_scaling`]): its gradients are given to [`ShardPass::ready`] so scaled. The
    /// loss itself and changes of statistics are not. 1 where losses are not scaled. [`Ddp`](crate::Ddp) does
    /// it by itself.
    ///
    /// [`ShardPass::ready`]: crate::ShardPass::ready
    pub fn loss_scale(&self) -> f32 {
        self.loss_scaling().scale
    }

    /// Where loss scaling stands: its scale, and how many steps have been skipped. Where islands synchronise
    /// rarely each has a scale of its own, and this is that of [`Replica::island`].
    pub fn loss_scaling(&self) -> LossScale {
        self.islands.as_ref().and_then(Islands::next_island).unwrap_or(self).scaler.now()
    }

    /// Steps of the job that have been skipped because they overflowed; where islands synchronise rarely, the
    /// steps of each of them that were until the last outer step. The same on all ranks.
    pub fn skipped_steps(&self) -> u64 {
        self.islands.as_ref().map_or(self.scaler.now().skipped_steps, Islands::skipped)
    }

    /// Notes what the program has given besides the configuration and must be the same on all ranks, such as
    /// the precision of its model: the next step ends with [`Error::SettingsDiffer`] where it is not. It
    /// replaces what was noted of that name.
    pub fn note_setting(&mut self, name: &str, value: String) {
        self.stated.set(name, value);
    }

    /// Adds a gradient transform of the caller's own behind those of [`Config::transforms`]; all ranks must.
    /// To be called between two steps; where the job has begun it goes on from what the others' knows, or a
    /// checkpoint ([`GradientTransform::state`]). Islands that synchronise rarely cannot have one each, and
    /// servers that hold the weights see no gradient of all shards: then the next call says so.
    pub fn add_transform(&mut self, transform: impl GradientTransform) {
        let obstacle = match (&self.islands, &self.stale) {
            (Some(_), _) => Some("cannot be each island's; synchronise every step, or take one of the table"),
            (_, Some(_)) => {
                Some("needs the gradient of all shards, which `stale` has nowhere; synchronise every step")
            }
            _ => None,
        };
        if let Some(obstacle) = obstacle {
            let problem = format!("the transform `{}` of the program's own {obstacle}", transform.name());
            self.failure.get_or_insert(Error::Setting(problem));
            return;
        }
        self.stated.add("a transform of the program's own", transform.name());
        for (name, value) in transform.settings() {
            self.stated.add(name, value.to_string());
        }
        if let Err(error) = self.transforms.add(Box::new(transform), &self.layout) {
            self.failure.get_or_insert(error);
        }
    }

    /// Sets a statistic to what this rank alone has made of it in the pass that is under way
    /// ([`Statistics::Local`](crate::Statistics::Local)). Where that is not finite the step fails.
    ///
    /// # Panics
    ///
    /// If its length is not the span's.
    pub fn keep_statistic(&mut self, id: SpanId, values: &[f32]) {
        self.step_mut().look_at_statistic(id, values);
        self.values[self.layout.span(id).range()].copy_from_slice(values);
    }
}
