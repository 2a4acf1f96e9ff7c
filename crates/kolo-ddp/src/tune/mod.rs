//! Tuning: in a job's first steps settings that decide no bits are tried, and the best is kept.
//!
//! This is the decision alone, apart from whatever cuts buckets anew (`replica/tuning.rs`): what goes in are
//! seconds that all ranks have heard, the slowest rank's of each step, so all ranks hold the same and decide
//! alike. A setting is tried for a few steps, of which the first does not count. When nothing is left to try
//! ([`search`]) the first setting and the best one are measured once more, one after the other: the least of
//! many figures is partly luck, and a machine drifts. Then steps are watched ([`watch`]), and if they come
//! to take longer, or less, all begins anew with what is kept.

mod report;
mod search;
mod setting;
mod watch;

pub use self::report::Tuning;
pub use self::search::Trial;
pub(crate) use self::search::{Search, Space};
pub use self::setting::TunedSetting;
use self::watch::Watch;

/// How many steps a setting is tried for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// As many as tell it from others.
    Measured,
    /// One, so that few steps go through many settings: for those who look at bits.
    Hasty,
}

/// Of longer steps two are measured, of shorter ones five, else three: what takes long varies little.
const LONG: f64 = 1.0;
const SHORT: f64 = 0.05;
/// A setting whose steps take so much longer than the best one's is given up at once; where steps are not
/// long, after two of them.
const HOPELESS: f64 = 1.15;
/// In the last comparison the best setting must take less than this beside the first one's, or that is kept.
const CONFIRMED: f64 = 0.995;

/// What is to be done after a step.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// All goes on as it is.
    Stay,
    /// The next steps are to be run in this way.
    Try(TunedSetting),
    /// So are all from now on, which is what tuning has come to.
    Keep(Box<Tuning>),
    /// Steps take another time than they did: what is known of ranks and links is to be measured anew, and
    /// tuning begins again.
    Again,
}

/// The tuning of one group's steps.
pub(crate) struct Tuner {
    effort: Effort,
    stage: Stage,
    /// What steps are run by.
    current: TunedSetting,
    /// Steps since tuning began.
    steps: u64,
    /// Why it has begun again: what steps took, and what they take now.
    changed: Option<(f64, f64)>,
}

enum Stage {
    /// Nothing has been tried: the first steps are profiled.
    Waiting,
    Trying {
        search: Search,
        samples: Samples,
    },
    Confirming {
        search: Search,
        samples: Samples,
        first: Option<f64>,
    },
    Watching(Watch),
}

/// The steps of one setting.
#[derive(Debug, Default)]
struct Samples {
    /// Whether the first one is over, in which the setting before it still had a part.
    is_warm: bool,
    seconds: Vec<f64>,
}

impl Samples {
    /// A step has taken so long; returns what a step takes when enough of them have been seen. `best`: what
    /// the best setting's steps take.
    fn step(&mut self, seconds: f64, effort: Effort, best: Option<f64>) -> Option<f64> {
        if !std::mem::replace(&mut self.is_warm, true) && effort == Effort::Measured {
            return None;
        }
        self.seconds.push(seconds);
        let median = lower_median(&mut self.seconds);
        let (few, enough) = match median {
            _ if effort == Effort::Hasty => (1, 1),
            median if median > LONG => (1, 2),
            median if median < SHORT => (2, 5),
            _ => (2, 3),
        };
        let is_hopeless = best.is_some_and(|best| self.seconds[0] > HOPELESS * best);
        let count = self.seconds.len();
        (count >= enough || count >= few && is_hopeless).then_some(median)
    }
}

/// The median; of an even number the lower one of the two in the middle: whatever else a machine does only
/// ever makes a step longer. Orders them.
fn lower_median(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

impl Tuner {
    /// A tuner of steps that are run by `current`.
    pub(crate) fn new(effort: Effort, current: TunedSetting) -> Self {
        Tuner { effort, stage: Stage::Waiting, current, steps: 0, changed: None }
    }

    /// What steps are run by.
    pub(crate) fn current(&self) -> &TunedSetting {
        &self.current
    }

    /// Whether it waits for [`Tuner::begin`].
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting)
    }

    /// Whether it may begin while steps are still profiled.
    pub(crate) fn is_hasty(&self) -> bool {
        self.effort == Effort::Hasty
    }

    /// Settings are tried from now on.
    pub(crate) fn begin(&mut self, space: Space) {
        self.steps = 0;
        self.stage = Stage::Trying { search: Search::new(space), samples: Samples::default() };
    }

    /// What has been measured holds no more, because ranks have other shards: waits to begin anew.
    pub(crate) fn restart(&mut self) {
        self.stage = Stage::Waiting;
    }

    /// A step has taken so long on the slowest rank.
    pub(crate) fn step(&mut self, seconds: f64) -> Verdict {
        self.steps += 1;
        let (stage, verdict) = match std::mem::replace(&mut self.stage, Stage::Waiting) {
            Stage::Waiting => (Stage::Waiting, Verdict::Stay),
            Stage::Trying { search, samples } => self.try_on(search, samples, seconds),
            Stage::Confirming { search, samples, first } => self.confirm(search, samples, first, seconds),
            Stage::Watching(mut watch) => match watch.step(seconds) {
                None => (Stage::Watching(watch), Verdict::Stay),
                changed => {
                    self.changed = changed;
                    (Stage::Waiting, Verdict::Again)
                }
            },
        };
        self.stage = stage;
        if let Verdict::Try(setting) = &verdict {
            self.current.clone_from(setting);
        }
        if let Verdict::Keep(tuning) = &verdict {
            self.current.clone_from(&tuning.kept);
        }
        verdict
    }

    fn try_on(&mut self, mut search: Search, mut samples: Samples, seconds: f64) -> (Stage, Verdict) {
        let best = search.best().map(|best| best.seconds);
        let Some(median) = samples.step(seconds, self.effort, best) else {
            return (Stage::Trying { search, samples }, Verdict::Stay);
        };
        search.measured(self.current.clone(), median);
        let samples = Samples::default();
        if let Some(next) = search.next() {
            return (Stage::Trying { search, samples }, Verdict::Try(next));
        }
        let (first, best) = (&search.trials()[0], search.best());
        match best.filter(|best| best.setting != first.setting) {
            None => self.keep(&search, true, first.seconds, first.seconds),
            Some(_) => {
                let again = first.setting.clone();
                (Stage::Confirming { search, samples, first: None }, Verdict::Try(again))
            }
        }
    }

    /// The first setting is measured again, then the best one.
    fn confirm(
        &mut self,
        search: Search,
        mut samples: Samples,
        first: Option<f64>,
        seconds: f64,
    ) -> (Stage, Verdict) {
        let Some(median) = samples.step(seconds, self.effort, None) else {
            return (Stage::Confirming { search, samples, first }, Verdict::Stay);
        };
        let Some(first) = first else {
            let best = search.best().map_or_else(|| self.current.clone(), |best| best.setting.clone());
            let samples = Samples::default();
            return (Stage::Confirming { search, samples, first: Some(median) }, Verdict::Try(best));
        };
        self.keep(&search, median >= CONFIRMED * first, first, median)
    }

    /// Keeps the first setting, whose steps take `before`, or the best one, whose steps take `after`.
    fn keep(&mut self, search: &Search, first: bool, before: f64, after: f64) -> (Stage, Verdict) {
        let trials = search.trials();
        let begun_with = trials[0].setting.clone();
        let best = search.best().map_or_else(|| begun_with.clone(), |best| best.setting.clone());
        let tuning = Tuning {
            kept: if first { begun_with.clone() } else { best },
            begun_with,
            seconds: if first { before } else { after },
            seconds_before: before,
            steps: self.steps,
            tried: trials.to_vec(),
            link_rates: None,
            changed: self.changed.take(),
        };
        (Stage::Watching(Watch::default()), Verdict::Keep(Box::new(tuning)))
    }
}

#[cfg(test)]
mod tests;
