//! The actions that are possible in a state.

use stateright::{Model, Property};

use super::state::{Broken, Life, Place, Question, State};
use super::{Actor, Job, Rule};
use crate::events::EndCause;
use crate::generation::GenerationId;
use crate::protocol::Event;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// A launcher's process begins, with its workers.
    Start(Actor),
    /// A launcher that looks for the job connects to its leader.
    Join(Actor),
    /// A follower's next message reaches its leader.
    Deliver(Actor),
    /// The next message of an ended connection reaches the leader.
    DeliverEnded(usize),
    /// A follower takes the next message of its leader.
    Take(Actor),
    /// A follower notices that its leader is lost.
    Notice(Actor),
    /// A launcher receives the last arrival of a worker that has ended.
    ReceiveLateArrival(usize),
    /// A launcher gets the answer to a question.
    Answer(Actor, usize),
    /// A launcher without workers ends.
    End(Actor),
    /// A worker reads the reply to its arrival.
    Read(Actor),
    /// A worker's group is formed.
    Form(Actor),
    /// A worker leaves its generation, for a reason.
    Leave(Actor),
    /// A killed worker is started again.
    Restart(Actor),
    /// All members of a generation make a step.
    Step(GenerationId),
    /// A stopped launcher goes on.
    GoOn(Actor),
    /// A cut link works again.
    Mend(Actor, Actor),
    TimePasses,
    /// A launcher's host crashes.
    Crash(Actor),
    /// A launcher's process is stopped.
    Stop(Actor),
    /// A link is cut.
    Cut(Actor, Actor),
    /// A follower's connection breaks. Messages on their way to the leader are lost if the flag is set.
    Break(Actor, bool),
    /// The answer to a question of a launcher is lost.
    LoseAnswer(Actor, usize),
    /// A worker is killed.
    Die(Actor),
    /// A worker hangs.
    Hang(Actor),
    /// A worker ends because it cannot begin.
    CannotBegin(Actor),
    /// A launcher starts no more workers, for this cause.
    Close(Actor, EndCause),
    /// A worker that has left its generation is killed, and its launcher receives its arrival after its end.
    DieAfterArrival(Actor),
}

impl State {
    /// Collects the actions that happen by themselves, whatever the number of faults, except time.
    pub(super) fn next(&self, job: &Job, actions: &mut Vec<Action>) {
        for own in 0..self.launchers.len() {
            let launcher = &self.launchers[own];
            if launcher.life == Life::Absent {
                actions.push(Action::Start(own));
            }
            if launcher.life != Life::Runs {
                continue;
            }
            if self.to_join(own).is_some() {
                actions.push(Action::Join(own));
            }
            if let Some(connection) = &launcher.leader {
                let leader = connection.leader;
                let flows = !connection.broken && self.runs(leader) && self.reaches(own, leader);
                if flows && !connection.sent.is_empty() {
                    actions.push(Action::Deliver(own));
                }
                if flows && self.for_follower(own).is_some() {
                    actions.push(Action::Take(own));
                }
                if !flows || self.waits_in_vain(connection) {
                    actions.push(Action::Notice(own));
                }
            }
            actions.extend((0..launcher.questions.len()).map(|question| Action::Answer(own, question)));
            let works = |worker: Actor| match self.workers[worker].place {
                Place::Gone(None) => !launcher.closed,
                Place::Gone(Some(_)) => false,
                _ => true,
            };
            if !job.workers_of(own).any(works) && !launcher.state.has_followers() {
                actions.push(Action::End(own));
            }
        }
        let to_running = |ended: &usize| self.runs(self.ended[*ended].leader);
        actions.extend((0..self.ended.len()).filter(to_running).map(Action::DeliverEnded));
        let by_running = |late: &usize| self.runs(self.late_arrivals[*late].launcher);
        actions.extend((0..self.late_arrivals.len()).filter(by_running).map(Action::ReceiveLateArrival));
        for worker in 0..self.workers.len() {
            if self.is_answered(worker) {
                actions.push(Action::Read(worker));
            }
            if self.can_form(worker) {
                actions.push(Action::Form(worker));
            }
            if self.may_leave(job, worker) {
                actions.push(Action::Leave(worker));
            }
            let launcher = job.nodes[worker];
            let restarts = self.runs(launcher) && !self.launchers[launcher].closed;
            if self.workers[worker].place == Place::Gone(None) && restarts {
                actions.push(Action::Restart(worker));
            }
        }
    }

    fn faults(&self, job: &Job, actions: &mut Vec<Action>) {
        for own in (0..self.launchers.len()).filter(|own| self.runs(*own)) {
            if self.launchers[own].leader.as_ref().is_some_and(|connection| !connection.broken) {
                actions.extend([Action::Break(own, false), Action::Break(own, true)]);
            }
            if job.breaks_only {
                continue;
            }
            actions.extend([Action::Crash(own), Action::Stop(own)]);
            let others = (0..own).filter(|other| self.runs(*other) && self.reaches(own, *other));
            actions.extend(others.map(|other| Action::Cut(other, own)));
            for (number, question) in self.launchers[own].questions.iter().enumerate() {
                if !matches!(question, Question::Connect(..)) {
                    actions.push(Action::LoseAnswer(own, number));
                }
            }
        }
        if !job.breaks_only {
            actions.extend((0..self.workers.len()).filter(|worker| self.lives(*worker)).map(Action::Die));
            let leaves = |worker: &Actor| self.may_leave(job, *worker);
            actions.extend((0..self.workers.len()).filter(leaves).map(Action::DieAfterArrival));
        }
        if job.hangs && !job.breaks_only {
            let in_group = |worker: &Actor| matches!(self.workers[*worker].place, Place::In(_));
            let can_hang = |worker: &Actor| in_group(worker) && !self.workers[*worker].hangs;
            actions.extend((0..self.workers.len()).filter(can_hang).map(Action::Hang));
            let open = |own: &Actor| self.runs(*own) && !self.launchers[*own].closed;
            let open = (0..self.launchers.len()).filter(open);
            let causes = [EndCause::Asked, EndCause::Failed];
            actions.extend(open.flat_map(|own| causes.map(|cause| Action::Close(own, cause))));
        }
        if !job.has_begun {
            let living = (0..self.workers.len()).filter(|worker| self.lives(*worker));
            actions.extend(living.filter(|worker| self.runs(job.nodes[*worker])).map(Action::CannotBegin));
        }
    }

    pub(super) fn apply(&mut self, job: &Job, action: Action) {
        if let Action::Crash(_) | Action::Stop(_) | Action::Cut(..) | Action::Break(..) = action {
            self.faults += 1;
        }
        if let Action::LoseAnswer(..) | Action::Die(_) | Action::DieAfterArrival(_) = action {
            self.faults += 1;
        }
        if let Action::Hang(_) | Action::Close(..) | Action::CannotBegin(_) = action {
            self.faults += 1;
        }
        match action {
            Action::Start(own) => self.start(job, own),
            Action::Join(own) => self.join(own),
            Action::Deliver(follower) => self.deliver(job, follower),
            Action::DeliverEnded(ended) => self.deliver_ended(job, ended),
            Action::Take(follower) => self.take(job, follower),
            Action::Notice(follower) => self.notices(job, follower),
            Action::Answer(own, question) => self.answer(job, own, question, false),
            Action::LoseAnswer(own, question) => self.answer(job, own, question, true),
            Action::End(own) => {
                self.receive(job, own, Event::End);
                self.vanish(job, own);
            }
            Action::Crash(own) => self.vanish(job, own),
            Action::Stop(own) => self.launchers[own].life = Life::Stopped,
            Action::GoOn(own) => self.goes_on(job, own),
            Action::Cut(one, other) => drop(self.cut.insert((one, other))),
            Action::Mend(one, other) => drop(self.cut.remove(&(one, other))),
            Action::Break(follower, lost) => self.breaks(follower, lost),
            Action::Read(worker) => self.read(job, worker),
            Action::Form(worker) => self.forms(worker),
            Action::Leave(worker) => self.arrive(job, worker, Some("others have gone")),
            Action::Die(worker) => self.ends_worker(job, worker, None),
            Action::Hang(worker) => self.workers[worker].hangs = true,
            Action::CannotBegin(worker) => self.cannot_begin(job, worker),
            Action::Close(own, cause) => self.close(job, own, cause),
            Action::DieAfterArrival(worker) => self.dies_after_arrival(job, worker),
            Action::ReceiveLateArrival(late) => self.receive_late_arrival(job, late),
            Action::Restart(worker) => self.restart(job, worker),
            Action::Step(id) => self.step(id),
            Action::TimePasses => {
                self.ticks += 1;
                self.time_passes(job);
            }
        }
    }
}

impl Model for Job {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.begun()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        state.next(self, actions);
        let steps = state.generations.keys().filter(|id| state.can_step(**id)).copied();
        if state.steps.len() < usize::from(self.steps) {
            actions.extend(steps.map(Action::Step));
        }
        let stopped = |own: &Actor| state.launchers[*own].life == Life::Stopped;
        actions.extend((0..state.launchers.len()).filter(stopped).map(Action::GoOn));
        actions.extend(state.cut.iter().map(|(one, other)| Action::Mend(*one, *other)));
        if state.faults < self.faults {
            state.faults(self, actions);
        }
        if state.ticks < self.ticks {
            actions.push(Action::TimePasses);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        next.apply(self, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one generation trains", |_, state: &State| {
                !state.broken.contains(&Broken::TwoTrain)
            }),
            // A recording arbiter lets others go on without the newest state; they repeat steps, to the same
            // bits.
            Property::always("no step is made again", |job: &Job, state: &State| {
                job.rule == Rule::Recorded || !state.broken.contains(&Broken::Again)
            }),
            Property::always("nobody begins anew", |_, state: &State| !state.broken.contains(&Broken::Anew)),
            Property::always("the job goes on or ends with a reason", |job: &Job, state: &State| {
                state.settles(job).is_ok()
            }),
        ]
    }
}
