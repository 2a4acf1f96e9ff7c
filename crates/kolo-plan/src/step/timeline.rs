//! Timeline of a step in which buckets are reduced while the backward pass continues.

use crate::step::load::Load;
use crate::step::profile::StepProfile;

/// Number of steps after which steps no longer change.
const STEPS: usize = 6;

/// Durations below this are rounding errors, in seconds.
const ROUNDING: f64 = 1e-12;

/// Timeline of one of many equal steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeline {
    /// Seconds from the beginning of one step to that of the next.
    pub step: f64,
    /// Seconds of these in which the worker waits for communication.
    pub exposed: f64,
    /// Seconds of these in which a bucket is being reduced, if nothing else runs.
    pub wire: f64,
}

/// Overlap of computation and communication.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    /// True if the next forward pass begins while buckets are in transit.
    pub forward: bool,
    /// True if updates are one step late.
    pub delayed: bool,
    /// Share of a core's communication time that is taken from computation.
    pub contended: f64,
    /// Messages of the workers at the beginning and the end of each backward pass, ahead of all buckets:
    /// Kolo's loss, and its agreement on the step. The worker waits for the agreement.
    pub agreement: Option<Load>,
}

impl Default for Overlap {
    /// Overlap of other frameworks: the forward pass waits, and there is no agreement.
    fn default() -> Self {
        Overlap { forward: false, delayed: false, contended: 0.0, agreement: None }
    }
}

/// Simulates some steps whose buckets take these `loads`, one after another. Of the ready buckets, the one
/// that the next forward pass needs first goes first. A bucket's parameters are updated once it is back and a
/// forward pass needs them; without overlap all of them are updated before the forward pass begins.
pub fn timeline(profile: &StepProfile, loads: &[Load], overlap: Overlap) -> Timeline {
    let buckets = &profile.buckets;
    let mut by_need: Vec<usize> = (0..buckets.len()).collect();
    by_need.sort_by(|a, b| buckets[*a].needed.total_cmp(&buckets[*b].needed));
    let mut by_ready: Vec<usize> = (0..buckets.len()).collect();
    by_ready.sort_by(|a, b| buckets[*a].ready.total_cmp(&buckets[*b].ready));
    let update = |bucket: usize| profile.optimizer * buckets[bucket].bytes / profile.bytes().max(1.0);
    let mut rank = vec![0; buckets.len()];
    by_need.iter().enumerate().for_each(|(place, bucket)| rank[*bucket] = place + 1);
    let mut worker = Worker { now: 0.0, wire: Wire::default(), contended: overlap.contended };
    let wire = loads.iter().map(|load| load.seconds).sum();
    let mut last = Timeline { step: 0.0, exposed: 0.0, wire };
    for step in 0..STEPS {
        let (began, mut exposed, mut done) = (worker.now, 0.0, 0.0);
        let due = step.checked_sub(if overlap.delayed { 2 } else { 1 });
        if let Some(due) = due.filter(|_| !overlap.forward) {
            by_need.iter().for_each(|bucket| exposed += worker.wait(due, rank[*bucket]));
        }
        for &bucket in &by_need {
            if overlap.forward {
                let computed = buckets[bucket].needed.clamp(done, profile.forward);
                worker.compute(computed - done);
                done = computed;
                exposed += due.map_or(0.0, |due| worker.wait(due, rank[bucket]));
            }
            worker.compute(update(bucket));
        }
        worker.compute(profile.forward - done);
        let agreement = |place| overlap.agreement.map(|load| Job { step, place, load });
        agreement(0).into_iter().for_each(|loss| worker.start(loss));
        let mut passed = 0.0;
        for &bucket in &by_ready {
            let ready = buckets[bucket].ready.clamp(passed, profile.backward);
            worker.compute(ready - passed);
            passed = ready;
            worker.start(Job { step, place: rank[bucket], load: loads[bucket] });
        }
        worker.compute(profile.backward - passed);
        if let Some(agreement) = agreement(0) {
            worker.start(agreement);
            let ended = step.checked_sub(usize::from(overlap.delayed));
            exposed += ended.map_or(0.0, |ended| worker.wait(ended, 0));
        }
        last = Timeline { step: worker.now - began, exposed, ..last };
    }
    last
}

/// Collective that was started.
#[derive(Clone, Copy, Debug)]
struct Job {
    step: usize,
    /// Order in which the collectives of a step are needed.
    place: usize,
    load: Load,
}

/// Collectives, one after another.
#[derive(Default)]
struct Wire {
    /// Collective in transit, and its remaining seconds.
    current: Option<(Job, f64)>,
    waiting: Vec<Job>,
}

impl Wire {
    fn add(&mut self, job: Job) {
        self.waiting.push(job);
        self.start_next();
    }

    /// Starts the collective that is needed first, if none is in transit.
    fn start_next(&mut self) {
        if self.current.is_some() {
            return;
        }
        let first = self.waiting.iter().enumerate().min_by_key(|(_, job)| (job.step, job.place));
        if let Some(first) = first.map(|(index, _)| index) {
            let job = self.waiting.remove(first);
            self.current = Some((job, job.load.seconds));
        }
    }

    fn has(&self, step: usize, place: usize) -> bool {
        let is = |job: &Job| (job.step, job.place) == (step, place);
        self.current.iter().map(|(job, _)| job).any(is) || self.waiting.iter().any(is)
    }

    /// Advances the collective in transit by `seconds`.
    fn pass(&mut self, seconds: f64) {
        if let Some((_, left)) = &mut self.current {
            *left -= seconds;
            if *left <= ROUNDING {
                self.current = None;
                self.start_next();
            }
        }
    }
}

/// Time of a worker, and its wire.
struct Worker {
    now: f64,
    wire: Wire,
    contended: f64,
}

impl Worker {
    fn start(&mut self, job: Job) {
        self.wire.add(job);
    }

    /// Computes for `work` seconds of a core. A collective that needs the core slows both down; each gets at
    /// least half of the core, if it needs that much.
    fn compute(&mut self, mut work: f64) {
        while work > 0.0 {
            let Some((job, left)) = self.wire.current else {
                self.now += work;
                return;
            };
            let wanted = self.contended * job.load.cpu / job.load.seconds.max(ROUNDING);
            let (computing, reducing) = if wanted > 0.5 { (0.5, 0.5 / wanted) } else { (1.0 - wanted, 1.0) };
            let (until_done, until_back) = (work / computing, left / reducing);
            let passed = until_done.min(until_back);
            self.now += passed;
            work = if until_done <= until_back { 0.0 } else { work - passed * computing };
            let moved = if until_back <= until_done { left } else { passed * reducing };
            self.wire.pass(moved);
        }
    }

    /// Waits until a collective is over; returns the seconds waited.
    fn wait(&mut self, step: usize, place: usize) -> f64 {
        let began = self.now;
        while self.wire.has(step, place) {
            let left = self.wire.current.map_or(0.0, |(_, left)| left);
            self.now += left;
            self.wire.pass(left);
        }
        self.now - began
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::profile::Bucket;

    fn loads(profile: &StepProfile, seconds: f64, cpu: f64) -> Vec<Load> {
        vec![Load { seconds, cpu, algorithm: "" }; profile.buckets.len()]
    }

    fn step(profile: &StepProfile, cost: f64, forward: bool) -> Timeline {
        timeline(profile, &loads(profile, cost, 0.0), Overlap { forward, ..Overlap::default() })
    }

    #[test]
    fn a_step_without_communication_is_that_of_one_worker() {
        let profile = StepProfile::even(1.0, 2.0, 0.5, 4e6, 1e6);
        for overlap in [false, true] {
            let alone = step(&profile, 0.0, overlap);
            assert!((alone.step - 3.5).abs() < 1e-12 && alone.exposed == 0.0, "{alone:?}");
        }
    }

    /// end e = max over j of (r_j + the costs from j on); T = max(T_f + T_b, e) + T_opt, for equal buckets
    /// and a forward pass that waits for all.
    #[test]
    fn exposed_time_matches_the_textbook() {
        for (cost, count) in [(0.1, 4), (0.5, 4), (0.9, 4), (0.3, 1), (2.0, 7)] {
            let profile = StepProfile::even(1.0, 2.0, 0.5, count as f64, 1.0);
            let ready = |j: usize| 2.0 * (j + 1) as f64 / count as f64;
            let end = (0..count).map(|j| ready(j) + (count - j) as f64 * cost).fold(0.0, f64::max);
            let result = step(&profile, cost, false);
            assert!((result.step - (1.0 + end.max(2.0) + 0.5)).abs() < 1e-9, "{cost} {count}: {result:?}");
            assert!((result.exposed - (end - 2.0)).abs() < 1e-9);
        }
    }

    #[test]
    fn a_forward_pass_that_need_not_wait_hides_more() {
        let profile = StepProfile::even(1.0, 2.0, 0.5, 4.0, 1.0);
        for cost in [0.1, 0.6, 0.8, 3.0] {
            let (with, without) = (step(&profile, cost, true), step(&profile, cost, false));
            // The bucket needed first comes back last; among short buckets it is the only one waited for.
            let gain = without.step - with.step;
            assert!(if cost > 0.7 { gain > 1e-3 } else { gain > -1e-9 }, "{cost}: {with:?} {without:?}");
            assert!(
                with.step >= (4.0 * cost).max(3.5) - 1e-9,
                "{cost}: neither the wire nor the worker can be passed"
            );
        }
    }

    #[test]
    fn the_wire_is_the_least_that_a_step_takes() {
        let buckets = vec![Bucket { bytes: 1.0, wire_bytes: 1.0, ready: 0.0, needed: 1.0 }];
        let profile = StepProfile { forward: 1.0, backward: 1.0, optimizer: 0.0, buckets };
        let result = step(&profile, 10.0, true);
        // The bucket is ready when the backward pass begins and needed when the next forward pass is over.
        assert!((result.step - 10.0).abs() < 1e-9 && (result.exposed - 8.0).abs() < 1e-9, "{result:?}");
    }

    #[test]
    fn communication_that_occupies_a_core_is_not_hidden() {
        let profile = StepProfile::even(1.0, 2.0, 0.5, 4.0, 1.0);
        let seconds = |contended: f64, cpu: f64| {
            let overlap = Overlap { forward: true, contended, ..Overlap::default() };
            timeline(&profile, &loads(&profile, 0.2, cpu), overlap).step
        };
        let free = seconds(0.0, 0.2);
        assert!((seconds(1.0, 0.0) - free).abs() < 1e-9);
        // All of the four collectives is computation, whenever it runs.
        assert!((seconds(1.0, 0.2) - (3.5 + 0.8)).abs() < 1e-9, "{}", seconds(1.0, 0.2));
        // The last collective overlaps only the computation that it delays.
        let tenth = seconds(1.0, 0.02);
        assert!(tenth > free && tenth < free + 0.08 + 1e-9, "{tenth} {free}");
    }

    #[test]
    fn delayed_updates_have_a_step_to_travel() {
        let profile = StepProfile::even(1.0, 2.0, 0.5, 4.0, 1.0);
        let seconds = |cost: f64, delayed: bool| {
            let overlap = Overlap { forward: true, delayed, ..Overlap::default() };
            timeline(&profile, &loads(&profile, cost, 0.0), overlap).step
        };
        assert!(seconds(0.85, false) > 3.5 + 1e-6);
        assert!((seconds(0.85, true) - 3.5).abs() < 1e-9, "{}", seconds(0.85, true));
        assert!((seconds(2.0, true) - 8.0).abs() < 1e-6, "the wire cannot be passed: {}", seconds(2.0, true));
    }

    #[test]
    fn the_agreement_waits_for_the_bucket_that_is_on_its_way() {
        let profile = StepProfile::even(1.0, 2.0, 0.0, 2.0, 1.0);
        let agreement = Some(Load { seconds: 0.1, cpu: 0.0, algorithm: "" });
        let overlap = Overlap { forward: true, agreement, ..Overlap::default() };
        // The first bucket starts after 1 of 2 s of the backward pass and takes 1.5 s. The agreement begins
        // 0.5 s after the pass, and the second bucket 0.1 s later. The forward pass needs it at once.
        let result = timeline(&profile, &loads(&profile, 1.5, 0.0), overlap);
        assert!((result.step - (3.0 + 0.5 + 0.1 + 1.5)).abs() < 1e-9, "{result:?}");
    }
}
