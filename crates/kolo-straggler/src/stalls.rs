//! Stalls: steps that take a rank much longer than most of its steps, because of a CPU quota, garbage
//! collection or a noisy neighbor. Medians do not show them, and a mean shows a single long pause as well.
//! So their cost is observed over several comparisons, and counts if one rank loses more than the others
//! beyond chance.

use std::collections::VecDeque;

use super::diagnose::Times;
use super::median::median;

/// Comparisons over which stalls are counted, and how many of them are left out: those in which a rank lost
/// most, since a checkpoint or an evaluation may have been among their steps.
const COMPARISONS: usize = 8;
const LEFT_OUT: usize = 1;

/// Required distance of a rank's mean from that of the others, in standard errors (Welch 1947). A single
/// pause is left out; in so few comparisons two yield 1, and three 1.55, however long they are.
const STANDARD_ERRORS: f64 = 4.0;

/// Loss of a rank by stalls in the steps of one comparison, in seconds a step and shard.
#[derive(Clone, Copy, Debug)]
struct Lost {
    compute: f64,
    data: f64,
}

impl Lost {
    fn all(&self) -> f64 {
        self.compute + self.data
    }
}

/// Losses of each rank in the last comparisons.
#[derive(Debug)]
pub(super) struct Stalls(Vec<VecDeque<Lost>>);

impl Stalls {
    /// Starts without knowledge of the ranks.
    pub(super) fn new(world: usize) -> Self {
        Stalls(vec![VecDeque::new(); world])
    }

    /// Takes the times of a comparison, and returns them with the stalls that count: if those of one rank
    /// stand out, each rank's mean over the last comparisons; otherwise none.
    pub(super) fn count(&mut self, times: &[Times]) -> Vec<Times> {
        for (known, times) in self.0.iter_mut().zip(times).filter(|(_, times)| times.shards > 0) {
            let shards = times.shards as f64;
            known
                .push_back(Lost { compute: times.compute_stalls / shards, data: times.data_stalls / shards });
            if known.len() > COMPARISONS {
                known.pop_front();
            }
        }
        let usual: Vec<Option<Vec<Lost>>> = self.0.iter().map(usual).collect();
        let is_one_hit = stands_out(usual.iter().flatten());
        let counted = |(times, usual): (&Times, &Option<Vec<Lost>>)| {
            let shards = times.shards as f64;
            let of = |get: fn(&Lost) -> f64| match usual {
                Some(usual) if is_one_hit => mean(usual.iter().map(get)) * shards,
                _ => 0.0,
            };
            Times {
                compute_stalls: of(|lost| lost.compute),
                data_stalls: of(|lost| lost.data),
                ..times.clone()
            }
        };
        times.iter().zip(&usual).map(counted).collect()
    }

    /// Median loss of a rank in its last three comparisons, in seconds a step and shard.
    pub(super) fn recent(&self, rank: usize) -> f64 {
        median(self.0[rank].iter().rev().take(3).map(Lost::all))
    }
}

/// Returns the comparisons of a rank that count, if it has been in enough of them.
fn usual(known: &VecDeque<Lost>) -> Option<Vec<Lost>> {
    let mut sorted: Vec<Lost> = known.iter().copied().collect();
    sorted.sort_by(|a, b| a.all().total_cmp(&b.all()));
    sorted.truncate(COMPARISONS - LEFT_OUT);
    (known.len() == COMPARISONS).then_some(sorted)
}

/// Returns true if the rank that loses most loses more than the others (their median) beyond chance.
fn stands_out<'a>(ranks: impl Iterator<Item = &'a Vec<Lost>>) -> bool {
    let mut all: Vec<(f64, f64)> =
        ranks.map(|usual| mean_and_variance(usual.iter().map(Lost::all))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some((most, variance)) = all.pop() else { return false };
    if all.is_empty() {
        return false;
    }
    let others = median(all.iter().map(|(mean, _)| *mean));
    let error = (variance + median(all.iter().map(|(_, variance)| *variance))).sqrt();
    most - others > STANDARD_ERRORS * error
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    mean_and_variance(values).0
}

/// Returns the mean, and its variance: the square of its standard error.
fn mean_and_variance(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values: Vec<f64> = values.collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (mean, squares / (count - 1.0).max(1.0) / count.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(shards: usize, compute_stalls: f64, data_stalls: f64) -> Times {
        Times { shards, compute_stalls, data_stalls, ..Times::default() }
    }

    /// Returns the stalls that count after each of these comparisons of two ranks.
    fn counted(comparisons: impl Iterator<Item = [f64; 2]>) -> Vec<[f64; 2]> {
        let mut stalls = Stalls::new(2);
        let count = |lost: [f64; 2]| {
            let found = stalls.count(&lost.map(|lost| times(2, lost, 0.0)));
            [found[0].compute_stalls, found[1].compute_stalls]
        };
        comparisons.map(count).collect()
    }

    #[test]
    fn what_one_rank_loses_again_and_again_counts_for_all() {
        let found = counted((0..20).map(|n| [0.001, if n % 2 == 0 { 0.05 } else { 0.04 }]));
        assert!(found[..COMPARISONS - 1].iter().all(|counted| *counted == [0.0; 2]), "{found:?}");
        for [first, second] in &found[COMPARISONS - 1..] {
            assert!((first - 0.001).abs() < 1e-9 && (0.042..0.048).contains(second), "{found:?}");
        }
    }

    #[test]
    fn pauses_do_not_count_however_long_they_are() {
        for pauses in [vec![9], vec![9, 12], vec![9, 10, 11], vec![0, 9, 18]] {
            let lost = |n| [0.0, if pauses.contains(&n) { 100.0 } else { 0.0 }];
            assert!(counted((0..30).map(lost)).iter().all(|counted| *counted == [0.0; 2]), "{pauses:?}");
        }
    }

    #[test]
    fn it_is_forgotten_when_it_is_over() {
        let found = counted((0..20).map(|n| [0.0, if n < 10 { 0.05 } else { 0.0 }]));
        assert!(found[9][1] > 0.04, "{found:?}");
        assert!(found[13..].iter().all(|counted| *counted == [0.0; 2]), "{found:?}");
    }

    #[test]
    fn data_and_computing_are_kept_apart_and_ranks_without_shards_out() {
        let mut stalls = Stalls::new(3);
        let all = [times(1, 0.0, 0.001), times(0, 0.0, 0.0), times(4, 0.01, 0.2)];
        let found = (0..COMPARISONS).map(|_| stalls.count(&all)).last().unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(found[2].compute_stalls, 0.01) && near(found[2].data_stalls, 0.2), "{found:?}");
        assert_eq!(found[1], all[1]);
        let mut alone = Stalls::new(1);
        let found = (0..COMPARISONS).map(|_| alone.count(&all[2..])).last().unwrap();
        assert_eq!(found[0].data_stalls, 0.0, "there is nobody to compare it with");
    }
}
