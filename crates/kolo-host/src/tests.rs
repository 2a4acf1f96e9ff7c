//! Every way in which workers can die in an update, and while the others complete it: the bits are those of
//! the undisturbed run.

use std::sync::Arc;

use kolo_comm::Rank;
use kolo_optim::{Kind, Layout, ParamSpec, Scope};
use kolo_reduction::blocks;
use kolo_testing::subsets;
use kolo_values::HostValues;

use crate::{Decision, HostMemory, HostReport, HostState, Role, decide};

const LENS: [usize; 6] = [3, 1, 5, 2, 4, 1];
/// Steps and updates before the one that is interrupted; some steps had no update.
const BEFORE: (u64, u64) = (5, 3);

fn layout() -> Arc<Layout> {
    let spec = |(n, len): (usize, &usize)| ParamSpec::new(n.to_string(), vec![*len], Kind::Frozen);
    Arc::new(Layout::new(LENS.iter().enumerate().map(spec).collect()))
}

/// A rule whose result depends on how often it was applied to value and state, with two arrays of state.
fn rule(values: &mut [f32], sums: &[f32], [first, second]: [&mut [f32]; 2]) {
    for (n, value) in values.iter_mut().enumerate() {
        first[n] = 0.5 * first[n] + sums[n];
        second[n] += first[n] * sums[n];
        *value -= 0.125 * first[n] / (1.0 + second[n].abs());
    }
}

fn sums(update: u64) -> Vec<f32> {
    (0..layout().len()).map(|n| ((n as u64 + 1) * update % 11) as f32 - 4.5).collect()
}

/// Values and state after so many updates, by plain code.
fn expected(updates: u64) -> [Vec<f32>; 3] {
    let len = layout().len();
    let [mut values, mut first, mut second] = [vec![1.0; len], vec![0.0; len], vec![0.0; len]];
    (1..=updates).for_each(|update| rule(&mut values, &sums(update), [&mut first, &mut second]));
    [values, first, second]
}

/// A worker as `kolo_sync` has it, without its step.
struct Worker {
    host: HostState,
    values: HostValues,
    report: HostReport,
}

impl Worker {
    fn new(memory: &Arc<HostMemory>, rank: usize, world: usize, [steps, updates]: [u64; 2]) -> Self {
        let memory = HostMemory::open(memory.place(), memory.blocks().to_vec(), 2).unwrap();
        let values = HostValues::new(layout(), (updates % 2) as usize, memory.map_versions()).unwrap();
        let ranks: Vec<Rank> = (0..world).map(Rank).collect();
        let host = HostState::new(memory, &layout(), Scope::Tensor, &ranks, Rank(rank), updates).unwrap();
        let report = HostReport { steps: Some(steps), updates, ..HostReport::default() };
        Worker { host, values, report }
    }

    fn put_sums(&mut self, update: u64) {
        for block in self.host.own_blocks() {
            let range = self.host.memory.blocks()[block].clone();
            self.values.next_mut(range.clone()).copy_from_slice(&sums(update)[range]);
        }
        self.report.is_ready = true;
    }

    /// Steps blocks; returns false if it stops in the middle of one.
    fn step(&mut self, blocks: &[usize], update: u64) -> bool {
        for block in blocks {
            let (slice, saved) = self.host.begin_block(*block, update, &mut self.values);
            if self.host.stops_here(*block, &mut self.values) {
                return false;
            }
            let place = slice.place(&layout());
            // SAFETY: nothing else runs.
            let state = [0, 1].map(|array| unsafe { self.host.memory.state(array, place.clone()) });
            rule(self.values.next_mut(place), saved.sums(), state);
            self.host.end_block(*block, update);
        }
        true
    }

    fn switch(&mut self, update: u64) {
        self.values.set_current((update % 2) as usize);
        (self.host.updates, self.report.updates) = (update, update);
    }

    fn end_step(&mut self, update: u64) {
        self.switch(update);
        self.report.steps = self.report.steps.map(|steps| steps + 1);
        self.report.is_ready = false;
    }

    fn reported(&self) -> HostReport {
        let memory = Some(self.host.memory.place());
        HostReport { begun: self.host.memory.begun(), memory, ..self.report }
    }

    fn expect(&self, updates: u64, case: &str) {
        let [values, first, second] = expected(updates);
        assert_eq!(*self.values, *values, "{case}");
        for (array, expected) in [first, second].iter().enumerate() {
            // SAFETY: nothing else runs.
            let state = unsafe { self.host.memory.state(array, 0..expected.len()) };
            assert_eq!(state, expected, "{case}, array {array}");
        }
    }
}

/// Stage of a worker in an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Summing,
    Ready,
    /// So many blocks done, and in the middle of the next one.
    Within(usize),
    /// All own blocks are done.
    Done,
    Switched,
}

const STAGES: [Stage; 6] =
    [Stage::Summing, Stage::Ready, Stage::Within(0), Stage::Within(1), Stage::Done, Stage::Switched];

/// All stages of so many workers that can occur together.
fn stages(workers: usize) -> Vec<Vec<Stage>> {
    kolo_testing::stages(workers, &STAGES, |most| match most {
        Stage::Summing | Stage::Ready => Stage::Summing,
        Stage::Within(_) | Stage::Done => Stage::Ready,
        Stage::Switched => Stage::Done,
    })
}

/// Returns workers at these stages of the update after [`BEFORE`].
fn at(stages: &[Stage]) -> Vec<Worker> {
    let memory = HostMemory::create(blocks(&layout(), Scope::Tensor).collect(), 2).unwrap();
    let (world, update) = (stages.len(), BEFORE.1 + 1);
    let new = |rank| Worker::new(&memory, rank, world, [BEFORE.0, 0]);
    let mut workers: Vec<Worker> = (0..world).map(new).collect();
    workers[0].values.fill(1.0);
    for update in 1..update {
        workers.iter_mut().for_each(|worker| worker.put_sums(update));
        memory.begin(update);
        for worker in &mut workers {
            assert!(worker.step(&worker.host.own_blocks(), update));
        }
        workers.iter_mut().for_each(|worker| worker.switch(update));
    }
    for (worker, stage) in workers.iter_mut().zip(stages) {
        worker.report.is_ready = false;
        if *stage >= Stage::Ready {
            worker.put_sums(update);
        }
    }
    for (worker, stage) in workers.iter_mut().zip(stages).filter(|(_, stage)| **stage > Stage::Ready) {
        memory.begin(update);
        if let Stage::Within(blocks) = stage {
            worker.host.stop_after_for_tests(*blocks);
        }
        let is_done = worker.step(&worker.host.own_blocks(), update);
        assert_eq!(is_done, *stage >= Stage::Done);
        if *stage == Stage::Switched {
            worker.end_step(update);
        }
    }
    workers
}

/// Lets workers meet, as `kolo_sync` does. With `stops`, that one stops in the middle of the first block that
/// it completes, and nobody gets further.
fn meet(workers: &mut Vec<Worker>, newcomers: usize, stops: Option<usize>) -> Decision {
    let mut reports: Vec<HostReport> = workers.iter().map(Worker::reported).collect();
    reports.extend(vec![HostReport::default(); newcomers]);
    let decision = decide(&reports).unwrap();
    let (update, world) = (decision.updates, reports.len());
    let completing = decision.completing();
    if let Some(first) = completing.first() {
        let Worker { host, values, .. } = &mut workers[*first];
        host.restore(update, values);
    }
    let ranks: Vec<Rank> = (0..world).map(Rank).collect();
    for (rank, worker) in workers.iter_mut().enumerate() {
        let memory = worker.host.memory.clone();
        let updates = worker.host.updates;
        worker.host = HostState::new(memory, &layout(), Scope::Tensor, &ranks, Rank(rank), updates).unwrap();
    }
    for (place, rank) in completing.iter().enumerate() {
        let worker = &mut workers[*rank];
        let rest = worker.host.rest(update, place, completing.len());
        if stops == Some(*rank) {
            worker.host.stop_after_for_tests(0);
        }
        worker.step(&rest, update);
    }
    if stops.is_some() {
        return decision;
    }
    for (worker, role) in workers.iter_mut().zip(&decision.roles) {
        match role {
            Role::Completes => worker.end_step(update),
            _ => worker.switch(update),
        }
        worker.report.is_ready = false;
    }
    let memory = workers[0].host.memory.clone();
    workers.extend(
        (0..newcomers)
            .map(|n| Worker::new(&memory, world - newcomers + n, world, [decision.steps, decision.updates])),
    );
    decision
}

/// Checks that workers are where the undisturbed run is, now and after another update.
fn expect_whole(workers: &mut [Worker], has_begun: bool, case: &str) {
    let (steps, updates) = (BEFORE.0 + u64::from(has_begun), BEFORE.1 + u64::from(has_begun));
    for worker in &*workers {
        assert_eq!((worker.report.steps, worker.report.updates), (Some(steps), updates), "{case}");
        worker.expect(updates, case);
    }
    let update = updates + 1;
    workers.iter_mut().for_each(|worker| worker.put_sums(update));
    workers[0].host.memory.begin(update);
    for worker in &mut *workers {
        assert!(worker.step(&worker.host.own_blocks(), update));
    }
    for worker in workers {
        worker.switch(update);
        worker.expect(update, case);
    }
}

#[test]
fn no_death_in_an_update_changes_the_bits() {
    let mut cases = 0;
    for stages in (1..=3).flat_map(stages) {
        let has_begun = stages.iter().any(|stage| *stage > Stage::Ready);
        for alive in subsets::<Vec<_>>(stages.len()).filter(|alive| !alive.is_empty()) {
            let newcomers = cases % 2;
            let case = format!("{stages:?}, {alive:?}, {newcomers} newcomers");
            let living = |workers: Vec<Worker>, alive: &[usize]| -> Vec<Worker> {
                let all = workers.into_iter().enumerate();
                all.filter(|(rank, _)| alive.contains(rank)).map(|(_, worker)| worker).collect()
            };
            let mut workers = living(at(&stages), &alive);
            let decision = meet(&mut workers, newcomers, None);
            assert_eq!(decision.steps, BEFORE.0 + u64::from(has_begun), "{case}");
            expect_whole(&mut workers, has_begun, &case);
            cases += 1;
            // Of those that complete the update one dies in the middle of a block.
            for stops in decision.completing().into_iter().filter(|_| alive.len() > 1) {
                let mut workers = living(at(&stages), &alive);
                meet(&mut workers, 0, Some(stops));
                workers.remove(stops);
                meet(&mut workers, newcomers, None);
                expect_whole(&mut workers, true, &format!("{case}, then {stops}"));
                cases += 1;
            }
        }
    }
    assert!(cases > 500, "{cases}");
}

#[test]
fn a_skipped_step_that_some_have_ended_is_ended_by_all() {
    let report = |steps, is_ready| HostReport {
        steps: Some(steps),
        updates: 5,
        is_ready,
        is_skipped: is_ready,
        begun: 5,
        memory: Some(crate::MemoryPlace { pid: 1, file: 3 }),
    };
    let roles = |reports: &[HostReport]| {
        let Decision { steps, updates, roles, donor, .. } = decide(reports).unwrap();
        (steps, updates, roles, donor)
    };
    use Role::{Completes, Keeps, Receives, Repeats};
    let newcomer = HostReport::default();
    assert_eq!(
        roles(&[newcomer, report(7, true), report(8, false)]),
        (8, 5, vec![Receives, Completes, Keeps], 1)
    );
    assert_eq!(roles(&[report(7, true), report(7, true)]), (7, 5, vec![Repeats, Repeats], 0));
    assert_eq!(decide(&[newcomer, newcomer]), None);
}

#[test]
fn another_models_memory_is_refused() {
    let memory = HostMemory::create(vec![0..3, 3..9], 1).unwrap();
    let open = |blocks, arrays| HostMemory::open(memory.place(), blocks, arrays).map(drop);
    open(vec![0..3, 3..9], 1).unwrap();
    for (blocks, arrays) in [(vec![0..4, 4..9], 1), (vec![0..3, 3..9], 0)] {
        let error = open(blocks, arrays).unwrap_err().to_string();
        assert!(error.contains("another model or optimizer"), "{error}");
    }
}
