//! Steps and rounds of a rank.

use kolo_comm::Rank;

use super::server::Server;
use super::worker::Worker;
use crate::replica::core::Core;
use crate::replica::report::StepReport;
use crate::staleness::Staleness;
use crate::sync::mode::{Mode, Passes, Standing};
use kolo_reduction::Error;
use kolo_reduction::state::StateCopy;
use kolo_step::{Agreed, LastStep};

/// State of a rank besides its core, in a job whose servers hold the weights.
pub(super) struct Stale {
    /// K
    pub(super) bound: u64,
    /// Role of the rank, once it has joined the others.
    pub(super) role: Option<Role>,
    /// True if no step has been made since the core had all of the state, which a server's threads must load
    /// first.
    pub(super) must_load: bool,
    /// Number of steps that the optimizers had made when the round began.
    pub(super) updates: u64,
    /// Number of steps done when the round began, and the learning rates of its steps so far.
    pub(super) began: u64,
    pub(super) rates: Vec<f64>,
    /// True if the next step is the last one of its round.
    pub(super) ends: bool,
    /// Steps of the round whose losses over all workers this worker knows.
    pub(super) known: Vec<LastStep>,
    /// Staleness of this worker's pulls in the round.
    pub(super) staleness: Staleness,
}

pub(super) enum Role {
    Worker(Worker),
    Server(Server),
}

impl Mode for Stale {
    /// Runs a step of this worker, or of a server, whose threads do its part. Fails if a rank died, left or
    /// did not take part in time (naming it), a backward pass is missing, or the loss is not finite. The end
    /// of a round also fails if the ranks have different settings or end different rounds.
    fn step(&mut self, outer: &mut Core, rate: f64) -> Result<(StepReport, Agreed), Error> {
        let (mut report, mut agreed) = (StepReport::default(), Agreed::NoChange);
        let must_load = std::mem::take(&mut self.must_load);
        match &mut self.role {
            Some(Role::Worker(worker)) => {
                let pulled = worker.step(outer, rate, self.ends, &mut report)?;
                self.staleness.add(usize::try_from(pulled.behind).unwrap_or(usize::MAX));
                report.known = self.with_numbers(pulled.losses)?;
                self.known.extend(&report.known);
            }
            Some(Role::Server(server)) => {
                if must_load {
                    let weights = &mut outer.weights;
                    let state = StateCopy::of(weights.layout.len(), |visit| weights.visit_state(visit));
                    server.with_part(|part| part.load(&state, self.updates));
                    // A server's values are not updated: NaN keeps anybody from using them as the model's.
                    outer.weights.values.fill(f32::NAN);
                }
                server.begin_round(self.began);
            }
            None => return Err(Error::Lost),
        }
        self.rates.push(rate);
        outer.progress.steps += 1;
        if std::mem::take(&mut self.ends) {
            agreed = self.come_together(outer, &mut report)?;
        }
        report.warnings.extend(outer.notices.warnings.take());
        Ok((report, agreed))
    }

    fn end_round(&mut self) {
        self.ends = true;
    }

    fn standing(&self) -> Standing {
        if self.rates.is_empty() { Standing::Whole } else { Standing::InRound { began: self.began } }
    }

    fn form(&mut self, core: &mut Core, steps: u64) -> Result<(), Error> {
        if !self.rates.is_empty() {
            return Err(Error::RoundNotOver { step: core.progress.steps, began: self.began });
        }
        if self.role.is_none() {
            self.role = Some(self.connect(core)?);
        }
        self.must_load = true;
        self.updates = steps;
        self.begin_round(steps);
        Ok(())
    }
}

impl Passes for Stale {
    /// Keeps the core's own synchronization off: a worker's gradient goes to the servers in any case.
    fn synchronize(&mut self, core: &mut Core, _: bool) {
        core.step.synchronize(false);
    }
}

impl Stale {
    /// Numbers the next steps whose losses over all workers have become known.
    fn with_numbers(&self, losses: Vec<[f64; 2]>) -> Result<Vec<LastStep>, Error> {
        let first = self.began + self.known.len() as u64;
        let known = |(step, [loss, count]): (u64, [f64; 2])| match count > 0.0 {
            true => Ok(LastStep::of_losses(step, loss, count)),
            false => Err(Error::NoSamples { step }),
        };
        (first..).zip(losses).map(known).collect()
    }

    /// Ends a round, on all ranks: they compare their settings, gather the staleness of all pulls, learn if
    /// a rank wants to leave, and compare their weights if that is due.
    fn come_together(&mut self, outer: &mut Core, report: &mut StepReport) -> Result<Agreed, Error> {
        if let Some(Role::Server(server)) = &self.role {
            server.end_round(outer.progress.steps)?;
            self.updates = server.with_part(|part| part.updates());
        }
        let group = outer.ranks.group.clone();
        let mut settings = outer.notices.stated.clone();
        let rates = self.rates.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
        settings.set(&format!("the learning rates of the steps from {} on", self.began), rates);
        settings.set("the number of steps at the end of a round", outer.progress.steps.to_string());
        let told: Vec<(u64, bool)> =
            group.all_gather_value(&(settings.print(), outer.observers.members.is_leaving()))?;
        if told.iter().any(|(print, _)| *print != told[0].0) {
            return Err(settings.name_difference(&group)?);
        }
        let mut staleness = Staleness::default();
        let all: Vec<Staleness> = group.all_gather_value(&self.staleness)?;
        all.iter().for_each(|own| staleness.merge(own));
        report.staleness = Some(staleness);
        // Servers have pulled nothing, so they know no losses.
        let known = group.broadcast_value(std::mem::take(&mut self.known), Rank(0))?;
        outer.progress.last = known.last().copied();
        if let Some(done) = known.last() {
            outer.verify(done, self.began)?;
        }
        if outer.ranks.server {
            report.known = known;
        }
        self.begin_round(outer.progress.steps);
        Ok(if told.iter().any(|(_, leaves)| *leaves) { Agreed::AllLeave } else { Agreed::NoChange })
    }

    pub(super) fn begin_round(&mut self, steps: u64) {
        self.began = steps;
        self.ends = false;
        self.rates.clear();
        self.known.clear();
        self.staleness = Staleness::default();
    }
}
