//! A round: steps of the islands, and the outer step that ends it.

use super::counted::counted_from;
use super::islands_mode::Islands;
use super::loss::{IslandLoss, mean};
use crate::replica::core::Core;
use crate::replica::report::StepReport;
use kolo_optim::{Kind, SpanId};
use kolo_reduction::Error;
use kolo_step::{Agreed, LastStep};

impl Islands {
    /// Runs a step of all islands of this rank, and the outer step if it is due. Only in the outer step do
    /// the ranks agree on changes of members.
    pub(super) fn step_of_all_islands(
        &mut self,
        outer: &mut Core,
        rate: f64,
    ) -> Result<(StepReport, Agreed), Error> {
        let (mut report, mut agreed) = self.step_of_each(outer, rate)?;
        if self.together {
            self.step_together(outer, &mut report)?;
        } else if self.is_outer_step_due(outer.progress.steps) {
            (report, agreed) = self.outer_step(outer, report)?;
        } else {
            outer.progress.steps += 1;
        }
        self.ends = false;
        Ok((report, agreed))
    }

    /// Returns true if the step after `steps` steps is the last one of its round.
    fn is_outer_step_due(&self, steps: u64) -> bool {
        self.ends || steps + 1 - self.began >= self.rounds.steps
    }

    /// Runs a step of all islands of this rank, and returns what this rank sees of it. The ranks agree on
    /// changes of members here only while all shards synchronize every step.
    fn step_of_each(&mut self, outer: &mut Core, rate: f64) -> Result<(StepReport, Agreed), Error> {
        // A death on another island would be noticed only in the outer step, and the steps until then would
        // be wasted.
        if outer.config.elastic
            && let Some(error) = outer.ranks.group.liveness().failure()
        {
            return Err(error.into());
        }
        outer.begin_trace(self.shards)?;
        let (mut report, mut agreed) = (StepReport::default(), Agreed::NoChange);
        let first_step = self.first_step_of_optimizers();
        for island in &mut self.own {
            if self.together {
                std::mem::swap(&mut outer.observers.members, &mut island.core.observers.members);
            }
            let result = island.core.step_of_all(rate, None);
            if self.together {
                std::mem::swap(&mut outer.observers.members, &mut island.core.observers.members);
            }
            let (step, heard) = result.map_err(|error| {
                let error = counted_from(first_step, island.located(error, outer.progress.steps));
                // Otherwise the ranks of other islands would continue until the outer step.
                if error.is_divergence()
                    && island.core.ranks.group.world_size() < outer.ranks.group.world_size()
                {
                    outer.ranks.group.abandon(&error.to_string());
                }
                error
            })?;
            if self.together {
                agreed = heard;
            }
            let loss = step.loss * step.count;
            island.losses.push(IslandLoss { loss, count: step.count, skipped: step.skipped });
            report.times.exposed += step.times.exposed;
            report.times.backward += step.times.backward;
            report.times.optimizer += step.times.optimizer;
            report.traffic.started_early += step.traffic.started_early;
            report.gradient_norm = step.gradient_norm.filter(|_| self.together);
            report.loss_scale = step.loss_scale.filter(|_| self.together);
            if island.core.ranks.group.world_size() > 1 {
                report.traffic.buckets.extend(step.traffic.buckets);
                report.times.communicating += step.times.communicating;
            }
            report.traffic.summed_bytes += if self.together { step.traffic.summed_bytes } else { 0 };
            // Several islands may produce the same warnings, so only the first one's are reported.
            if island.number == 0 && island.speaks {
                step.warnings.into_iter().for_each(|warning| outer.warn(warning));
            }
        }
        // A rank without islands has no losses.
        let own = self.own.iter().filter_map(|island| island.losses.last().copied());
        let LastStep { loss, count, skipped, .. } = mean(outer.progress.steps, own);
        (report.loss, report.count, report.skipped) = (loss, count, skipped);
        self.here = 0;
        self.rates.push(rate);
        Ok((report, agreed))
    }

    /// Runs a step in which a rank dies after the outer step has begun.
    pub(super) fn begin_outer_step_for_tests(&mut self, outer: &mut Core, rate: f64) -> Result<(), Error> {
        self.step_of_each(outer, rate)?;
        match !self.together && self.is_outer_step_due(outer.progress.steps) {
            true => self.losses_of_all(outer).map(drop),
            false => Ok(()),
        }
    }

    /// Takes the state of the only island as the job's, before the first round.
    fn step_together(&mut self, outer: &mut Core, report: &mut StepReport) -> Result<(), Error> {
        let island = &mut self.own[0];
        let done = LastStep {
            step: outer.progress.steps,
            loss: report.loss,
            count: report.count,
            gradient_norm: report.gradient_norm,
            noise_scale: None,
            skipped: report.skipped,
        };
        self.skipped += u64::from(done.skipped);
        if done.count <= 0.0 {
            return Err(Error::NoSamples { step: done.step });
        }
        outer.weights.values.copy_from_slice(island.core.values()?);
        report.known.push(done);
        outer.progress.steps += 1;
        outer.progress.last = Some(done);
        outer.verify(&done, outer.progress.steps - 1)?;
        self.begin_round(outer.progress.steps);
        if outer.progress.steps >= self.rounds.together {
            self.part(outer)?;
        }
        Ok(())
    }

    /// Brings all islands to the same weights. The change of each island is the gradient of one shard with
    /// count 1, so all islands weigh the same. Its change of running statistics is applied like that of any
    /// step.
    fn outer_step(&mut self, outer: &mut Core, islands: StepReport) -> Result<(StepReport, Agreed), Error> {
        let known = self.losses_of_all(outer)?;
        let Some(done) = known.last().copied() else { return Err(Error::Lost) };
        let rates = self.rates.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
        outer.notices.stated.set("the learning rates since the last outer step", rates);
        let layout = outer.weights.layout.clone();
        let start = outer.weights.values.to_vec();
        // Also on ranks that do not represent an island: its values are replaced below.
        let first_step = self.first_step_of_optimizers();
        let applied = self.own.iter_mut().try_for_each(|island| island.core.apply_outstanding());
        applied.map_err(|error| counted_from(first_step, error))?;
        for island in self.own.iter_mut().filter(|island| island.speaks) {
            let values = island.core.values()?;
            let pass = outer.begin_pass(0.0, 1.0)?;
            for (number, span) in layout.spans().iter().enumerate().rev() {
                let (start, end) = (&start[span.range()], &values[span.range()]);
                if span.spec.kind == Kind::Frozen {
                    continue;
                }
                let is_statistic = span.spec.kind == Kind::Statistic;
                let change =
                    |(start, end): (&f32, &f32)| if is_statistic { end - start } else { start - end };
                let change: Vec<f32> = start.iter().zip(end).map(change).collect();
                outer.step.add(pass, SpanId(number), &change);
            }
            outer.step.end_shard(pass)?;
        }
        outer.progress.round.clone_from(&known);
        let (mut report, agreed) = outer.step_of_all(self.rounds.outer_lr, Some((done, self.began)))?;
        self.begin_round(outer.progress.steps);
        let restarts = self.restarts();
        for island in &mut self.own {
            island.core.weights.values.copy_from_slice(&outer.weights.values);
            if restarts {
                island.core.weights.optimizer.init(&outer.weights.layout);
                island.core.set_steps(0);
                island.core.scaler.count_anew();
            }
        }
        report.times.exposed += islands.times.exposed;
        report.times.communicating += islands.times.communicating;
        (report.known, report.gradient_norm, report.skipped) = (known, None, done.skipped);
        Ok((report, agreed))
    }

    fn begin_round(&mut self, steps: u64) {
        self.began = steps;
        self.rates.clear();
        self.own.iter_mut().for_each(|island| island.losses.clear());
    }

    /// Returns the mean loss over all islands for every step of the round, in the same bits on all ranks. A
    /// collective.
    fn losses_of_all(&mut self, outer: &Core) -> Result<Vec<LastStep>, Error> {
        let own: Vec<&[IslandLoss]> = self.represented().map(|island| &island.losses[..]).collect();
        let told: Vec<Vec<Vec<IslandLoss>>> = outer.ranks.group.all_gather_value(&own)?;
        // In the order of islands, which is that of the ranks that represent them.
        let islands: Vec<Vec<IslandLoss>> = told.into_iter().flatten().collect();
        self.skipped += islands.iter().flatten().filter(|step| step.skipped).count() as u64;
        let step = |number: usize| {
            let step = self.began + number as u64;
            let losses = islands.iter().filter_map(|losses| losses.get(number).copied());
            let done = mean(step, losses);
            if done.count > 0.0 { Ok(done) } else { Err(Error::NoSamples { step }) }
        };
        (0..self.rates.len()).map(step).collect()
    }
}
