//! The actions that are possible in a state, and their effects.

use std::collections::BTreeSet;

use stateright::{Model, Property};

use super::state::{Actor, Generation, Launcher, Place, State, Worker, name};
use super::{Job, Rule};
use crate::arbiter::{Arbiter, Claim, Record, Verdict};
use crate::generation::{Formed, GenerationId, History};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// A worker leaves its generation, if it is in one, and arrives at a leader. Its launcher follows that
    /// leader from now on and reports everything that it knows.
    Arrive { worker: Actor, leader: Actor },
    /// A launcher claims a generation of all workers that it believes to wait.
    Claim { leader: Actor },
    /// A claim is granted, and the answer is lost.
    LoseAnswer { leader: Actor },
    /// A waiting worker learns of a generation, and enters it.
    Enter { worker: Actor, generation: GenerationId },
    /// A worker learns that all members have entered its generation.
    Form { worker: Actor },
    /// All members of a generation make a step.
    Step { generation: GenerationId },
    /// A worker dies, and its launcher notices.
    Die { worker: Actor },
    /// A launcher dies with its workers, and no other process notices.
    Crash { launcher: Actor },
}

impl Job {
    /// Builds a launcher's claim, as its leader makes it.
    fn claim(&self, state: &State, leader: Actor) -> Option<Claim> {
        let launcher = state.launchers[leader].as_ref()?;
        let lineage = match self.rule {
            // Workers that have arrived at this leader are reachable; all others count as dead.
            Rule::MajorityOfReachable => {
                let mut lineage = launcher.lineage.clone();
                let away = (0..self.nodes.len()).filter(|worker| !launcher.candidates.contains_key(worker));
                away.for_each(|worker| lineage.died(&name(worker)));
                lineage
            }
            _ => launcher.lineage.clone(),
        };
        let entered_none = |history: &History| History { entered: Vec::new(), ..history.clone() };
        let histories: Vec<History> = match self.rule {
            Rule::MajorityOfFormed => launcher.candidates.values().map(entered_none).collect(),
            _ => launcher.candidates.values().cloned().collect(),
        };
        Some(Claim {
            job: 0,
            leader: leader as u64,
            place: String::new(),
            newest: lineage.newest(),
            members: launcher.candidates.keys().map(|worker| name(*worker)).collect(),
            left: histories.iter().flat_map(History::all).collect(),
            abandoned: Default::default(),
            announced: lineage.generations().iter().map(Formed::id).collect(),
            predecessors: lineage.predecessors(histories.iter()),
        })
    }

    /// Decides a claim. Returns the granted number.
    fn granted(&self, state: &mut State, claim: &Claim) -> Option<u64> {
        let majority = |claim: &Claim| match Arbiter::default().claim(claim) {
            Ok(Verdict::Granted(number)) => Some(number),
            _ => None,
        };
        let record = |generation: u64| Record {
            generation,
            leader: claim.leader,
            place: String::new(),
            members: claim.members.clone(),
        };
        match self.rule {
            Rule::NoArbiter => Some(claim.newest + 1),
            Rule::Half => {
                let mut claim = claim.clone();
                for predecessor in &mut claim.predecessors {
                    // A worker that is present counts as the one with the lowest rank.
                    let here = |member: &String| !claim.members.contains(member);
                    predecessor.members.iter_mut().for_each(|members| members.sort_by_key(here));
                }
                majority(&claim)
            }
            Rule::Recorded | Rule::RecordedOfWaiting | Rule::OwnNumber => {
                let last = state.record.clone();
                let is_over = |last: &Record| match self.rule {
                    Rule::RecordedOfWaiting => last.members.iter().any(|it| claim.members.contains(it)),
                    Rule::Recorded => claim.is_over(last),
                    _ => true,
                };
                if last.as_ref().is_some_and(|last| !is_over(last)) {
                    return None;
                }
                let number = match self.rule {
                    Rule::OwnNumber => claim.newest + 1,
                    _ => last.map_or(0, |last| last.generation) + 1,
                };
                state.record = Some(record(number));
                Some(number)
            }
            _ => majority(claim),
        }
    }

    fn claims(&self, state: &State, leader: Actor) -> Option<State> {
        let claim = self.claim(state, leader)?;
        let mut next = state.clone();
        let number = self.granted(&mut next, &claim)?;
        let id = GenerationId { number, leader: claim.leader };
        // A leader's numbers grow, so an existing number means that the rule is wrong.
        if next.generation(id).is_some() {
            return None;
        }
        let launcher = next.launchers[leader].as_mut()?;
        let members = std::mem::take(&mut launcher.candidates);
        let formed = Formed {
            generation: number,
            leader: claim.leader,
            identities: claim.members.clone(),
            ..Formed::default()
        };
        launcher.lineage.announced(&formed);
        let members = members.into_keys().collect();
        next.generations.push(Generation {
            formed,
            members,
            entered: Default::default(),
            ready: Default::default(),
        });
        Some(next)
    }

    fn arrive(&self, state: &State, worker: Actor, leader: Actor) -> Option<State> {
        let mut next = state.clone();
        let own = next.launchers[self.nodes[worker]].clone()?;
        next.workers[worker].place = Place::Waits(leader);
        let history = next.workers[worker].history.clone();
        let launcher = next.launchers[leader].as_mut()?;
        share_lineage(launcher, &own);
        launcher.lineage.reported(&history);
        launcher.candidates.insert(worker, history);
        Some(next)
    }

    fn enter(&self, state: &State, worker: Actor, id: GenerationId) -> Option<State> {
        let mut next = state.clone();
        let entering = &mut next.workers[worker];
        if !entering.history.enter(id) {
            return None;
        }
        entering.place = Place::In(id);
        let generation = next.generation_mut(id)?;
        generation.entered.insert(worker);
        let formed = generation.formed.clone();
        next.launchers[self.nodes[worker]].as_mut()?.lineage.announced(&formed);
        Some(next)
    }

    fn form(&self, state: &State, worker: Actor) -> Option<State> {
        let Place::In(id) = state.workers[worker].place else { return None };
        let mut next = state.clone();
        next.workers[worker].history.formed();
        let history = next.workers[worker].history.clone();
        next.generation_mut(id)?.ready.insert(worker);
        next.launchers[self.nodes[worker]].as_mut()?.lineage.reported(&history);
        Some(next)
    }

    fn step(&self, state: &State, id: GenerationId) -> Option<State> {
        let mut next = state.clone();
        let members = next.generation(id)?.members.clone();
        // Members that are behind get the state of the most advanced one.
        let steps = members.iter().map(|worker| next.workers[*worker].steps).max()? + 1;
        members.iter().for_each(|worker| next.workers[*worker].steps = steps);
        next.again |= usize::from(steps) <= next.steps.len();
        next.at_once |= state.generations.iter().filter(|other| Job::can_step(state, other)).count() > 1;
        next.steps.push(id);
        Some(next)
    }

    fn die(&self, state: &State, worker: Actor) -> Option<State> {
        let mut next = state.clone();
        next.deaths += 1;
        next.workers[worker].place = Place::Dead;
        next.launchers[self.nodes[worker]].as_mut()?.lineage.died(&name(worker));
        Some(next)
    }

    fn crash(&self, state: &State, launcher: Actor) -> State {
        let mut next = state.clone();
        next.deaths += 1;
        next.launchers[launcher] = None;
        for worker in (0..self.nodes.len()).filter(|worker| self.nodes[*worker] == launcher) {
            next.workers[worker].place = Place::Dead;
        }
        next
    }

    /// Returns true if a worker can enter a generation: it belongs to it, and waits at its leader.
    fn can_enter(worker: Actor, place: Place, generation: &Generation) -> bool {
        let leader = generation.formed.leader as usize;
        let entered = &generation.entered;
        generation.members.contains(&worker) && place == Place::Waits(leader) && !entered.contains(&worker)
    }

    fn can_step(state: &State, generation: &Generation) -> bool {
        let id = generation.formed.id();
        let works = |worker: &Actor| {
            state.workers[*worker].place == Place::In(id) && generation.ready.contains(worker)
        };
        generation.members.iter().all(works)
    }
}

/// Passes on the generations and dead members that another launcher knows.
fn share_lineage(launcher: &mut Launcher, from: &Launcher) {
    from.lineage.generations().iter().for_each(|formed| launcher.lineage.announced(formed));
    from.lineage.dead().for_each(|dead| launcher.lineage.died(dead));
}

impl Model for Job {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        // All workers train together, under the first launcher.
        let id = GenerationId { number: 1, leader: 0 };
        let identities: Vec<String> = (0..self.nodes.len()).map(name).collect();
        let formed = Formed { generation: 1, leader: 0, identities, ..Formed::default() };
        let history = History { formed: Some(id), entered: Vec::new() };
        let worker = Worker { place: Place::In(id), history: history.clone(), steps: 1 };
        let mut launcher = Launcher::default();
        launcher.lineage.announced(&formed);
        launcher.lineage.reported(&history);
        let members: BTreeSet<Actor> = (0..self.nodes.len()).collect();
        let record =
            Record { generation: 1, leader: 0, place: String::new(), members: formed.identities.clone() };
        vec![State {
            workers: vec![worker; self.nodes.len()],
            launchers: vec![Some(launcher); self.launchers],
            generations: vec![Generation {
                formed,
                members: members.clone(),
                entered: members.clone(),
                ready: members,
            }],
            steps: vec![id],
            again: false,
            at_once: false,
            record: Some(record),
            deaths: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let alive = |launcher: &Actor| state.launchers[*launcher].is_some();
        let launchers: Vec<Actor> = (0..self.launchers).filter(alive).collect();
        let may_die = state.deaths < self.deaths;
        for (worker, Worker { place, .. }) in state.workers.iter().enumerate() {
            match *place {
                Place::Dead => continue,
                Place::Waits(at) => {
                    let others = launchers.iter().filter(|leader| at != **leader);
                    actions.extend(others.map(|leader| Action::Arrive { worker, leader: *leader }));
                    let announced = state
                        .generations
                        .iter()
                        .filter(|announced| Job::can_enter(worker, *place, announced));
                    actions.extend(
                        announced
                            .map(|announced| Action::Enter { worker, generation: announced.formed.id() }),
                    );
                }
                Place::In(id) => {
                    actions.extend(launchers.iter().map(|leader| Action::Arrive { worker, leader: *leader }));
                    let generation = state.generation(id);
                    if generation.is_some_and(|it| it.entered == it.members && !it.ready.contains(&worker)) {
                        actions.push(Action::Form { worker });
                    }
                }
            }
            if may_die {
                actions.push(Action::Die { worker });
            }
        }
        for leader in &launchers {
            let has_candidates =
                state.launchers[*leader].as_ref().is_some_and(|it| !it.candidates.is_empty());
            if has_candidates && state.generations.len() < self.generations {
                actions.push(Action::Claim { leader: *leader });
                let lasts = state.record.as_ref().map_or(0, |record| record.generation);
                if self.rule == Rule::Recorded && lasts < self.generations as u64 {
                    actions.push(Action::LoseAnswer { leader: *leader });
                }
            }
            if may_die {
                actions.push(Action::Crash { launcher: *leader });
            }
        }
        if state.steps.len() < usize::from(self.steps) {
            let working = state.generations.iter().filter(|generation| Job::can_step(state, generation));
            actions.extend(working.map(|generation| Action::Step { generation: generation.formed.id() }));
        }
        // Removes claims that are not granted: Stateright's random runs need actions that have an effect.
        actions.retain(|action| self.next_state(state, action.clone()).is_some());
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        match action {
            Action::Arrive { worker, leader } => self.arrive(state, worker, leader),
            Action::Claim { leader } => self.claims(state, leader),
            Action::LoseAnswer { leader } => {
                let (claim, mut next) = (self.claim(state, leader)?, state.clone());
                self.granted(&mut next, &claim)?;
                Some(next)
            }
            Action::Enter { worker, generation } => self.enter(state, worker, generation),
            Action::Form { worker } => self.form(state, worker),
            Action::Step { generation } => self.step(state, generation),
            Action::Die { worker } => self.die(state, worker),
            Action::Crash { launcher } => Some(self.crash(state, launcher)),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one generation trains", |_, state: &State| !state.at_once),
            // A recording arbiter lets others go on without the newest state; they repeat steps, to the same
            // bits.
            Property::always("no step is made again", |job: &Job, state: &State| {
                matches!(job.rule, Rule::Recorded | Rule::RecordedOfWaiting) || !state.again
            }),
            Property::sometimes("the job goes on", |job: &Job, state: &State| {
                state.generations.len() > 1 && state.steps.len() == usize::from(job.steps)
            }),
        ]
    }
}
