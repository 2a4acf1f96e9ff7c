//! Launchers: what they hear, what comes of what they want done, and the connections between them.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::state::{Connection, Ended, Life, Place, Question, State, address_of, launcher_at};
use super::{Actor, Job, PASSES, Part, Rule};
use crate::arbiter::{Arbiter, Claim, Record, Records, Verdict, claim_recorded};
use crate::events::{CoordinatorEvent, MemberEvent, MemberExit};
use crate::launcher_protocol::{ConnectionId, Hello, ToFollower, ToLeader};
use crate::launcher_view::{LauncherInfo, LauncherView};
use crate::protocol::{ClaimAnswer, Effect, Event, Found, Role};

/// What an arbiter remembers; the model has one job.
struct Memory(Mutex<Option<Record>>);

impl Records for Memory {
    fn place(&self) -> String {
        "the arbiter".into()
    }

    fn begin(&self, _job: u64) -> Result<(), String> {
        Ok(())
    }

    fn knows(&self, _job: u64) -> Result<(), String> {
        Ok(())
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
    /// A launcher hears of an event, or will once it goes on; then it decides.
    pub(super) fn hear(&mut self, job: &Job, launcher: Actor, event: Event) {
        match self.launchers[launcher].life {
            Life::Runs => {}
            Life::Stopped => return self.launchers[launcher].unheard.push_back(event),
            Life::Absent | Life::Gone => return,
        }
        self.tell(job, launcher, event);
        if self.leads(launcher) {
            for (connection, message) in std::mem::take(&mut self.launchers[launcher].to_leader) {
                self.tell(job, launcher, Event::FromFollower { connection, message });
            }
        }
        self.tell(job, launcher, Event::Tick);
    }

    fn tell(&mut self, job: &Job, launcher: Actor, event: Event) {
        let (context, now) = (job.context(launcher), self.now());
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.launchers[launcher].state.handle(event, now, &context) {
                events.extend(self.act(job, launcher, effect));
            }
        }
    }

    /// Does what a launcher wants done; gives what it hears at once.
    fn act(&mut self, job: &Job, own: Actor, effect: Effect) -> Option<Event> {
        let launcher = &mut self.launchers[own];
        match effect {
            Effect::PublishJobId(_) => {}
            Effect::Reply { member, arrival, reply } => {
                if let Some(worker) = self.worker(job, &member) {
                    self.workers[worker].reply = Some((arrival, reply));
                }
            }
            Effect::RequestRegroup { .. } if job.without == Some(Part::Regroup) => {}
            Effect::RequestRegroup { generation } => drop(launcher.regroup.insert(generation)),
            Effect::GenerationFormed { formed, after } => {
                launcher.regroup.remove(&after);
                self.told(job, &formed);
            }
            Effect::Tell(CoordinatorEvent::MemberHung { member }) => {
                let worker = self.worker(job, &member).filter(|worker| self.lives(*worker))?;
                self.workers[worker].place = Place::Gone(None);
                let event = MemberEvent::Exited(MemberExit::Failed("was killed".into()));
                return Some(Event::Member { member, event });
            }
            Effect::Tell(_) => {}
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
            Effect::Probe { launcher: whom, connection, .. } => {
                launcher.questions.push(Question::Probe(whom as Actor, connection));
            }
            Effect::Claim(claim) => match job.rule {
                Rule::Recorded => launcher.questions.push(Question::Claim(claim)),
                Rule::Majority => return Some(answer(own, Arbiter::default().claim(&claim))),
                Rule::Anybody => return Some(answer(own, Ok(Verdict::Granted(claim.newest + 1)))),
            },
            Effect::FailGeneration { .. } => {
                let of_own = self.generations.iter_mut().rev().find(|(id, _)| id.leader == own as u64);
                of_own.into_iter().for_each(|(_, generation)| generation.failed = true);
            }
        }
        None
    }

    /// The follower closes its connection; what it has sent may still come.
    fn disconnect(&mut self, follower: Actor) {
        if let Some(Connection { id, leader, sent, broken: false, .. }) =
            self.launchers[follower].leader.take()
        {
            self.ends(id, leader, sent);
        }
    }

    fn ends(&mut self, id: ConnectionId, leader: Actor, mut sent: VecDeque<ToLeader>) {
        sent.push_back(ToLeader::ConnectionLost);
        self.ended.push(Ended { id, leader, sent });
    }

    /// A launcher's store closes, with all connections to it.
    fn leave(&mut self, own: Actor) {
        self.disconnect(own);
        let launcher = &mut self.launchers[own];
        (launcher.serves, launcher.shows) = (false, None);
        launcher.to_followers.clear();
        launcher.to_leader.clear();
        self.ended.retain(|ended| ended.leader != own);
        for follower in &mut self.launchers {
            let leader = follower.leader.as_mut().filter(|connection| connection.leader == own);
            leader.into_iter().for_each(|connection| connection.broken = true);
        }
    }

    /// A launcher's process begins, and its workers. The first one begins the job.
    pub(super) fn start(&mut self, job: &Job, own: Actor) {
        self.launchers[own].life = Life::Runs;
        for worker in job.workers_of(own) {
            let event = MemberEvent::Started;
            self.tell(job, own, Event::Member { member: self.name(job, worker), event });
        }
        if own == 0 {
            self.launchers[own].serves = true;
            let address = address_of(own);
            let view =
                LauncherView::new("job", "arbiter".into(), LauncherInfo { id: 0, node_rank: 0, address });
            self.hear(job, own, Event::Found(Found { address, node_rank: 0, view, leads: true }));
        }
        for worker in job.workers_of(own) {
            self.arrive(job, worker, None);
        }
    }

    /// Whom a launcher that looks for the job would join now.
    pub(super) fn to_join(&self, own: Actor) -> Option<(Actor, LauncherView)> {
        let launcher = &self.launchers[own];
        if launcher.life != Life::Runs
            || launcher.state.role != Role::Discovering
            || launcher.leader.is_some()
        {
            return None;
        }
        let seen = |other: &Actor| self.runs(*other) && self.reaches(own, *other);
        let views = (0..self.launchers.len()).filter(seen).filter_map(|it| self.launchers[it].shows.clone());
        let open = views.filter(|view| !view.work_done);
        let mut leaders = open.filter_map(|view| Some((launcher_at(view.leader()?.address), view)));
        leaders.find(|(leader, _)| seen(leader) && self.launchers[*leader].serves)
    }

    pub(super) fn join(&mut self, own: Actor) {
        let Some((leader, view)) = self.to_join(own) else { return };
        let (address, node_rank) = (address_of(own), Some(own));
        let hello =
            Hello { address, node_rank, deferred_workers: 0, rejoins: None, left: Default::default() };
        self.launchers[own].serves = true;
        self.connect(own, leader, hello, Some(view));
    }

    fn connect(&mut self, own: Actor, leader: Actor, hello: Hello, joins: Option<LauncherView>) {
        let (since, launcher) = (self.clock, &mut self.launchers[own]);
        let sent = VecDeque::from([ToLeader::Hello(hello)]);
        launcher.connections += 1;
        let id = ConnectionId { launcher: own as u64, number: launcher.connections };
        launcher.leader = Some(Connection { id, leader, sent, next: 0, joins, broken: false, since });
    }

    /// The next message of a follower comes to its leader.
    pub(super) fn deliver(&mut self, job: &Job, follower: Actor) {
        let Some(connection) = &mut self.launchers[follower].leader else { return };
        let (id, leader) = (connection.id, connection.leader);
        if let Some(message) = connection.sent.pop_front() {
            self.comes(job, id, leader, message);
        }
    }

    /// The next message comes of a connection that has ended.
    pub(super) fn deliver_ended(&mut self, job: &Job, ended: usize) {
        let Ended { id, leader, mut sent } = self.ended.remove(ended);
        if !self.reaches(id.launcher as Actor, leader) {
            sent.drain(..sent.len() - 1);
        }
        let Some(message) = sent.pop_front() else { return };
        if !sent.is_empty() {
            self.ended.insert(ended, Ended { id, leader, sent });
        }
        self.comes(job, id, leader, message);
    }

    fn comes(&mut self, job: &Job, connection: ConnectionId, leader: Actor, message: ToLeader) {
        match self.leads(leader) {
            true => self.hear(job, leader, Event::FromFollower { connection, message }),
            false => self.launchers[leader].to_leader.push((connection, message)),
        }
    }

    /// The next message of the leader for a follower, if there is one.
    pub(super) fn for_follower(&self, follower: Actor) -> Option<&ToFollower> {
        let Connection { id, leader, next, .. } = self.launchers[follower].leader.as_ref()?;
        self.launchers[*leader].to_followers.get(&(*id, *next))
    }

    /// A follower takes the next message of its leader.
    pub(super) fn take(&mut self, job: &Job, follower: Actor) {
        let Some(connection) = &mut self.launchers[follower].leader else { return };
        let (id, leader, number) = (connection.id, connection.leader, connection.next);
        let joins = connection.joins.clone();
        connection.next += 1;
        let Some(message) = self.launchers[leader].to_followers.remove(&(id, number)) else { return };
        if number > 0 {
            return self.hear(job, follower, Event::FromLeader(message));
        }
        // The first answers the follower's Hello.
        let event = match (message, joins) {
            (ToFollower::Welcome { node_rank }, Some(view)) => {
                let found =
                    Found { address: address_of(follower), node_rank, view: view.clone(), leads: false };
                self.launchers[follower].shows = Some(view);
                Event::Found(found)
            }
            (ToFollower::Welcome { .. }, None) => Event::Welcomed,
            (ToFollower::Refused { reason }, Some(_)) => Event::NotFound { reason, for_all: false },
            (ToFollower::Refused { reason }, None) => Event::RefusedByLeader { why: reason },
            (other, _) => Event::LeaderLost { why: format!("{other:?} is no answer") },
        };
        if !matches!(event, Event::Found(_) | Event::Welcomed) {
            self.disconnect(follower);
        }
        self.hear(job, follower, event);
    }

    /// A connection breaks; with `lost` what is on its way to the leader never comes.
    pub(super) fn breaks(&mut self, follower: Actor, lost: bool) {
        let Some(connection) = &mut self.launchers[follower].leader else { return };
        connection.broken = true;
        let (id, leader) = (connection.id, connection.leader);
        let mut sent = std::mem::take(&mut connection.sent);
        if lost {
            sent.clear();
        }
        self.ends(id, leader, sent);
    }

    /// A follower notices that its leader is lost, or takes it for lost.
    pub(super) fn notices(&mut self, job: &Job, follower: Actor) {
        let Some(connection) = &self.launchers[follower].leader else { return };
        if connection.joins.is_some() && connection.next == 0 {
            // It looks for the job once more.
            return self.disconnect(follower);
        }
        self.disconnect(follower);
        self.hear(job, follower, Event::LeaderLost { why: "it is lost".into() });
    }

    /// A question is answered, or with `lost` its answer does not come.
    pub(super) fn answer(&mut self, job: &Job, own: Actor, question: usize, lost: bool) {
        let event = match self.launchers[own].questions.remove(question) {
            Question::Probe(whom, connection) => {
                let comes_back = job.without != Some(Part::ComingBack) || self.leads(own);
                let answers = !lost && comes_back && self.runs(whom) && self.reaches(own, whom);
                let view = self.launchers[whom].shows.clone().filter(|_| answers);
                Event::Probed { launcher: whom as u64, connection, view }
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
        self.hear(job, own, event);
    }

    fn can_connect(&self, own: Actor, leader: Actor) -> bool {
        self.runs(leader) && self.reaches(own, leader) && self.launchers[leader].serves
    }

    fn recorded(&mut self, claim: &Claim) -> Result<Verdict, String> {
        let memory = Memory(Mutex::new(self.record.take()));
        let verdict = claim_recorded(&memory, claim);
        self.record = memory.0.into_inner();
        verdict
    }

    /// A launcher that was stopped goes on.
    pub(super) fn goes_on(&mut self, job: &Job, own: Actor) {
        self.launchers[own].life = Life::Runs;
        for event in std::mem::take(&mut self.launchers[own].unheard) {
            self.tell(job, own, event);
        }
        self.hear(job, own, Event::Tick);
    }

    /// A launcher is gone, with its host and its workers, or because they have ended.
    pub(super) fn is_gone(&mut self, job: &Job, own: Actor) {
        // Nothing of what it has sent is sent again, and all may have come.
        self.leave(own);
        self.launchers[own].life = Life::Gone;
        self.launchers[own].questions.clear();
        for worker in job.workers_of(own).filter(|worker| self.lives(*worker)).collect::<Vec<_>>() {
            self.workers[worker].place = Place::Gone(None);
        }
    }

    /// Launchers that run see time pass, for as long as they take for a silent one.
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
                        self.hear(job, own, Event::NotFound { reason, for_all: false });
                    }
                    _ => self.hear(job, own, Event::Tick),
                }
            }
        }
    }

    /// A follower's heartbeat comes, unless something holds it up.
    fn heartbeat(&mut self, job: &Job, follower: Actor) {
        let Some(connection) = &self.launchers[follower].leader else { return };
        let leader = connection.leader;
        let flows = connection.sent.is_empty() && connection.next > 0 && !connection.broken;
        if flows && self.runs(follower) && self.runs(leader) && self.reaches(follower, leader) {
            let (connection, message) = (connection.id, ToLeader::Heartbeat);
            self.tell(job, leader, Event::FromFollower { connection, message });
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
