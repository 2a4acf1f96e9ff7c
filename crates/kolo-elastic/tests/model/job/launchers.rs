//! Launchers: the events that they handle, and the effects of their protocol.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::state::{Life, Place, Question, State, address_of, launcher_at};
use super::{Actor, Job, PASSES, Part, Rule};
use crate::arbiter::{Arbiter, Claim, Record, Records, Verdict, claim_recorded};
use crate::events::{CoordinatorEvent, EndCause, MemberEvent, MemberExit};
use crate::launcher_protocol::ToFollower;
use crate::launcher_view::{LauncherInfo, LauncherView};
use crate::protocol::{ClaimAnswer, Effect, Event, Found, Role};

/// The memory of an arbiter; the model has one job.
struct Memory(Mutex<Option<Record>>);

impl Records for Memory {
    fn place(&self) -> String {
        "the arbiter".into()
    }

    fn begin(&self, _job: u64) -> Result<(), String> {
        Ok(())
    }

    fn knows(&self, _job: u64) -> Result<Result<(), String>, String> {
        Ok(Ok(()))
    }

    fn last(&self, _job: u64) -> Result<Option<Record>, String> {
        Ok(self.0.lock().clone())
    }

    fn add(&self, _job: u64, _after: Option<&Record>, record: &Record) -> Result<bool, String> {
        *self.0.lock() = Some(record.clone());
        Ok(true)
    }
}

impl State {
    /// Passes an event to a launcher, at once or when it goes on; then the launcher decides.
    pub(super) fn receive(&mut self, job: &Job, launcher: Actor, event: Event) {
        match self.launchers[launcher].life {
            Life::Runs => {}
            Life::Stopped => return self.launchers[launcher].pending.push_back(event),
            Life::Absent | Life::Gone => return,
        }
        self.handle(job, launcher, event);
        if self.leads(launcher) {
            for (connection, message) in std::mem::take(&mut self.launchers[launcher].to_leader) {
                self.handle(job, launcher, Event::FromFollower { connection, message });
            }
        }
        self.handle(job, launcher, Event::Tick);
    }

    pub(super) fn handle(&mut self, job: &Job, launcher: Actor, event: Event) {
        let (context, now) = (job.context(launcher), self.now());
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.launchers[launcher].state.handle(event, now, &context) {
                events.extend(self.act(job, launcher, effect));
            }
        }
    }

    /// Carries out one effect; returns the event that follows at once.
    fn act(&mut self, job: &Job, own: Actor, effect: Effect) -> Option<Event> {
        let launcher = &mut self.launchers[own];
        match effect {
            Effect::PublishJobId(_) | Effect::PublishNoJob { .. } => {}
            Effect::Reply { member, arrival, reply } => {
                if let Some(worker) = self.worker(job, &member) {
                    self.workers[worker].reply = Some((arrival, reply));
                }
            }
            Effect::RequestRegroup { .. } if job.without == Some(Part::Regroup) => {}
            Effect::RequestRegroup { generation } => drop(launcher.regroup.insert(generation)),
            Effect::GenerationFormed { formed, after } => {
                launcher.regroup.remove(&after);
                self.announced(job, &formed);
            }
            Effect::Report(CoordinatorEvent::MemberHung { member, .. }) => {
                let worker = self.worker(job, &member).filter(|worker| self.lives(*worker))?;
                self.workers[worker].place = Place::Gone(None);
                self.workers[worker].hangs = false;
                let event = MemberEvent::Exited(MemberExit::Failed("was killed".into()));
                return Some(Event::Member { member, event });
            }
            // The launcher ends its hung workers. The others learn of it by themselves.
            Effect::Report(
                CoordinatorEvent::Detached { reason, .. } | CoordinatorEvent::Superseded { reason },
            ) => {
                for worker in
                    job.workers_of(own).filter(|worker| self.workers[*worker].hangs).collect::<Vec<_>>()
                {
                    self.workers[worker].place = Place::Gone(Some(reason.clone()));
                    self.workers[worker].hangs = false;
                }
            }
            Effect::Report(CoordinatorEvent::CannotBegin(obstacle)) => {
                let living = job.workers_of(own).filter(|worker| self.lives(*worker));
                for worker in living.collect::<Vec<_>>() {
                    self.workers[worker].place = Place::Gone(Some(obstacle.reason.clone()));
                    self.workers[worker].hangs = false;
                }
            }
            Effect::Report(_) => {}
            Effect::Publish(view) => launcher.shows = launcher.serves.then_some(view),
            Effect::ToLeader(message) => {
                launcher.leader.iter_mut().for_each(|leader| leader.sent.push_back(message.clone()));
            }
            Effect::ToFollower { connection, number, mut message } => {
                if let (Some(Part::HeldState), ToFollower::Formed(formed)) = (job.without, &mut message) {
                    formed.state_held = false;
                }
                launcher.to_followers.insert((connection, number), message);
            }
            Effect::Connect { leader, hello } => {
                self.disconnect(own);
                let question = Question::Connect(launcher_at(leader), hello);
                self.launchers[own].questions.push(question);
            }
            Effect::Disconnect => self.disconnect(own),
            Effect::Leave | Effect::Discover => self.leave(own),
            Effect::Probe { launcher: target, connection, .. } => {
                launcher.questions.push(Question::Probe(target as Actor, connection));
            }
            Effect::Claim(claim) => match job.rule {
                Rule::Recorded => launcher.questions.push(Question::Claim(claim)),
                Rule::Majority => return Some(answer(own, Arbiter::default().claim(&claim))),
                Rule::NoArbiter => return Some(answer(own, Ok(Verdict::Granted(claim.newest + 1)))),
            },
            Effect::ServeLast { .. } => return Some(Event::LastServed(Ok(address_of(own)))),
            Effect::FailGeneration { .. } => {
                let of_own = self.generations.iter_mut().rev().find(|(id, _)| id.leader == own as u64);
                of_own.into_iter().for_each(|(_, generation)| generation.failed = true);
            }
        }
        None
    }

    /// Starts a launcher's process and its workers. The first launcher begins the job.
    pub(super) fn start(&mut self, job: &Job, own: Actor) {
        self.launchers[own].life = Life::Runs;
        for worker in job.workers_of(own) {
            let event = MemberEvent::Started;
            self.handle(job, own, Event::Member { member: self.name(job, worker), event });
        }
        if own == 0 {
            self.launchers[own].serves = true;
            let address = address_of(own);
            let view =
                LauncherView::new("job", "arbiter".into(), LauncherInfo { id: 0, node_rank: 0, address });
            self.receive(job, own, Event::Found(Found { address, node_rank: 0, view, leads: true }));
        }
        for worker in job.workers_of(own) {
            self.arrive(job, worker, None);
        }
    }

    /// Answers a question; with `lost`, the answer does not arrive.
    pub(super) fn answer(&mut self, job: &Job, own: Actor, question: usize, lost: bool) {
        let event = match self.launchers[own].questions.remove(question) {
            Question::Probe(target, connection) => {
                let comes_back = job.without != Some(Part::ComingBack) || self.leads(own);
                let answers = !lost && comes_back && self.runs(target) && self.reaches(own, target);
                let view = self.launchers[target].shows.clone().filter(|_| answers);
                Event::Probed { launcher: target as u64, connection, view }
            }
            Question::Connect(leader, hello) => {
                if self.can_connect(own, leader) {
                    return self.connect(own, leader, hello, None);
                }
                Event::LeaderLost { why: "it cannot be reached".into() }
            }
            Question::Claim(claim) => {
                let verdict = self.recorded(&claim);
                answer(own, if lost { Err("the answer is lost".into()) } else { verdict })
            }
        };
        self.receive(job, own, event);
    }

    fn recorded(&mut self, claim: &Claim) -> Result<Verdict, String> {
        let memory = Memory(Mutex::new(self.record.take()));
        let verdict = claim_recorded(&memory, claim);
        self.record = memory.0.into_inner();
        verdict
    }

    /// Lets a launcher start no more workers.
    pub(super) fn close(&mut self, job: &Job, own: Actor, cause: EndCause) {
        self.launchers[own].closed = true;
        self.receive(job, own, Event::Closed(cause));
    }

    pub(super) fn goes_on(&mut self, job: &Job, own: Actor) {
        self.launchers[own].life = Life::Runs;
        for event in std::mem::take(&mut self.launchers[own].pending) {
            self.handle(job, own, event);
        }
        self.receive(job, own, Event::Tick);
    }

    /// Removes a launcher with its workers: its host has crashed, or its workers have ended.
    pub(super) fn vanish(&mut self, job: &Job, own: Actor) {
        // Its earlier messages are not repeated, and all of them may have arrived.
        self.leave(own);
        self.launchers[own].life = Life::Gone;
        self.launchers[own].questions.clear();
        self.late_arrivals.retain(|late| late.launcher != own);
        for worker in job.workers_of(own).filter(|worker| self.lives(*worker)).collect::<Vec<_>>() {
            self.workers[worker].place = Place::Gone(None);
            self.workers[worker].hangs = false;
        }
    }

    /// Lets time pass for running launchers, until a silent launcher counts as dead.
    pub(super) fn time_passes(&mut self, job: &Job) {
        for _ in 0..4 {
            self.clock += 1;
            for own in 0..self.launchers.len() {
                self.heartbeat(job, own);
            }
            for own in (0..self.launchers.len()).filter(|own| self.runs(*own)).collect::<Vec<_>>() {
                let late = PASSES * self.clock >= job.context(own).start_timeout;
                match self.launchers[own].state.role {
                    Role::Discovering if late => {
                        let reason = "there is no job".into();
                        self.receive(job, own, Event::NotFound { reason, for_all: false });
                    }
                    _ => self.receive(job, own, Event::Tick),
                }
            }
        }
    }
}

fn answer(own: Actor, verdict: Result<Verdict, String>) -> Event {
    Event::ClaimAnswered(match verdict {
        Ok(Verdict::Granted(number)) => ClaimAnswer::Granted { number, store: Ok(address_of(own)) },
        Ok(Verdict::Superseded(reason)) => ClaimAnswer::Superseded(reason),
        Ok(Verdict::NotYet(reason)) | Err(reason) => ClaimAnswer::NotYet(reason),
    })
}
