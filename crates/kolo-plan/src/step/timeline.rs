//! Steps beside the wire: what a step takes when buckets are reduced while the backward pass goes on.

use crate::step::profile::StepProfile;

/// Steps after which one is like the one before.
const STEPS: usize = 6;

/// What one of many equal steps takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeline {
    /// Seconds from the beginning of one step to that of the next.
    pub step: f64,
    /// Those of them in which the worker waits for buckets.
    pub exposed: f64,
    /// Those of them in which a bucket is being reduced.
    pub wire: f64,
}

/// Follows some steps whose buckets take `seconds` each to reduce, one after another: of those that are
/// ready the one that the next forward pass needs first. A bucket's parameters are updated when it is back
/// and a forward pass needs them: with
/// `overlap_forward` the next one, which then begins while buckets are on their way, otherwise all before it
/// begins.
pub fn timeline(profile: &StepProfile, seconds: &[f64], overlap_forward: bool) -> Timeline {
    let buckets = &profile.buckets;
    let mut by_need: Vec<usize> = (0..buckets.len()).collect();
    by_need.sort_by(|a, b| buckets[*a].needed.total_cmp(&buckets[*b].needed));
    let update = |bucket: usize| profile.optimizer * buckets[bucket].bytes / profile.bytes().max(1.0);
    // When each bucket of the step before is back, and the wire is free.
    let (mut back, mut free) = (vec![0.0; buckets.len()], 0.0f64);
    let (mut now, mut last) = (0.0f64, Timeline { step: 0.0, exposed: 0.0, wire: seconds.iter().sum() });
    for _ in 0..STEPS {
        let (began, mut exposed, mut done) = (now, 0.0, 0.0);
        for &bucket in &by_need {
            if overlap_forward {
                let computed = buckets[bucket].needed.clamp(done, profile.forward);
                now += computed - done;
                done = computed;
            }
            let until = if overlap_forward { back[bucket] } else { free };
            let waited = (until - now).max(0.0);
            exposed += waited;
            now += waited + update(bucket);
        }
        now += profile.forward - done;
        let mut waiting = by_need.clone();
        while !waiting.is_empty() {
            let ready = |bucket: &usize| now + buckets[*bucket].ready;
            free = free.max(waiting.iter().map(ready).fold(f64::INFINITY, f64::min));
            let first = waiting.iter().position(|bucket| ready(bucket) <= free).unwrap_or(0);
            let bucket = waiting.remove(first);
            free += seconds[bucket];
            back[bucket] = free;
        }
        now += profile.backward;
        last = Timeline { step: now - began, exposed, ..last };
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::profile::Bucket;

    fn step(profile: &StepProfile, cost: f64, overlap_forward: bool) -> Timeline {
        timeline(profile, &vec![cost; profile.buckets.len()], overlap_forward)
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
    /// whose forward pass waits for all.
    #[test]
    fn what_is_exposed_is_what_the_textbook_says() {
        for (cost, count) in [(0.1, 4), (0.5, 4), (0.9, 4), (0.3, 1), (2.0, 7)] {
            let profile = StepProfile::even(1.0, 2.0, 0.5, count as f64, 1.0);
            let ready = |j: usize| 2.0 * (j + 1) as f64 / count as f64;
            let end = (0..count).map(|j| ready(j) + (count - j) as f64 * cost).fold(0.0, f64::max);
            let told = step(&profile, cost, false);
            assert!((told.step - (1.0 + end.max(2.0) + 0.5)).abs() < 1e-9, "{cost} {count}: {told:?}");
            assert!((told.exposed - (end - 2.0)).abs() < 1e-9);
        }
    }

    #[test]
    fn a_forward_pass_that_need_not_wait_hides_more() {
        let profile = StepProfile::even(1.0, 2.0, 0.5, 4.0, 1.0);
        for cost in [0.1, 0.6, 0.8, 3.0] {
            let (with, without) = (step(&profile, cost, true), step(&profile, cost, false));
            // What is needed first is back last: of short buckets that one alone is waited for in any case.
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
        let buckets = vec![Bucket { bytes: 1.0, ready: 0.0, needed: 1.0 }];
        let profile = StepProfile { forward: 1.0, backward: 1.0, optimizer: 0.0, buckets };
        let told = step(&profile, 10.0, true);
        // It is ready when the backward pass begins, and needed when the next forward pass is over.
        assert!((told.step - 10.0).abs() < 1e-9 && (told.exposed - 8.0).abs() < 1e-9, "{told:?}");
    }
}
