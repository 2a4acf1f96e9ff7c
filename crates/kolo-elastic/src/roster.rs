//! Who is there, and what is to be done about it: the decisions of the coordinator, without its connections.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// By what a coordinator decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Fewest members that a generation may have.
    pub min: usize,
    /// How long the first generation waits for members that have been started.
    pub start: Duration,
    /// How long a member may take to come back after its generation has ended; then it counts as hung. Those who have come
    /// back may know better, from what their work takes.
    pub patience: Duration,
    /// How long too few members wait for others before the job ends.
    pub wait: Duration,
}

/// One member.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    state: State,
    /// Its last rank, and when it was first heard of: the order in which seats are given.
    order: (usize, u64),
    /// The CPU time that its process had taken when it was last seen to work, and when that was.
    worked: Option<(Duration, Instant)>,
    /// It has the state of the job.
    settled: bool,
}

/// CPU time that tells a process which works from one that only waits, between two reports of about a second.
const WORK: Duration = Duration::from_millis(100);
/// How long after that a process still counts as one that works.
const WORKS: Duration = Duration::from_secs(5);
/// How many times longer is waited for one that works.
const WORK_FACTOR: u32 = 10;

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// Started, and not heard of yet.
    Expected,
    /// At the meeting; the number of its arrival.
    Waiting(u64),
    /// In the generation that runs, or that some have left.
    Seated,
}

/// Whom a seat is given to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Guest {
    pub(super) member: String,
    pub(super) arrival: u64,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing, yet.
    Wait,
    /// A generation begins, with these in the order of their ranks.
    Form { guests: Vec<Guest>, reason: String },
    /// Those of the running generation are asked to come to the meeting at the end of a step.
    Change,
    /// These have not come back.
    Evict(Vec<String>),
    /// Too few have waited too long.
    Refuse { guests: Vec<Guest>, waited: Duration },
    /// Nobody is left who has been in a generation: what the job had come to is lost.
    Orphan(Vec<Guest>),
}

/// See the module's text.
pub(super) struct Roster {
    rules: Rules,
    began: Instant,
    members: BTreeMap<String, Entry>,
    heard_of: u64,
    /// Generations so far.
    generation: u64,
    /// When the last one ended, and why.
    over: Option<(Instant, String)>,
    asked: bool,
    /// No others will come.
    closed: bool,
    /// Some member has had the state of the job.
    begun: bool,
    /// How long those who have come back would wait for the others.
    told: Option<Duration>,
}

impl Roster {
    pub(super) fn new(rules: Rules, now: Instant) -> Self {
        Roster {
            rules,
            began: now,
            members: BTreeMap::new(),
            heard_of: 0,
            generation: 0,
            over: None,
            asked: false,
            closed: false,
            begun: false,
            told: None,
        }
    }

    /// Of a job that another coordinator has led so far, to generation `generation` of these members in the order of their
    /// ranks. It is over, because that one has served its store; `reason` says so.
    pub(super) fn resume(
        rules: Rules,
        generation: u64,
        members: &[String],
        reason: &str,
        now: Instant,
    ) -> Self {
        let mut roster = Roster::new(rules, now);
        for (rank, member) in members.iter().enumerate() {
            let entry = roster.entry(member);
            entry.state = State::Seated;
            entry.order.0 = rank;
        }
        roster.generation = generation;
        if generation > 0 {
            roster.end(now, reason.into());
        }
        roster
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Another coordinator has come to a later generation than this one knows of.
    pub(super) fn catch_up(&mut self, generation: u64) {
        self.generation = self.generation.max(generation);
    }

    /// Members that are there, and that have been started.
    pub(super) fn members(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// Whether all members of the last generation have ended well: newcomers have nothing to do any more.
    pub(super) fn is_over(&self) -> bool {
        let never_seated = |entry: &Entry| entry.order.0 == usize::MAX;
        self.generation > 0 && self.over.is_none() && self.members.values().all(never_seated)
    }

    fn entry(&mut self, member: &str) -> &mut Entry {
        self.heard_of += 1;
        let fresh = Entry {
            state: State::Expected,
            order: (usize::MAX, self.heard_of),
            worked: None,
            settled: false,
        };
        self.members.entry(member.into()).or_insert(fresh)
    }

    /// A member has been started. One that is known already changes nothing.
    pub(super) fn expect(&mut self, member: &str) {
        self.entry(member);
    }

    /// Nobody else will be started.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// A member has come to the meeting.
    pub(super) fn arrive(&mut self, member: &str, arrival: u64, reason: Option<String>, now: Instant) {
        let entry = self.entry(member);
        let was = std::mem::replace(&mut entry.state, State::Waiting(arrival));
        if was == State::Seated {
            self.end(now, reason.unwrap_or_else(|| "members come or go".into()));
        }
    }

    /// A member that has come to the meeting has the state of the job.
    pub(super) fn settled(&mut self, member: &str) {
        self.entry(member).settled = true;
        self.begun = true;
    }

    /// Whether none of those who are there has the state of the job, as far as is known: those that had a seat got it.
    fn is_lost(&self) -> bool {
        match self.begun {
            true => !self.members.values().any(|entry| entry.settled),
            false => self.members.values().all(|entry| entry.order.0 == usize::MAX),
        }
    }

    /// A member that has come back would wait so long for those who have not.
    pub(super) fn told(&mut self, patience: Duration) {
        self.told = self.told.max(Some(patience));
    }

    /// A member's process has taken so much CPU time since it began.
    pub(super) fn worked(&mut self, member: &str, total: Duration, now: Instant) {
        if let Some(entry) = self.members.get_mut(member)
            && entry.worked.is_none_or(|(before, _)| total >= before + WORK)
        {
            entry.worked = Some((total, now));
        }
    }

    /// A member's process has ended; `failed` says how, if not well. Gives its rank in the generation it was in.
    pub(super) fn gone(&mut self, member: &str, failed: Option<&str>, now: Instant) -> Option<usize> {
        let Entry { state, order, .. } = self.members.remove(member)?;
        if state != State::Seated {
            return None;
        }
        if let Some(how) = failed {
            self.end(now, format!("rank {} ({member}) {how}", order.0));
        }
        Some(order.0)
    }

    fn end(&mut self, now: Instant, reason: String) {
        self.over.get_or_insert((now, reason));
    }

    /// What is to be done now. What has been decided counts as done.
    pub(super) fn decide(&mut self, now: Instant) -> Verdict {
        let count = |state: fn(&State) -> bool| self.members.values().filter(|e| state(&e.state)).count();
        let waiting = count(|state| matches!(state, State::Waiting(_)));
        let seated = count(|state| *state == State::Seated);
        let expected = count(|state| *state == State::Expected);
        if waiting == 0 {
            return Verdict::Wait;
        }
        if self.generation == 0 {
            let late = now >= self.began + self.rules.start;
            return match expected {
                0 if waiting >= self.rules.min => self.form("the job begins".into()),
                _ if late && waiting >= self.rules.min => self.form("the job begins without all".into()),
                _ if late => self.refuse(now - self.began),
                _ => Verdict::Wait,
            };
        }
        if seated == 0 && self.is_lost() {
            let guests = self.guests();
            self.forget(&guests);
            return Verdict::Orphan(guests);
        }
        match (&self.over, seated) {
            (Some((_, reason)), 0) if waiting >= self.rules.min => self.form(reason.clone()),
            (Some(_), 0) if self.closed && expected == 0 => self.refuse(Duration::ZERO),
            (Some((since, _)), 0) if now >= *since + self.rules.wait => self.refuse(now - *since),
            (Some((since, _)), 1..) => self.evict(now, now - *since),
            (Some(_), 0) => Verdict::Wait,
            // All seated members have ended well.
            (None, 0) if waiting >= self.rules.min => self.form("members have left".into()),
            (None, 0) => {
                self.end(now, "members have left".into());
                Verdict::Wait
            }
            (None, _) if std::mem::replace(&mut self.asked, true) => Verdict::Wait,
            (None, _) => Verdict::Change,
        }
    }

    /// Those who wait: first those who have had a seat, in the order of their ranks.
    fn guests(&self) -> Vec<Guest> {
        let waiting = |(member, entry): (&String, &Entry)| match entry.state {
            State::Waiting(arrival) => Some((entry.order, Guest { member: member.clone(), arrival })),
            State::Expected | State::Seated => None,
        };
        let mut guests: Vec<_> = self.members.iter().filter_map(waiting).collect();
        guests.sort_by_key(|(order, _)| *order);
        guests.into_iter().map(|(_, guest)| guest).collect()
    }

    fn forget(&mut self, guests: &[Guest]) {
        self.members.retain(|member, _| guests.iter().all(|guest| guest.member != *member));
    }

    fn form(&mut self, reason: String) -> Verdict {
        let guests = self.guests();
        for (rank, guest) in guests.iter().enumerate() {
            let entry = self.entry(&guest.member);
            entry.state = State::Seated;
            entry.order.0 = rank;
        }
        self.generation += 1;
        (self.over, self.asked, self.told) = (None, false, None);
        Verdict::Form { guests, reason }
    }

    /// Those that the others have waited for too long. One whose process works may evaluate, or write a checkpoint.
    fn evict(&mut self, now: Instant, waited: Duration) -> Verdict {
        let patience = self.told.unwrap_or(self.rules.patience);
        let most = patience.max(self.rules.patience).saturating_mul(WORK_FACTOR);
        let works = |entry: &Entry| entry.worked.is_some_and(|(_, last)| now < last + WORKS);
        let hangs = |entry: &Entry| {
            entry.state == State::Seated && waited >= patience && (waited >= most || !works(entry))
        };
        let hung = self.members.iter().filter(|(_, entry)| hangs(entry));
        let names: Vec<String> = hung.map(|(member, _)| member.clone()).collect();
        self.members.retain(|_, entry| !hangs(entry));
        if names.is_empty() { Verdict::Wait } else { Verdict::Evict(names) }
    }

    fn refuse(&mut self, waited: Duration) -> Verdict {
        let guests = self.guests();
        self.forget(&guests);
        Verdict::Refuse { guests, waited }
    }
}

#[cfg(test)]
#[path = "roster_tests.rs"]
mod tests;
