//! Updates that are one step late (`delayed:1`): a gradient has the whole next step to come back.
//!
//! Step t computes its gradient g_t with the weights w_t, which lack g_{t−1}: w_{t+1} = w_t − update(g_{t−1})
//! (Li et al. 2018, "Pipe-SGD: A Decentralized Pipelined SGD Framework for Distributed Deep Net Training",
//! with a pipeline of K = 2; delayed SGD of Langford, Smola and Zinkevich 2009, "Slow Learners are Fast",
//! with τ = 1). The first step applies nothing. The learning rate of an update is that of the step which has
//! computed its gradient.
//!
//! A replica has two [`Step`]s then, which take turns. While one collects gradients those of the other are on
//! the wire. At the end of step t all ranks start what is left of its collectives, and only then end the step
//! before it: agree on it, look at its gradient, say which updates are due. So collectives start in the same
//! order on all ranks, and nobody waits for what this step has started.
//!
//! What is on its way is waited for and applied, too, after the last step of an epoch or of the run, before a
//! checkpoint ([`Replica::end_round`]), and every [`Config::backup_every`] steps, in a job of any kind, so
//! that the bits do not depend on that; the next step is a first one again. There values and the optimizer's
//! state are all that there is, so a checkpoint holds no gradient, and after a death all ranks go back to a
//! copy that was made there (`backup`). Members who come or leave wait for it.

use super::stepping::{Ended, Started};
use super::{Replica, StepReport};
use crate::config::Config;
use crate::error::Error;
use crate::membership::Agreed;
use crate::step::Step;
use crate::straggler::Policy;

/// What a replica has besides the [`Step`] that collects the next gradients, where updates are one step late.
pub(super) struct Delay {
    /// The other one. Its gradient may be on its way.
    other: Step,
    /// The step whose gradient that is.
    on_its_way: Option<Started>,
    /// Whether the next step is the last one before all is applied.
    ends: bool,
}

impl Delay {
    /// Before the first step of a group, with steps that are like the replica's own.
    pub(super) fn new(other: Step) -> Self {
        Delay { other, on_its_way: None, ends: false }
    }

    pub(super) fn end_round(&mut self) {
        self.ends = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.on_its_way.is_none()
    }

    pub(super) fn synchronise(&mut self, synchronise: bool) {
        self.other.synchronise(synchronise);
    }

    /// The other [`Step`] takes its turn.
    fn turn(&mut self, own: &mut Step) {
        std::mem::swap(own, &mut self.other);
        own.take_turn(&mut self.other);
    }
}

/// Refuses what cannot be together with updates that are one step late.
pub(super) fn check(config: &Config) -> Result<(), Error> {
    if !config.sync.is_delayed() {
        return Ok(());
    }
    let wrong = |problem: String| Err(Error::Setting(format!("synchronisation `{}` {problem}", config.sync)));
    let reducer = &config.reduction;
    if reducer.keeps_state() {
        return wrong(format!(
            "compresses a gradient before it is known what the reduction `{}` has kept of the one before, which is still on its \
             way; take a reduction that keeps nothing, such as `sum` or `bf16`, or `every-step`",
            reducer.name()
        ));
    }
    if config.loss_scaling.is_some() {
        return wrong(
            "scales the next loss before it is known whether the last one has overflowed; compute in bf16 or f32".into(),
        );
    }
    if config.straggler == Policy::Rebalance {
        return wrong(
            "cannot move shards between workers, which would have to wait for the gradient on its way at a moment that times \
             decide, and with it the bits; leave what becomes of stragglers at `warn`"
                .into(),
        );
    }
    if config.elastic && config.backup_every == 0 {
        return wrong(
            "has a gradient on its way that a worker's death would lose, so that an elastic job has to go back to a copy; let it \
             make some (`Config::backup_every`)"
                .into(),
        );
    }
    Ok(())
}

impl Replica {
    /// A step of the program: the last gradients of the step that runs are sent off, and the updates of the
    /// one before it are due; of both, where all is to be applied.
    pub(super) fn delayed_step(&mut self, learning_rate: f64) -> Result<(StepReport, Agreed), Error> {
        let started = self.start_step(learning_rate)?;
        self.steps += 1;
        let all = self.applies_all();
        let mut ended = Vec::new();
        if let Some(before) = self.put_on_its_way(started) {
            ended.push(self.end_step(before, None)?);
        }
        // Where all leave somebody saves what they have come to.
        if all || ended.iter().any(|ended: &Ended| ended.agreed == Agreed::AllLeave) {
            ended.extend(self.end_last()?);
        }
        let (report, agreed) = self.report(ended);
        if !self.has_all() {
            // Members change when nothing is on its way, for which they wait.
            return Ok((report, Agreed::NoChange));
        }
        self.round.clone_from(&report.known);
        Ok((report, agreed))
    }

    /// Whether the gradient of the step that ends, the last of the steps so far, is waited for; on all ranks
    /// alike.
    fn applies_all(&mut self) -> bool {
        let Some(delay) = &mut self.delay else { return true };
        let ends = std::mem::take(&mut delay.ends);
        let every = self.config.backup_every;
        let on_their_way = 1 + u64::from(!delay.is_empty());
        ends || every > 0 && self.steps.is_multiple_of(every) || self.verifier.ends_round(on_their_way)
    }

    /// The step that has `started` is on its way from now on; gives the one before it, if there is one, which
    /// is to end.
    pub(super) fn put_on_its_way(&mut self, started: Started) -> Option<Started> {
        let Some(delay) = &mut self.delay else { return Some(started) };
        let is_first = delay.is_empty();
        delay.turn(&mut self.step);
        if is_first {
            // What the step before has shown, on whichever of the two that was.
            self.step.expect_uses(delay.other.expected_uses().to_vec());
        }
        delay.on_its_way.replace(started)
    }

    /// Ends the step whose gradient is on its way, if there is one.
    fn end_last(&mut self) -> Result<Option<Ended>, Error> {
        self.apply_outstanding()?;
        let Some(delay) = &mut self.delay else { return Ok(None) };
        let Some(started) = delay.on_its_way.take() else { return Ok(None) };
        delay.turn(&mut self.step);
        self.end_step(started, None).map(Some)
    }

    /// Whether updates are one step late.
    pub(crate) fn is_delayed(&self) -> bool {
        self.delay.is_some()
    }

    /// Whether the values lack nothing that has been computed: always, unless updates are one step late.
    pub(super) fn has_all(&self) -> bool {
        self.delay.as_ref().is_none_or(Delay::is_empty)
    }

    /// Refuses what would lose a gradient that is on its way.
    pub(super) fn expect_all(&self) -> Result<(), Error> {
        match self.has_all() {
            true => Ok(()),
            false => Err(Error::GradientOnItsWay { step: self.steps.saturating_sub(1) }),
        }
    }
}
