//! The outcome of a job when faults end: it goes on, or all of its workers end with a reason.

use super::actions::Action;
use super::state::{Life, Place, State};
use super::{Actor, Job};

/// More events than this without a step occur only in an endless loop.
const EVENTS: usize = 2_000;
/// Number of times that time passes; together 8 minutes, the longest wait of any process.
const WAITS: usize = 30;

impl Job {
    /// Starts all initial launchers, and lets their workers form a group and, in a job that has begun, make a
    /// step together.
    pub(super) fn begun(&self) -> State {
        let mut state = self.initial();
        let late = self.first..state.launchers.len();
        late.clone().for_each(|own| state.launchers[own].life = Life::Stopped);
        (0..self.first).for_each(|own| state.start(self, own));
        state.run(self).unwrap_or_else(|why| panic!("the job does not begin: {why}"));
        let ready: Vec<_> = state.generations.keys().filter(|id| state.can_step(**id)).copied().collect();
        let [id] = ready[..] else { panic!("{:?}", state.generations) };
        if self.has_begun {
            state.step(id);
        }
        late.for_each(|own| state.launchers[own].life = Life::Absent);
        state
    }
}

impl State {
    /// Applies all actions that happen by themselves, until none is left.
    fn run(&mut self, job: &Job) -> Result<(), String> {
        let mut actions = Vec::new();
        for _ in 0..EVENTS {
            actions.clear();
            self.next(job, &mut actions);
            let Some(action) = actions.first() else { return Ok(()) };
            self.apply(job, action.clone());
        }
        let mut last = Vec::new();
        for _ in 0..30 {
            actions.clear();
            self.next(job, &mut actions);
            let Some(action) = actions.first() else { return Ok(()) };
            last.push(action.clone());
            self.apply(job, action.clone());
        }
        Err(format!("these happen for ever: {last:?}"))
    }

    /// Returns true if all live workers train together, once everything has happened that needs no time.
    pub(super) fn trains_at_once(mut self, job: &Job) -> Result<bool, String> {
        self.run(job)?;
        Ok(self.trains())
    }

    /// Returns the live workers, once everything has happened that needs no time.
    pub(super) fn left_at_once(mut self, job: &Job) -> Result<Vec<Actor>, String> {
        self.run(job)?;
        Ok(self.left())
    }

    fn left(&self) -> Vec<Actor> {
        (0..self.workers.len()).filter(|worker| self.lives(*worker)).collect()
    }

    /// Returns true if all live workers train together.
    fn trains(&self) -> bool {
        let together = |id| self.left().iter().all(|worker| self.workers[*worker].place == Place::In(id));
        self.generations.keys().any(|id| self.can_step(*id) && together(*id))
    }

    /// Returns the workers that train together once faults have ended and time has passed. All others have
    /// ended with a reason.
    /// Fails if some worker waits forever, or one has ended that must not.
    pub(super) fn settles(&self, job: &Job) -> Result<Vec<Actor>, String> {
        let mut state = self.clone();
        state.cut.clear();
        for own in 0..state.launchers.len() {
            if state.launchers[own].life == Life::Stopped {
                state.goes_on(job, own);
            }
        }
        for _ in 0..WAITS {
            state.run(job)?;
            let left = state.left();
            if job.breaks_only && left.len() < state.workers.len() {
                return Err(format!("only {left:?} are left"));
            }
            // If only hung workers are left, no worker waits for them, and their silence proves nothing.
            if left.iter().all(|worker| state.workers[*worker].hangs) || state.trains() {
                return Ok(left);
            }
            state.apply(job, Action::TimePasses);
        }
        let places: Vec<&Place> = state.workers.iter().map(|worker| &worker.place).collect();
        Err(format!("workers wait for ever: {places:?}"))
    }
}
