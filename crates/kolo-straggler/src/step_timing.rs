//! Times of one rank's training thread, on its own clock.
//!
//! From the end of a step to the call that ends the next one the thread computes, unless it reports that it
//! waits for data or the reducer counts that it waits for communication. Medians are used because
//! evaluations and checkpoints lie between some steps; the cost of such steps is reported separately.

use std::time::{Duration, Instant};

use kolo_schedule::Rank;

use super::diagnose::Times;
use super::median::{median, stalls};

/// Steps between two comparisons of all ranks' times, which are the medians of these steps.
pub const EVERY: u64 = 20;

/// One step, in seconds.
struct Sample {
    compute: f64,
    data: f64,
    exposed: f64,
    waited_for: Option<(Rank, f64)>,
}

/// The times of this rank's last steps, at most [`EVERY`] of them.
#[derive(Default)]
pub struct StepTiming {
    /// End of the last step; `None` before the first.
    began: Option<Instant>,
    /// In the current step: time of waiting for data, and of computing, once that is over.
    data: Duration,
    compute: Option<Duration>,
    samples: Vec<Sample>,
    /// Ready times of each bucket, in the same steps.
    ready: Vec<Vec<f64>>,
    /// The group's counters at the end of the last step.
    waited: Vec<Duration>,
}

kolo_schedule::opaque_debug!(StepTiming { data, compute });

impl StepTiming {
    /// Adds time in which the training thread has waited for data.
    pub fn data_waited(&mut self, time: Duration) {
        self.data += time;
    }

    /// Ends all backward passes of the step; `exposed` is the time in it that the thread has waited for
    /// communication so far.
    pub fn passes_over(&mut self, exposed: Duration) {
        let busy = self.began.map(|began| began.elapsed());
        self.compute = busy.map(|busy| busy.saturating_sub(exposed + self.data));
    }

    /// Ends the step. `exposed` is all of its waiting, `ready` the ready times of the buckets since the last
    /// backward pass began, `waited` the group's counter for each rank since it formed.
    pub fn step_over(&mut self, exposed: Duration, ready: &[f64], waited: Vec<Duration>) {
        // The first step begins with unknown work before it.
        if let Some(compute) = self.compute.take() {
            if self.samples.len() as u64 == EVERY {
                self.samples.remove(0);
                self.ready.remove(0);
            }
            let since = |(peer, (now, then)): (usize, (&Duration, &Duration))| {
                (Rank(peer), now.saturating_sub(*then).as_secs_f64())
            };
            let waits = waited.iter().zip(&self.waited).enumerate().map(since);
            self.samples.push(Sample {
                compute: compute.as_secs_f64(),
                data: self.data.as_secs_f64(),
                exposed: exposed.as_secs_f64(),
                waited_for: waits.filter(|wait| wait.1 > 0.0).max_by(|a, b| a.1.total_cmp(&b.1)),
            });
            self.ready.push(ready.to_vec());
        }
        self.waited = waited;
        self.data = Duration::ZERO;
        self.began = Some(Instant::now());
    }

    /// Returns true if there are as many steps as a comparison needs.
    pub fn is_full(&self) -> bool {
        self.samples.len() as u64 == EVERY
    }

    /// Takes the medians of the steps so far, and the costs of stalls, for `buckets` buckets; then clears
    /// the steps.
    pub fn take(&mut self, shards: usize, buckets: usize) -> Times {
        let of = |get: fn(&Sample) -> f64| median(self.samples.iter().map(get));
        let ready = |bucket: usize| {
            // After the first step buckets are others.
            let steps = self.ready.iter().filter(|ready| ready.len() == buckets);
            median(steps.map(|ready| ready[bucket]))
        };
        let times = Times {
            shards,
            compute: of(|sample| sample.compute),
            data: of(|sample| sample.data),
            compute_stalls: stalls(self.samples.iter().map(|sample| sample.compute)),
            data_stalls: stalls(self.samples.iter().map(|sample| sample.data)),
            exposed: of(|sample| sample.exposed),
            waited_for: self.waited_for(),
            ready: (0..buckets).map(ready).collect(),
        };
        self.forget();
        times
    }

    /// Clears the steps so far.
    pub fn forget(&mut self) {
        self.samples.clear();
        self.ready.clear();
    }

    /// Returns the rank that was waited for longest in most of the steps, and the median wait for it.
    fn waited_for(&self) -> Option<(Rank, f64)> {
        let named = self.samples.iter().filter_map(|sample| sample.waited_for);
        let mut counts = vec![0; self.waited.len()];
        named.clone().for_each(|(rank, _)| counts[rank.0] += 1);
        let most = (0..counts.len()).max_by_key(|rank| (counts[*rank], usize::MAX - rank))?;
        let seconds = |sample: &Sample| match sample.waited_for {
            Some((rank, seconds)) if rank.0 == most => seconds,
            _ => 0.0,
        };
        (counts[most] > 0).then(|| (Rank(most), median(self.samples.iter().map(seconds))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_the_last_steps() {
        let second = Duration::from_secs;
        let mut timing = StepTiming::default();
        // Not measured: its beginning is unknown.
        timing.passes_over(Duration::ZERO);
        timing.step_over(second(9), &[1.0], vec![second(5); 3]);
        assert!(!timing.is_full());
        for step in 1..=EVERY + 3 {
            // Once for 40 seconds more, which are 2 a step.
            timing.data_waited(second(if step == EVERY { 42 } else { 2 }));
            timing.passes_over(Duration::ZERO);
            // Rank 2 is waited for a second in each step, rank 1 once for very long.
            let spike = if step >= EVERY { 500 } else { 0 };
            timing.step_over(second(3), &[1.0, 4.0], vec![second(5), second(5 + spike), second(5 + step)]);
        }
        assert!(timing.is_full());
        let times = timing.take(7, 2);
        assert_eq!((times.shards, times.data, times.exposed), (7, 2.0, 3.0));
        assert_eq!(times.compute, 0.0, "it waited longer than the step took");
        assert_eq!((times.data_stalls, times.compute_stalls), (2.0, 0.0));
        assert_eq!(times.waited_for, Some((Rank(2), 1.0)));
        assert_eq!(times.ready, [1.0, 4.0]);
        assert!(!timing.is_full(), "each comparison is about steps of its own");
        assert_eq!(timing.take(0, 1).ready, [0.0]);
    }
}
