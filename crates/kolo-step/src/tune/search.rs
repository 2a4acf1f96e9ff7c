//! The order in which settings are tried: the best setting so far is changed in one respect after another,
//! until no untried change is left.
//!
//! First the algorithm, which decides how many bytes pass each link; then the bucket cap, in steps of four
//! and then of two, away from the best one as long as that helps; then the length of slices; then the number
//! of connections.

use std::sync::Arc;

use super::setting::TunedSetting;
use kolo_optim::{Layout, SpanId};
use kolo_reduction::{Bucket, plan_sliced};

/// A setting counts as better if its steps take less than this share of the best one's.
pub(super) const BETTER: f64 = 0.99;
/// Largest number of tried settings.
const MOST: usize = 24;
/// Smallest cap that is tried, unless the job's own is near it: a reduction costs its latency.
const LEAST_CAP: usize = 256 << 10;
/// Largest number of buckets of a tried plan.
const BUCKETS: usize = 256;

/// The settings that can be tried in a group.
#[derive(Debug)]
pub struct Space {
    /// The model's tensors.
    pub(crate) layout: Arc<Layout>,
    /// The order in which their gradients become ready.
    pub(crate) order: Vec<SpanId>,
    /// True if no tensor may be cut.
    pub(crate) whole: bool,
    /// Algorithms for long sums besides the one that the cost model picks.
    pub(crate) algorithms: Vec<&'static str>,
    /// Share of sums that each rank should add according to its link, if links differ.
    pub(crate) ownership: Option<Vec<u32>>,
    /// Number of connections between two ranks.
    pub(crate) streams: usize,
}

impl Space {
    fn plan(&self, setting: &TunedSetting) -> Vec<Bucket> {
        plan_sliced(&self.layout, &self.order, setting.caps(), setting.slice_bytes, self.whole)
    }

    /// Returns true if two settings have the same effect: another cap need not cut differently.
    fn is_same(&self, one: &TunedSetting, other: &TunedSetting) -> bool {
        let apart = |setting: &TunedSetting| (setting.algorithm, setting.ownership.clone(), setting.streams);
        apart(one) == apart(other) && self.plan(one) == self.plan(other)
    }
}

/// A setting that has been tried.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Trial {
    /// The setting.
    pub setting: TunedSetting,
    /// The slowest rank's seconds of a step; the median.
    pub seconds: f64,
}

/// A respect in which the best setting is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    Algorithm,
    Cap,
    Slice,
    Streams,
}

const AXES: [Axis; 4] = [Axis::Algorithm, Axis::Cap, Axis::Slice, Axis::Streams];

/// The search, beginning with one setting.
pub(crate) struct Search {
    space: Space,
    trials: Vec<Trial>,
    /// Index in `trials`.
    best: usize,
    /// Index in [`AXES`].
    axis: usize,
}

impl Search {
    /// Creates a search that begins with the first setting that will be [`Search::measured`].
    pub(crate) fn new(space: Space) -> Self {
        Search { space, trials: Vec::new(), best: 0, axis: 0 }
    }

    /// Takes the seconds of a setting's steps.
    pub(crate) fn measured(&mut self, setting: TunedSetting, seconds: f64) {
        let is_better = self.best().is_some_and(|best| seconds < BETTER * best.seconds);
        self.trials.push(Trial { setting, seconds });
        if is_better {
            self.best = self.trials.len() - 1;
        }
    }

    pub(crate) fn best(&self) -> Option<&Trial> {
        self.trials.get(self.best)
    }

    /// All tried settings, the first one first.
    pub(crate) fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Returns the next setting to try; `None` when nothing is left.
    pub(crate) fn next(&mut self) -> Option<TunedSetting> {
        let best = self.best()?.setting.clone();
        while self.trials.len() < MOST {
            let axis = *AXES.get(self.axis)?;
            let found = self.changes(axis, &best).into_iter().find(|setting| self.is_new(setting));
            if found.is_some() {
                return found;
            }
            self.axis += 1;
        }
        None
    }

    fn is_new(&self, setting: &TunedSetting) -> bool {
        self.trials.iter().all(|trial| !self.space.is_same(&trial.setting, setting))
            && self.space.plan(setting).len() <= BUCKETS
    }

    /// Returns the settings that differ from the best one in one respect, the likeliest first.
    fn changes(&self, axis: Axis, best: &TunedSetting) -> Vec<TunedSetting> {
        let space = &self.space;
        match axis {
            Axis::Algorithm => {
                let by_links = space.ownership.iter().map(|ownership| {
                    let ownership = Some(ownership.clone());
                    TunedSetting { ownership, algorithm: Some("direct"), ..best.clone() }
                });
                let named = |name: &&'static str| TunedSetting {
                    algorithm: Some(name),
                    ownership: None,
                    ..best.clone()
                };
                // The cost model's choice, for example if links do not differ any more.
                let plain = TunedSetting { algorithm: None, ownership: None, ..best.clone() };
                by_links.chain([plain]).chain(space.algorithms.iter().map(named)).collect()
            }
            Axis::Cap => {
                let cap = best.cap_bytes;
                let least = LEAST_CAP.min(self.trials[0].setting.cap_bytes / 4);
                let caps = [4 * cap, cap / 4, 2 * cap, cap / 2].into_iter();
                caps.filter(|cap| *cap >= least.max(1)).map(|cap| best.with_cap(cap)).collect()
            }
            Axis::Slice if space.whole => Vec::new(),
            Axis::Slice => {
                let slices = [best.cap_bytes / 4, 4 * best.cap_bytes].into_iter();
                slices.map(|slice_bytes| TunedSetting { slice_bytes, ..best.clone() }).collect()
            }
            Axis::Streams => {
                let counts = [2 * best.streams, best.streams / 2].into_iter();
                let there = counts.filter(|count| (1..=space.streams).contains(count));
                there.map(|streams| TunedSetting { streams, ..best.clone() }).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MIB, base};
    use super::*;
    use kolo_optim::{Kind, ParamSpec};
    use kolo_reduction::reversed;

    /// A model of 64 MiB in 64 tensors of which one is as large as 32 of the others.
    fn space() -> Space {
        let spec = |i: usize| {
            let len = if i == 40 { 32 * MIB / 4 } else { MIB / 2 / 4 };
            ParamSpec::new(format!("p{i}"), vec![len], Kind::Parameter { decay: true })
        };
        let layout = Layout::new((0..64).map(spec).collect());
        let order = reversed(&layout);
        Space {
            layout: Arc::new(layout),
            order,
            whole: false,
            algorithms: vec!["halving-doubling"],
            ownership: Some(vec![1, 1, 0]),
            streams: 4,
        }
    }

    /// Searches with `seconds` as the time of a setting's steps; returns the tried settings, and the best
    /// one.
    fn search(space: Space, seconds: impl Fn(&TunedSetting) -> f64) -> (Vec<TunedSetting>, TunedSetting) {
        let mut search = Search::new(space);
        search.measured(base(), seconds(&base()));
        while let Some(next) = search.next() {
            let took = seconds(&next);
            search.measured(next, took);
        }
        let tried = search.trials().iter().map(|trial| trial.setting.clone()).collect();
        (tried, search.best().unwrap().setting.clone())
    }

    #[test]
    fn where_nothing_helps_the_first_one_stays_and_few_are_tried() {
        let (tried, best) = search(space(), |_| 1.0);
        assert_eq!(best, base());
        assert!(tried.len() <= 10, "{tried:?}");
        assert!((1..tried.len()).all(|n| !tried[..n].contains(&tried[n])), "each once");
    }

    #[test]
    fn a_little_better_is_not_better() {
        let (_, best) = search(space(), |setting| if *setting == base() { 1.0 } else { 0.995 });
        assert_eq!(best, base());
    }

    /// The best cap is found at any distance from the first one, all else being equal.
    #[test]
    fn it_finds_the_best_of_each() {
        // A smaller cap would yield too many slices.
        for cap in [MIB, 2 * MIB, 8 * MIB, 16 * MIB, 32 * MIB] {
            let seconds = |setting: &TunedSetting| {
                let away = (setting.cap_bytes as f64 / cap as f64).log2().abs();
                let by_links = if setting.ownership.is_some() { 0.7 } else { 1.0 };
                let slices = if setting.slice_bytes < setting.cap_bytes { 0.95 } else { 1.0 };
                by_links * slices * (1.0 + 0.1 * away) / (setting.streams as f64).powf(0.1)
            };
            let (tried, best) = search(space(), seconds);
            let wanted = TunedSetting {
                cap_bytes: cap,
                slice_bytes: cap / 4,
                algorithm: Some("direct"),
                ownership: Some(vec![1, 1, 0]),
                streams: 4,
                ..base()
            };
            assert_eq!(best, wanted, "{tried:?}");
            assert!(tried.len() <= 16, "{}", tried.len());
        }
    }

    #[test]
    fn whole_tensors_are_not_sliced_and_what_is_not_there_is_not_tried() {
        let plain = Space { whole: true, algorithms: Vec::new(), ownership: None, streams: 1, ..space() };
        let (tried, _) = search(plain, |setting| setting.cap_bytes as f64);
        assert!(tried.iter().all(|setting| {
            setting.algorithm.is_none() && setting.streams == 1 && setting.slice_bytes == setting.cap_bytes
        }));
    }
}
