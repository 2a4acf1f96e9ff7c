//! Workers: they arrive, receive assignments, form groups, make steps, and end.

use super::state::{Broken, LateArrival, Place, State, Worker};
use super::{Actor, Job, Part};
use crate::events::{EndCause, MemberEvent, MemberExit, Obstacle};
use crate::generation::{GenerationId, History};
use crate::protocol::{Event, Membership, Outcome};

impl State {
    /// Lets a worker leave its generation, if it is in one, and arrive.
    pub(super) fn arrive(&mut self, job: &Job, worker: Actor, reason: Option<&str>) {
        let mut arrival = self.workers[worker].membership.arrive(reason.map(String::from), None);
        if job.without == Some(Part::Histories) {
            arrival.history = History::default();
        }
        self.workers[worker].place = Place::Waits(arrival.number);
        let event = MemberEvent::Arrived(arrival);
        self.receive(job, job.nodes[worker], Event::Member { member: self.name(job, worker), event });
    }

    /// Returns true if a worker has a reply to read.
    pub(super) fn is_answered(&self, worker: Actor) -> bool {
        let reply = self.workers[worker].reply.as_ref().map(|(arrival, _)| *arrival);
        !self.workers[worker].hangs
            && matches!(self.workers[worker].place, Place::Waits(arrival) if reply == Some(arrival))
    }

    /// Lets a worker read the reply to its arrival.
    pub(super) fn read(&mut self, job: &Job, worker: Actor) {
        let Some((_, reply)) = self.workers[worker].reply.take() else { return };
        match self.workers[worker].membership.replied(reply) {
            Outcome::Enter(assignment) => {
                let id = assignment.generation;
                self.workers[worker].place = Place::Forms(id);
                if let Some(generation) = self.generations.get_mut(&id) {
                    generation.entered.insert(worker);
                }
            }
            Outcome::ArriveAgain(why) => self.arrive(job, worker, Some(&why)),
            // Its group only saves the state.
            Outcome::EnterLast(_, why) | Outcome::End(why) => {
                self.ends_worker(job, worker, Some(why.to_string()))
            }
        }
    }

    /// Ends a worker's process, by itself with a reason or by a fault.
    pub(super) fn ends_worker(&mut self, job: &Job, worker: Actor, reason: Option<String>) {
        let how = reason.clone().unwrap_or_else(|| "was killed".into());
        self.workers[worker].place = Place::Gone(reason);
        self.workers[worker].hangs = false;
        let event = MemberEvent::Exited(MemberExit::Failed(how));
        self.receive(job, job.nodes[worker], Event::Member { member: self.name(job, worker), event });
    }

    /// Ends a worker that cannot begin. Its launcher starts no others.
    pub(super) fn cannot_begin(&mut self, job: &Job, worker: Actor) {
        let (launcher, member) = (job.nodes[worker], self.name(job, worker));
        self.close(job, launcher, EndCause::Failed);
        self.workers[worker].place = Place::Gone(Some("it has no room".into()));
        let obstacle = Obstacle { reason: format!("node {launcher}: there is no room"), is_input: false };
        let exit = MemberExit::CannotBegin { how: "has no room".into(), obstacle };
        self.receive(job, launcher, Event::Member { member, event: MemberEvent::Exited(exit) });
    }

    /// Lets a worker arrive and die, so that its launcher learns of the end first.
    pub(super) fn dies_after_arrival(&mut self, job: &Job, worker: Actor) {
        let (launcher, member) = (job.nodes[worker], self.name(job, worker));
        let arrival = self.workers[worker].membership.arrive(Some("others have gone".into()), None);
        self.late_arrivals.push(LateArrival { launcher, member, arrival });
        self.ends_worker(job, worker, None);
    }

    /// Delivers the arrival of a worker that has ended to its launcher.
    pub(super) fn receive_late_arrival(&mut self, job: &Job, late: usize) {
        let LateArrival { launcher, member, arrival } = self.late_arrivals.remove(late);
        if job.without == Some(Part::Ends) {
            let (member, event) = (member.clone(), MemberEvent::Started);
            self.handle(job, launcher, Event::Member { member, event });
        }
        self.receive(job, launcher, Event::Member { member, event: MemberEvent::Arrived(arrival) });
    }

    /// Restarts a killed worker, without its state.
    pub(super) fn restart(&mut self, job: &Job, worker: Actor) {
        let process = &mut self.workers[worker];
        process.restarts += 1;
        process.membership = Membership::new((worker + 100 * process.restarts) as u64, false);
        (process.reply, process.steps, process.hangs) = (None, 0, false);
        let (member, event) = (self.name(job, worker), MemberEvent::Started);
        self.receive(job, job.nodes[worker], Event::Member { member, event });
        self.arrive(job, worker, None);
    }

    /// Returns true if all members have come to form the worker's group.
    pub(super) fn can_form(&self, worker: Actor) -> bool {
        let Place::Forms(id) = self.workers[worker].place else { return false };
        !self.workers[worker].hangs
            && self.generations.get(&id).is_some_and(|generation| generation.entered == generation.members)
    }

    pub(super) fn forms(&mut self, worker: Actor) {
        if let Place::Forms(id) = self.workers[worker].place {
            self.workers[worker].place = Place::In(id);
            self.workers[worker].membership.formed();
        }
    }

    /// Returns true if something makes a worker leave its generation.
    pub(super) fn may_leave(&self, job: &Job, worker: Actor) -> bool {
        let (Place::Forms(id) | Place::In(id)) = self.workers[worker].place else { return false };
        if self.workers[worker].hangs {
            return false;
        }
        let Some(generation) = self.generations.get(&id) else { return true };
        // Hung members take part in nothing, and others do not wait for them forever.
        let place = |member: &Actor| self.workers.get(*member).filter(|it| !it.hangs).map(|it| &it.place);
        let has_gone = |member: &Actor| match place(member) {
            Some(Place::Forms(its) | Place::In(its)) => *its != id,
            Some(Place::Waits(_) | Place::Absent) => generation.entered.contains(member),
            Some(Place::Gone(_)) | None => true,
        };
        let members = &generation.members;
        let reached = |member: &Actor| {
            let hosts = |other: &Actor| self.reaches(job.nodes[*member], job.nodes[*other]);
            members.iter().all(hosts)
        };
        let leader = id.leader as Actor;
        // The leader serves the store by which a group forms.
        let forms = matches!(self.workers[worker].place, Place::Forms(_));
        let served = self.runs(leader) && self.reaches(leader, job.nodes[worker]);
        generation.failed
            || self.launchers[job.nodes[worker]].regroup.contains(&id.number)
            || forms && !served
            || members.iter().any(has_gone)
            || forms && self.clock > generation.granted_at
            || !members.iter().all(reached)
    }

    /// Returns true if all members of a generation are in its group.
    pub(super) fn can_step(&self, id: GenerationId) -> bool {
        let is_in = |member: &Worker| member.place == Place::In(id) && !member.hangs;
        let works = |member: &Actor| self.workers.get(*member).is_some_and(is_in);
        self.generations.get(&id).is_some_and(|generation| generation.members.iter().all(works))
    }

    /// Lets all members of a generation make a step. Members that are behind first get the newest state.
    pub(super) fn step(&mut self, id: GenerationId) {
        let Some(generation) = self.generations.get(&id) else { return };
        let members: Vec<Actor> = generation.members.iter().copied().collect();
        let seen = members.iter().map(|member| self.workers[*member].steps).max().unwrap_or(0);
        if seen == 0 && !self.steps.is_empty() {
            self.broken.insert(Broken::Anew);
        }
        if usize::from(seen) < self.steps.len() {
            self.broken.insert(Broken::Again);
        }
        if self.generations.keys().filter(|other| self.can_step(**other)).count() > 1 {
            self.broken.insert(Broken::TwoTrain);
        }
        for member in members {
            self.workers[member].steps = seen + 1;
            self.workers[member].membership.set_has_state();
        }
        self.steps.push(id);
    }
}
