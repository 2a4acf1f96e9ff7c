//! The end of a step: the messages between ranks, the decisions of transforms and the conclusions of
//! observers.

use kolo_comm::Rank;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::core::Core;
use super::handover::progress::{Ending, Stage};
use super::report::{Change, GradientTraffic, StepReport, StepTimes};
use super::weights::Scales;
use crate::replica::straggler_observer::Compared;
use crate::same_settings::Stated;
use crate::warning::Warning;
use kolo_optim::SpanId;
use kolo_reduction::Error;
use kolo_reduction::transform::Decision;
use kolo_step::{
    Agreed, LastStep, LossScale, MembershipObserver, ObserverMessage, Received, Spent, StepNumber, SumSeen,
    Totals,
};
use kolo_values::FlatValues;

/// A step whose passes are over on this rank and whose collectives are in flight.
pub(crate) struct Started {
    step: StepNumber,
    learning_rate: f64,
    /// Settings that must be the same on all ranks.
    settings: Stated,
}

/// Outcome of a step of the job, whose updates can now be applied.
pub(crate) struct Ended {
    done: LastStep,
    loss_scale: f32,
    started_early: usize,
    compared: Compared,
    shards_changed: bool,
    pub(crate) agreed: Agreed,
}

impl Core {
    /// Runs a step of all ranks: a step of a job that synchronizes every step, or an outer step of islands.
    /// For an outer step, `known` holds its outcome and the number of steps at the last outer step. The
    /// caller must carry out the returned [`Agreed`] decision.
    pub(crate) fn step_of_all(
        &mut self,
        learning_rate: f64,
        known: Option<(LastStep, u64)>,
    ) -> Result<(StepReport, Agreed), Error> {
        let started = self.start_step(learning_rate)?;
        let ended = self.end_step(started, known)?;
        Ok(self.report(vec![ended]))
    }

    /// Starts the rest of the step's collectives, when all passes of this rank are over.
    pub(crate) fn start_step(&mut self, learning_rate: f64) -> Result<Started, Error> {
        check_rate(self.progress.steps, learning_rate)?;
        let (rank, world) = (self.ranks.group.rank(), self.ranks.group.world_size());
        let numbers = self.observers.stragglers.passes_over(&self.step, world);
        self.apply_outstanding()?;
        if let FlatValues::Host(values) = &mut self.weights.values {
            // After this step's agreement other workers write there.
            values.end_loans_of_next()?;
        }
        // Called again for a rank without shards, which has no pass to begin.
        self.begin_trace(self.ranks.shards)?;
        let settings = self.settings_of_step(learning_rate);
        let (flags, settings_print) =
            (self.observers.members.flags(rank, self.ranks.server), settings.print());
        let seconds = self.observers.tuning.passes_over();
        let told = ObserverMessage { flags, settings: settings_print, numbers, seconds };
        let step = self.step_number();
        self.step.start_rest(step, &told)?;
        Ok(Started { step, learning_rate, settings })
    }

    /// Waits until the ranks agree on a step. The updates that its gradient causes are due afterwards.
    pub(crate) fn end_step(
        &mut self,
        started: Started,
        known: Option<(LastStep, u64)>,
    ) -> Result<Ended, Error> {
        let Started { step, learning_rate, settings } = started;
        let number = step.number;
        let totals = self.step.agree(step)?;
        if totals.received.settings_differ {
            return Err(settings.name_difference(&self.ranks.group)?);
        }
        // An island may have no samples, and then it has no gradient either.
        let scale = if totals.count > 0.0 { 1.0 / totals.count } else { 0.0 };
        let LossScale { scale: loss_scale, skipped_steps, .. } = self.scaler.now();
        let unscale = if self.sees_scaled() { 1.0 / f64::from(loss_scale) } else { 1.0 };
        // A step that fails here has updated nothing, and does not count.
        let decision = self.transform(number, scale * unscale, &totals)?;
        if decision.is_none() {
            self.step.take_back()?;
        }
        let Decision { factor, norm: gradient_norm } =
            decision.unwrap_or(Decision { factor: 0.0, norm: None });
        let mut noise_scale = match decision {
            Some(_) => self.observers.noise.with(&totals, unscale),
            None => self.observers.noise.without(),
        };
        if self.observers.noise.is_on() {
            noise_scale = self.of_workers(noise_scale)?;
        }
        let (loss, count) = (number_of(totals.loss * scale), totals.count);
        let skipped = decision.is_none();
        let own = LastStep { step: number, loss, count, gradient_norm, noise_scale, skipped };
        let (done, before) = known.unwrap_or((own, number));
        self.weights.scales = Scales { sum: scale, parameters: factor * unscale };
        self.weights.overflow.begin(totals.is_large);
        self.note_unused(number, totals.unused, totals.count > 0.0);
        self.progress.steps = self.progress.steps.max(number + 1);
        // A checkpoint of this step gathers anew.
        self.gathered = None;
        let scale_before = self.scaler.now();
        match totals.count > 0.0 {
            true => self.scaler.step_done(skipped),
            false => self.scaler.step_without_samples(),
        }
        self.step.begin_applying(done);
        match decision {
            Some(_) => self.weights.begin(number, skipped_steps, learning_rate),
            None => self.step.skip_updates(),
        }
        if self.shares_memory() {
            self.update_in_memory(Ending { done, scale: scale_before, stage: Stage::Summing })?;
        }
        if self.moves_parts() && self.step.is_synchronized() {
            self.agree_on_sums(Ending { done, scale: scale_before, stage: Stage::Summing })?;
        }
        let changes = self.step.outstanding() > 0;
        if self.weights.share.is_some() && changes {
            self.weights.withdraw();
            self.step_own_blocks()?;
        }
        if self.step.outstanding() == 0 {
            // A skipped step, or a model without tensors.
            self.complete(done)?;
        }
        // Large gradients: the ranks look at the optimizer's state together, if each has a part of it.
        let looks_together = self.weights.share.is_some() && totals.is_large;
        if !self.overlaps() || self.step.is_profiling() || looks_together {
            self.apply_outstanding()?;
        }
        if changes {
            self.weights.publish(true);
        }
        self.verify(&done, before)?;
        let (compared, shards_changed) = self.mind_stragglers(&totals.received)?;
        let agreed = MembershipObserver::decide(&totals.received);
        if agreed == Agreed::NoChange {
            self.tune(&totals.received, shards_changed)?;
        }
        let started_early = totals.started_early;
        Ok(Ended { done, loss_scale, started_early, compared, shards_changed, agreed })
    }

    /// Report of a step of the program, with which the `ended` steps of the job completed; and the ranks'
    /// agreed decision.
    pub(crate) fn report(&mut self, ended: Vec<Ended>) -> (StepReport, Agreed) {
        let (buckets, exposed) = (self.step.timings(), self.step.take_exposed());
        let Spent { backward, optimizer } = self.step.take_spent();
        let communicating = self.step.take_wire_time();
        self.observers.stragglers.step_over(exposed, &self.step, &self.ranks.group);
        self.observers.members.step_done();
        let known: Vec<LastStep> = ended.iter().map(|ended| ended.done).collect();
        let agreed = ended.iter().map(|ended| ended.agreed).max().unwrap_or(Agreed::NoChange);
        let shards_changed = ended.iter().any(|ended| ended.shards_changed);
        let last = ended
            .into_iter()
            .reduce(|first, last| Ended { compared: last.compared.or(first.compared), ..last });
        let done = known.last();
        let (loss_scale, started_early) =
            (last.as_ref().map(|last| last.loss_scale), last.as_ref().map_or(0, |last| last.started_early));
        let Compared { times: of_ranks, findings } = last.map(|last| last.compared).unwrap_or_default();
        let peak_bytes = self.step.take_gradient_peak().map(|bytes| bytes as u64);
        let summed_bytes = self.step.buckets().map(|bucket| (bucket.len * size_of::<f32>()) as u64).sum();
        let report = StepReport {
            loss: done.map_or(f64::NAN, |done| done.loss),
            count: done.map_or(0.0, |done| done.count),
            traffic: GradientTraffic { buckets, summed_bytes, started_early, peak_bytes },
            times: StepTimes { communicating, exposed, backward, optimizer, of_ranks },
            gradient_norm: done.and_then(|done| done.gradient_norm),
            noise_scale: done.and_then(|done| done.noise_scale),
            skipped: done.is_some_and(|done| done.skipped),
            loss_scale: loss_scale.filter(|_| self.scaler.is_on()),
            change: Change::None,
            straggler: findings.straggler,
            shards_changed,
            staleness: None,
            tuning: self.observers.tuning.take_kept(),
            warnings: self.notices.warnings.take(),
            known,
        };
        (report, agreed)
    }

    /// Returns the conclusion that workers draw from the whole gradient. If there are servers, which lack
    /// that gradient, all ranks take rank 0's conclusion.
    fn of_workers<T: Serialize + DeserializeOwned>(&self, own: T) -> Result<T, Error> {
        match self.ranks.servers.contains(&true) && self.step.is_synchronized() {
            true => Ok(self.ranks.group.broadcast_value(own, Rank(0))?),
            false => Ok(own),
        }
    }

    /// Compares the values of all ranks if a comparison is due. They were last the same when `before` steps
    /// were done.
    pub(crate) fn verify(&mut self, done: &LastStep, before: u64) -> Result<(), Error> {
        if self.observers.verifier.is_due(before..done.step + 1, self.ranks.group.world_size()) {
            self.apply_outstanding()?;
            let prints = self.prints()?;
            let (group, layout) = (&self.ranks.group, &self.weights.layout);
            self.observers.verifier.verify(group, layout, prints, done, &self.ranks.servers)?;
            self.compare_owners(done.step)?;
        }
        Ok(())
    }

    /// Notes parameters that no shard used in step `step`: they keep their values. Those whose turn it is not
    /// are not to be used.
    pub(crate) fn note_unused(&mut self, step: u64, unused: Vec<bool>, has_samples: bool) {
        self.notices.known_unused.resize(unused.len(), false);
        let spans = self.weights.layout.spans().iter().zip(&unused).zip(&mut self.notices.known_unused);
        for (id, ((span, unused), known)) in spans.enumerate() {
            let is_due = span.spec.kind.is_trained() && !self.weights.turns.leaves(step, SpanId(id));
            let is_unused = *unused && has_samples && is_due;
            let is_new = is_unused && !std::mem::replace(known, true);
            if is_new && self.ranks.group.rank() == Rank(0) {
                let parameter = span.spec.name.clone();
                self.notices.warnings.add(Warning::UnusedParameter { step, parameter });
            }
        }
        self.weights.unused = unused;
    }

    /// Draws conclusions from the times of all ranks, if this step carried them: a rank that holds up the
    /// others, and whether shards move. All ranks conclude the same.
    fn mind_stragglers(&mut self, received: &Received) -> Result<(Compared, bool), Error> {
        let world = self.ranks.group.world_size();
        let mut compared = self.observers.stragglers.compare_times(received.numbers.as_deref(), world);
        if let Some(straggler) = &compared.findings.straggler {
            self.warn(Warning::Straggler(straggler.clone()));
        }
        let Some(wanted) = compared.findings.rebalance.take() else { return Ok((compared, false)) };
        self.apply_outstanding()?;
        let result = self.step.rebalance(&wanted.shares)?;
        self.observers.stragglers.rebalanced(&result);
        let is_ok = result.is_ok();
        self.warn(match result {
            Ok(()) => Warning::SharesMoved { reason: wanted.reason },
            Err(reason) => Warning::SharesStay { reason },
        });
        Ok((compared, is_ok))
    }

    /// Agrees on a step that dies afterwards: nothing is applied. Where the state is divided, this rank dies
    /// in every second step only when all ranks have the sums of their parts, unless they look at them
    /// together.
    pub(crate) fn agree_for_tests(&mut self, started: Started) -> Result<(), Error> {
        let totals = self.step.agree(started.step)?;
        let look_together = totals.is_large || started.step.all_read && self.step.divides_gradients();
        if self.moves_parts() && started.step.number.is_multiple_of(2) && !look_together {
            self.ranks.group.barrier()?;
        }
        Ok(())
    }

    /// Number of the current or next step.
    pub(crate) fn step_number(&self) -> StepNumber {
        let LossScale { scale, skipped_steps, .. } = self.scaler.now();
        StepNumber {
            number: self.progress.steps,
            updates: self.progress.steps - skipped_steps,
            unscale: (self.scaler.is_on() && !self.sees_scaled()).then_some(scale),
            may_overflow: self.scaler.may_skip(),
            all_read: !self.transforms.is_empty() || self.observers.noise.is_on(),
        }
    }

    /// Returns true if the reduction works on scaled gradients: only if it returns their sum and keeps no
    /// state, whose unit would change with the scale.
    fn sees_scaled(&self) -> bool {
        let reducer = &self.config.reduction;
        reducer.is_sum() && !reducer.keeps_state()
    }

    /// Settings that must be the same on all ranks in the step that ends.
    fn settings_of_step(&self, learning_rate: f64) -> Stated {
        let mut settings = self.notices.stated.clone();
        settings
            .set(&format!("the learning rate of step {}", self.progress.steps), learning_rate.to_string());
        settings
    }

    /// Returns the decision of the gradient transforms. The transforms and the noise scale need the whole
    /// gradient. `None` if the gradient or another value of the step overflowed and step `number` is to be
    /// skipped. `scale` turns the summed gradient into the mean. A server, which has no gradient, receives
    /// the decision from rank 0.
    fn transform(&mut self, number: u64, scale: f64, totals: &Totals) -> Result<Option<Decision>, Error> {
        if totals.overflowed {
            return Ok(None);
        }
        if totals.is_large {
            let seen = if self.ranks.server { SumSeen::default() } else { self.step.look_at_sum()? };
            let is_divided = self.is_divided() || self.shares_memory();
            let seen = match is_divided && self.step.is_synchronized() {
                true => SumSeen::of_parts(self.ranks.group.all_gather_value::<_, SumSeen>(&seen)?),
                false => self.of_workers(seen)?,
            };
            if seen.has_gradient() && self.scaler.may_skip() {
                return Ok(None);
            }
            self.step.refuse_sum(number, seen)?;
        }
        let mut decision = Decision { factor: 1.0, norm: None };
        if !self.ranks.server && (!self.transforms.is_empty() || self.observers.noise.is_on()) {
            self.transforms.begin_step();
            let divides = self.step.divides_gradients();
            if divides {
                let all = self.transforms.partial_sums().chain(self.observers.noise.partial_sums());
                all.for_each(|sums| sums.fill(0.0));
            }
            for bucket in self.step.order() {
                let (slices, gradient) = self.step.collect_seen(bucket)?;
                self.observers.noise.see(&self.weights.layout, slices, gradient);
                self.transforms.see(&self.weights.layout, slices, gradient);
            }
            if divides {
                let transforms = self.transforms.partial_sums();
                let all = transforms.chain(self.observers.noise.partial_sums());
                self.step.merge_partial_sums(&mut all.collect::<Vec<_>>())?;
            }
            decision = self.transforms.decide(scale);
        }
        if !self.transforms.is_empty() {
            let (factor, norm) = self.of_workers((decision.factor, decision.norm))?;
            decision = Decision { factor, norm };
        }
        match [Some(decision.factor), decision.norm].into_iter().flatten().find(|value| !value.is_finite()) {
            Some(value) => Err(Error::Setting(format!(
                "a gradient transform has returned {value} in step {number}, though the gradient is finite; a factor, and a \
                 norm, must be finite; Kolo has changed no parameter"
            ))),
            None => Ok(Some(decision)),
        }
    }
}

/// Returns an error if a learning rate is not finite in the precision of the values, before other ranks wait
/// for this one.
pub(crate) fn check_rate(step: u64, rate: f64) -> Result<(), Error> {
    match (rate as f32).is_finite() {
        true => Ok(()),
        false => Err(Error::Setting(format!(
            "the learning rate of step {step} is {rate:e}, which is not finite in single precision; give one of at most \
             3e38"
        ))),
    }
}

/// Returns the loss with one bit pattern for every NaN, whatever operation produced it.
fn number_of(loss: f64) -> f64 {
    if loss.is_nan() { f64::NAN } else { loss }
}
