//! What is done to a run: a pure function of its seed.

use std::fmt;

use kolo_ddp::key::Key;
use serde::Serialize;

/// Most hits that a run takes.
pub(crate) const MOST: usize = 3;

/// Something that happens to a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Hit {
    /// When: a part of the time that the undisturbed run takes, from its first generation on.
    pub(crate) at: f64,
    pub(crate) deed: Deed,
    pub(crate) victim: Victim,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Deed {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, for good.
    Stop,
    /// SIGSTOP, and SIGCONT after so many milliseconds.
    Pause(u64),
    /// SIGTERM: the worker leaves.
    Leave,
    /// Its TCP connections are shut: of every eight those whose bits are set, at least one.
    Cut(u8),
    /// The run folder is away for so many milliseconds.
    Folder(u64),
}

/// To whom, among the workers that live then.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Victim {
    /// Rank 0.
    First,
    /// Any other; they are counted on from there.
    Other(usize),
    /// The last one that was started in a lost one's place; the hit waits for it.
    Replacement,
    /// Nobody in particular.
    All,
}

impl Deed {
    /// Whether the worker is lost by it, so that the others go on in another generation.
    pub(crate) fn removes(self) -> bool {
        matches!(self, Deed::Kill | Deed::Stop | Deed::Leave | Deed::Cut(_))
    }

    /// Whether another worker is started then.
    fn replaces(self) -> bool {
        self.removes() && self != Deed::Leave
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Deed::Kill => "kill",
            Deed::Stop => "stop",
            Deed::Pause(_) => "pause",
            Deed::Leave => "leave",
            Deed::Cut(_) => "cut",
            Deed::Folder(_) => "folder away",
        }
    }
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.deed.name())?;
        match self.victim {
            Victim::First => f.write_str(" rank 0")?,
            Victim::Other(_) => f.write_str(" another")?,
            Victim::Replacement => f.write_str(" replacement")?,
            Victim::All => {}
        }
        if let Deed::Pause(ms) | Deed::Folder(ms) = self.deed {
            write!(f, " for {ms} ms")?;
        }
        Ok(())
    }
}

/// The hits of a run with so many workers, in the order of their times. Never so many that nobody would be left who has been
/// there from the beginning.
pub(crate) fn plan(seed: u64, workers: usize) -> Vec<Hit> {
    let root = Key::new(seed).with_str("chaos");
    let count = 1 + root.with_str("count").below(MOST);
    let (mut at, mut removed, mut replaced) = (0.0, 0, false);
    let mut hits = Vec::with_capacity(count);
    for number in 0..count {
        let key = root.with(number as u64);
        // Half of them follow at once.
        at += match (number, key.with_str("close").below(2)) {
            (0, _) => 0.5 * key.with_str("at").unit(),
            (_, 0) => 0.02 * key.with_str("at").unit(),
            _ => 0.2 * key.with_str("at").unit(),
        };
        let mut deed = deed(key);
        if deed.removes() && removed + 1 >= workers {
            deed = Deed::Pause(300);
        }
        hits.push(Hit { at, deed, victim: victim(key, deed, replaced) });
        removed += usize::from(deed.removes());
        replaced |= deed.replaces();
    }
    hits
}

fn deed(key: Key) -> Deed {
    let within =
        |name: &str, range: std::ops::Range<usize>| range.start + key.with_str(name).below(range.len());
    match key.with_str("deed").below(100) {
        0..40 => Deed::Kill,
        40..48 => Deed::Stop,
        48..62 => Deed::Pause(within("pause", 20..1500) as u64),
        62..74 => Deed::Leave,
        74..88 => Deed::Cut(within("cut", 1..256) as u8),
        _ => Deed::Folder(within("away", 20..800) as u64),
    }
}

fn victim(key: Key, deed: Deed, replaced: bool) -> Victim {
    match key.with_str("victim").below(3) {
        _ if matches!(deed, Deed::Folder(_)) => Victim::All,
        0 => Victim::First,
        1 if replaced => Victim::Replacement,
        _ => Victim::Other(key.with_str("other").below(16)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_plan() {
        for seed in 0..50 {
            assert_eq!(plan(seed, 4), plan(seed, 4));
        }
        assert_ne!(plan(1, 4), plan(2, 4));
    }

    #[test]
    fn every_seed_leaves_somebody() {
        for (seed, workers) in (0..200).flat_map(|seed| [1, 2, 4].map(|workers| (seed, workers))) {
            let hits = plan(seed, workers);
            assert!((1..=MOST).contains(&hits.len()));
            assert!(hits.iter().filter(|hit| hit.deed.removes()).count() < workers, "seed {seed}: {hits:?}");
            assert!(hits.is_sorted_by(|one, next| one.at <= next.at), "seed {seed}: {hits:?}");
            let before = |n: usize| hits[..n].iter().any(|hit| hit.deed.replaces());
            let waits = |n: usize| hits[n].victim == Victim::Replacement;
            assert!((0..hits.len()).all(|n| !waits(n) || before(n)), "seed {seed}: {hits:?}");
        }
    }

    #[test]
    fn a_hundred_seeds_have_everything() {
        let plans: Vec<Vec<Hit>> = (0..100).map(|seed| plan(seed, 4)).collect();
        let hits = || plans.iter().flatten();
        for name in ["kill", "stop", "pause", "leave", "cut", "folder away"] {
            assert!(hits().any(|hit| hit.deed.name() == name), "{name}");
        }
        for victim in [Victim::First, Victim::Replacement] {
            assert!(hits().any(|hit| hit.victim == victim && hit.deed == Deed::Kill), "{victim:?}");
        }
        let removes = |hit: &Hit| hit.deed.removes();
        let close = |two: &[Hit]| two.iter().all(removes) && two[1].at - two[0].at < 0.02;
        assert!(plans.iter().any(|hits| hits.windows(2).any(close)));
    }
}
