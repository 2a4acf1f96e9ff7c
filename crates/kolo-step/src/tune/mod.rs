//! Tuning: in a job's first steps settings that decide no bits are tried, and the best is kept.
//!
//! This is the decision alone; kolo-sync applies it. The input is the slowest rank's seconds of each step,
//! which all ranks know, so all of them decide the same. A setting is tried for a few steps, of which the
//! first does not count. When nothing is left to try ([`search`]) the first setting and the best one are
//! measured once more, one after the other: the least of many figures is partly luck, and a machine drifts.
//! Then steps are watched ([`watch`]). If their duration changes, tuning begins anew with the kept setting.

mod median;
mod report;
mod search;
mod setting;
mod watch;

use self::median::lower_median;
pub use self::report::Tuning;
use self::search::Search;
pub use self::search::{Space, Trial};
pub use self::setting::TunedSetting;
use self::watch::Watch;

/// Number of steps for which a setting is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Enough to distinguish it from others.
    Measured,
    /// One, so that few steps go through many settings: for tests that compare bits.
    Hasty,
}

/// Of longer steps two are measured, of shorter ones five, else three: long steps vary little.
const LONG: f64 = 1.0;
const SHORT: f64 = 0.05;
/// A setting whose steps take longer than the best one's by this factor is given up at once; if steps are
/// not long, after two of them.
const HOPELESS: f64 = 1.15;
/// In the last comparison the best setting must take less than this share of the first one's time, or the
/// first one is kept.
const CONFIRMED: f64 = 0.995;

/// Action after a step.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// Continue with the current setting.
    Stay,
    /// Run the next steps with this setting.
    Try(TunedSetting),
    /// Run all later steps with the result of tuning.
    Keep(Box<Tuning>),
    /// Measure ranks and links anew, and tune again: the duration of steps has changed.
    Again,
}

/// Choice of the setting by which the next steps run.
pub struct Tuner {
    effort: Effort,
    stage: Stage,
    current: TunedSetting,
    /// Steps since tuning began.
    steps: u64,
    /// Reason why it has begun again: the former and the current seconds of a step.
    changed: Option<(f64, f64)>,
}

kolo_comm::opaque_debug!(Tuner { steps });

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
    /// True if the first one is over, which the setting before it still affects.
    is_warm: bool,
    seconds: Vec<f64>,
}

impl Samples {
    /// Takes the seconds of a step; returns the median when enough steps have been seen. `best`: the seconds
    /// of the best setting's steps.
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

impl Tuner {
    /// Creates a tuner of steps that run by the setting `current`.
    pub fn new(effort: Effort, current: TunedSetting) -> Self {
        Tuner { effort, stage: Stage::Waiting, current, steps: 0, changed: None }
    }

    /// Setting of the next step.
    pub fn current(&self) -> &TunedSetting {
        &self.current
    }

    /// Returns true if it waits for [`Tuner::begin`].
    pub fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting)
    }

    /// Returns true if it may begin while steps are still profiled.
    pub fn is_hasty(&self) -> bool {
        self.effort == Effort::Hasty
    }

    /// Begins to try settings.
    pub fn begin(&mut self, space: Space) {
        self.steps = 0;
        self.stage = Stage::Trying { search: Search::new(space), samples: Samples::default() };
    }

    /// Discards the measurements, because ranks have other shards; waits to begin anew.
    pub fn restart(&mut self) {
        self.stage = Stage::Waiting;
    }

    /// Takes the slowest rank's seconds of a step.
    pub fn step(&mut self, seconds: f64) -> Verdict {
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

    /// Measures the first setting again, then the best one.
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
