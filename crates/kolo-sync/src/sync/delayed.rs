//! Updates that are one step late (`delayed:1`): a gradient has the whole next step to come back.
//!
//! Step t computes its gradient g_t with the weights w_t, which lack g_{t−1}:
//! w_{t+1} = w_t − update(g_{t−1}) (Li et al. 2018, "Pipe-SGD: A Decentralized Pipelined SGD Framework for
//! Distributed Deep Net Training", with a pipeline of K = 2; delayed SGD of Langford, Smola and Zinkevich
//! 2009, "Slow Learners are Fast", with τ = 1). The first step applies no update. An update uses the
//! learning rate of the step that computed its gradient.
//!
//! The mode adds a second [`Step`] to the core's own. While one collects gradients, those of the other are
//! on the wire. At the end of step t all ranks start the rest of its collectives, and only then end the step
//! before it: agree on it, look at its gradient, decide which updates are due. This way collectives start in
//! the same order on all ranks, and no rank waits for those that this step has started.
//!
//! A gradient in flight is awaited and applied after the last step of an epoch or of the run, before a
//! checkpoint (`Replica::end_round`), and every [`Config::backup_every`](crate::Config::backup_every) steps.
//! The last holds for jobs of any kind, so that the bits do not depend on whether a job is elastic. The next
//! step is then a first one again. At these points values and the optimizer's state are the complete state.
//! After a death all ranks go back to a copy that was made there (`backup`). Members that join or leave wait
//! for such a point.
//!
//! A job whose workers all leave ends anywhere. The gradient in flight is applied there too, and the job also
//! keeps the values without its update ([`LateValues`]). The passes of the next step read those, so a resumed
//! run ends in the bits of the undisturbed one.

use super::exclusion::{JobSetting, NO_ISLANDS, NO_PLAIN_STEP, NO_TURNS};
use super::mode::{Made, Mode, ModeState, Passes, Standing};
use super::synchronization::Synchronization;
use super::traits::SyncTraits;
use crate::replica::core::Core;
use crate::replica::notes::JobNotes;
use crate::replica::report::StepReport;
use crate::replica::stepping::{Ended, Started};
use kolo_optim::Kind;
use kolo_optim::table::{Entry, Setting};
use kolo_reduction::Error;
use kolo_reduction::state::{StateKind, StateName, StatePart, Visit};
use kolo_step::{Agreed, Step};

pub(super) const DELAYED: Entry<Synchronization> = Entry {
    name: "delayed",
    about: "each update is a step late, and its gradient travels while the next one is computed (Li et al. 2018)",
    settings: &[Setting::whole("steps", 1, 1..2, "Steps by which updates are late")],
    make: |_| {
        Box::new(Synchronization {
            traits: SyncTraits { is_delayed: true, ..SyncTraits::default() },
            excludes: EXCLUDES,
            make: |config, _, optimizer| {
                Ok(Made { config: config.clone(), optimizer, mode: Box::new(Delayed::default()) })
            },
        })
    },
};

const EXCLUDES: &[(JobSetting, &str)] = &[
    NO_ISLANDS,
    (
        JobSetting::KeepingReduction,
        "compresses a gradient before it is known what the reduction has kept of the one before, which is still on its way",
    ),
    (JobSetting::LossScaling, "scales the next loss before it is known whether the last one has overflowed"),
    (
        JobSetting::Rebalance,
        "cannot move shards between workers, because it would have to wait for the gradient on its way at a moment that times \
         decide, and with it the bits",
    ),
    (
        JobSetting::NoBackups,
        "has a gradient on its way that a worker's death would lose, so an elastic job has to go back to a copy",
    ),
    NO_TURNS,
    NO_PLAIN_STEP,
];

/// The mode's state besides the [`Step`] that collects the next gradients.
#[derive(Default)]
struct Delayed {
    /// The other step, once the ranks have met. Its gradient may be in flight.
    other: Option<Step>,
    /// Step whose gradient is in flight.
    on_its_way: Option<Started>,
    /// True if the next step is the last one before all updates are applied.
    ends: bool,
    /// Values of the other kind, where the last step's update is applied and the next passes lack it.
    late: Option<LateValues>,
}

/// Second copy of all values, where a job ends with a gradient in flight, or continues from there.
struct LateValues {
    /// Values without the last step's update while the core has the complete ones; the complete ones while
    /// the core has those for the next passes.
    values: Vec<f32>,
    /// True if `values` are the complete ones.
    are_complete: bool,
}

/// Name of the array of values that lack the last step's update. It is among those of the optimizer, because
/// the weights of a checkpoint are those of the model alone.
const WITHOUT_LAST_UPDATE: &str = "values_without_last_update";

impl Mode for Delayed {
    /// Sends the last gradients of the current step, and ends the step before it, whose updates are then
    /// due. Ends both if all updates must be applied.
    fn step(&mut self, core: &mut Core, rate: f64) -> Result<(StepReport, Agreed), Error> {
        let started = core.start_step(rate)?;
        core.progress.steps += 1;
        let all = self.applies_all(core);
        let mut ended = Vec::new();
        if let Some(before) = self.put_on_its_way(core, started) {
            ended.push(core.end_step(before, None)?);
        }
        // If all ranks leave, one of them saves the final state.
        let all_leave = ended.iter().any(|ended: &Ended| ended.agreed == Agreed::AllLeave);
        if all || all_leave {
            core.apply_outstanding()?;
            self.late = (!all && !core.ranks.server).then(|| LateValues::without_last_update(core));
            ended.extend(self.end_last(core)?);
        }
        let (report, agreed) = core.report(ended);
        if self.on_its_way.is_some() {
            // Members change only when no gradient is in flight.
            return Ok((report, Agreed::NoChange));
        }
        core.progress.round.clone_from(&report.known);
        Ok((report, agreed))
    }

    fn half_step_for_tests(&mut self, core: &mut Core, rate: f64) -> Result<(), Error> {
        let started = core.start_step(rate)?;
        self.put_on_its_way(core, started).map_or(Ok(()), |due| core.agree_for_tests(due))
    }

    fn end_round(&mut self) {
        self.ends = true;
    }

    fn standing(&self) -> Standing {
        if self.on_its_way.is_some() { Standing::OnItsWay } else { Standing::Whole }
    }

    fn form(&mut self, core: &mut Core, _: u64) -> Result<(), Error> {
        *self = Delayed { other: Some(core.another_step()?), ..Delayed::default() };
        Ok(())
    }
}

impl Passes for Delayed {
    fn synchronize(&mut self, core: &mut Core, synchronize: bool) {
        core.step.synchronize(synchronize);
        if let Some(other) = &mut self.other {
            other.synchronize(synchronize);
        }
    }
}

impl ModeState for Delayed {
    /// Visits the two copies of the values by what they are, wherever they lie.
    fn visit_weights(&mut self, core: &mut Core, visit: &mut Visit<'_>) {
        let Some(late) = &mut self.late else { return core.weights.visit_state(visit) };
        let complete = StateName::of_job(StateKind::Weights, "");
        let without = StateName::of_job(StateKind::Optimizer, WITHOUT_LAST_UPDATE);
        let (of_core, other) = if late.are_complete { (&without, &complete) } else { (&complete, &without) };
        core.weights.visit_state(&mut |StatePart { name, place, values }| {
            let name = if name == complete { of_core.clone() } else { name };
            visit(StatePart { name, place, values });
        });
        visit(StatePart::whole(other.clone(), &mut late.values));
    }

    fn notes(&mut self, core: &mut Core) -> Result<JobNotes, Error> {
        core.apply_outstanding()?;
        let mut notes = JobNotes::of_core(core.notes());
        if let (Some(late), Some(other)) = (&self.late, &self.other) {
            let mut uses = other.expected_uses().to_vec();
            if !late.are_complete {
                // The next step is the other one.
                std::mem::swap(&mut notes.core.uses, &mut uses);
            }
            notes.late_uses = Some(uses);
        }
        Ok(notes)
    }

    fn make_room(&mut self, core: &Core, notes: &JobNotes) {
        let len = core.weights.layout.len();
        self.late =
            notes.late_uses.is_some().then(|| LateValues { values: vec![0.0; len], are_complete: false });
    }

    fn set_notes(&mut self, core: &mut Core, notes: JobNotes) -> Result<(), Error> {
        core.set_notes(notes.core)?;
        if let (Some(late), Some(other), Some(uses)) = (&mut self.late, &mut self.other, notes.late_uses) {
            late.exchange(core);
            other.expect_uses(uses);
        }
        Ok(())
    }
}

impl LateValues {
    /// Copies the core's values, which lack the update of the gradient in flight. Values that are not finite
    /// were so from the start: no update changes them, and no checkpoint takes them here.
    fn without_last_update(core: &Core) -> Self {
        let values = core.weights.values.iter().map(|value| if value.is_finite() { *value } else { 0.0 });
        LateValues { values: values.collect(), are_complete: false }
    }

    /// Exchanges complete values in the core for those without the last step's update.
    fn exchange(&mut self, core: &mut Core) {
        let layout = core.weights.layout.clone();
        let complete: &mut [f32] = &mut core.weights.values;
        for span in layout.spans() {
            let is_frozen = span.spec.kind == Kind::Frozen;
            for (value, late) in complete[span.range()].iter_mut().zip(&mut self.values[span.range()]) {
                let without = if is_frozen || !value.is_finite() { *value } else { *late };
                *late = std::mem::replace(value, without);
            }
        }
        self.are_complete = true;
    }
}

impl Delayed {
    /// Returns true if the gradient of the step that ends, the last one so far, must be awaited; the same on
    /// all ranks.
    fn applies_all(&mut self, core: &Core) -> bool {
        let ends = std::mem::take(&mut self.ends);
        let every = core.config.backup_every;
        let on_their_way = 1 + u64::from(self.on_its_way.is_some());
        ends || every > 0 && core.progress.steps.is_multiple_of(every)
            || core.observers.verifier.ends_round(on_their_way)
    }

    /// Records that the `started` step is in flight; returns the one before it, which must end, if there is
    /// one. Its update is already in the complete values if the job was resumed with it.
    fn put_on_its_way(&mut self, core: &mut Core, started: Started) -> Option<Started> {
        let late = self.late.take().filter(|late| late.are_complete);
        if let Some(late) = &late {
            core.weights.values.copy_from_slice(&late.values);
        }
        let is_first = self.on_its_way.is_none() && late.is_none();
        self.turn(core);
        if let Some(other) = self.other.as_ref().filter(|_| is_first) {
            // Uses that the step before has counted, on whichever of the two it ran.
            core.step.expect_uses(other.expected_uses().to_vec());
        }
        self.on_its_way.replace(started)
    }

    /// Ends the step whose gradient is in flight, if there is one.
    fn end_last(&mut self, core: &mut Core) -> Result<Option<Ended>, Error> {
        core.apply_outstanding()?;
        let Some(started) = self.on_its_way.take() else { return Ok(None) };
        self.turn(core);
        core.end_step(started, None).map(Some)
    }

    /// Swaps the two steps.
    fn turn(&mut self, core: &mut Core) {
        if let Some(other) = &mut self.other {
            std::mem::swap(&mut core.step, other);
            core.step.take_turn(other);
        }
    }
}
