//! The faults of a run: a pure function of its seed.

use std::fmt;

use kolo_ddp::key::Key;
use serde::Serialize;

/// Most faults in one run.
pub(crate) const MOST: usize = 3;

/// A fault that is to be injected into a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Injection {
    /// When to inject it, as a part of the time that the undisturbed run takes, counted from the first
    /// generation.
    pub(crate) at: f64,
    pub(crate) fault: Fault,
    pub(crate) victim: Victim,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// The worker gets SIGKILL.
    Kill,
    /// The worker gets SIGSTOP, and never goes on.
    Stop,
    /// The worker gets SIGSTOP, and SIGCONT after so many milliseconds.
    Pause(u64),
    /// The worker gets SIGTERM and leaves the job.
    Leave,
    /// The worker's TCP connections are shut: of every eight those whose bits are set, at least one.
    Cut(u8),
    /// The run folder is away for so many milliseconds.
    Folder(u64),
    /// The etcd that grants generations gets SIGKILL, and is started again after so many milliseconds.
    Etcd(u64),
}

/// The worker that a fault strikes, among those that live at that time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Victim {
    /// Rank 0.
    First,
    /// One of the other ranks, counted modulo their number.
    Other(usize),
    /// The launcher of this node, whose workers end with it.
    Launcher(usize),
    /// The last worker that was started in place of a lost one; the injection waits for it.
    Replacement,
    /// The whole job.
    All,
}

impl Fault {
    /// Whether the fault removes the worker, so that the others go on in another generation.
    pub(crate) fn removes(self) -> bool {
        matches!(self, Fault::Kill | Fault::Stop | Fault::Leave | Fault::Cut(_))
    }

    /// Whether the launcher starts another worker after the fault.
    fn replaces(self) -> bool {
        self.removes() && self != Fault::Leave
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Stop => "stop",
            Fault::Pause(_) => "pause",
            Fault::Leave => "leave",
            Fault::Cut(_) => "cut",
            Fault::Folder(_) => "folder away",
            Fault::Etcd(_) => "etcd away",
        }
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fault.name())?;
        match self.victim {
            Victim::First => f.write_str(" rank 0")?,
            Victim::Other(_) => f.write_str(" another")?,
            Victim::Launcher(node) => write!(f, " launcher {node}")?,
            Victim::Replacement => f.write_str(" replacement")?,
            Victim::All => {}
        }
        if let Fault::Pause(ms) | Fault::Folder(ms) | Fault::Etcd(ms) = self.fault {
            write!(f, " for {ms} ms")?;
        }
        Ok(())
    }
}

/// What there is to be struck.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Targets {
    /// Nodes of the job, each with a launcher; the launcher of a job of one node is the job.
    pub(crate) nodes: usize,
    /// Workers of a node.
    pub(crate) workers: usize,
    /// Whether an etcd grants the generations.
    pub(crate) etcd: bool,
}

/// The faults of a run, in the order of their times. At least one worker that has been there from the
/// beginning stays, with its launcher.
pub(crate) fn plan(seed: u64, targets: Targets) -> Vec<Injection> {
    let workers = targets.nodes * targets.workers;
    let root = Key::new(seed).with_str("chaos");
    let count = 1 + root.with_str("count").below(MOST);
    let (mut at, mut removed, mut replaced) = (0.0, 0, false);
    let mut hits = Vec::with_capacity(count);
    for number in 0..count {
        let key = root.with(number as u64);
        // Half of the faults follow the one before at once.
        at += match (number, key.with_str("close").below(2)) {
            (0, _) => 0.5 * key.with_str("at").unit(),
            (_, 0) => 0.02 * key.with_str("at").unit(),
            _ => 0.2 * key.with_str("at").unit(),
        };
        let mut fault = fault(key);
        let launcher = launcher(key, fault, targets.nodes);
        let lost = if launcher.is_some() { targets.workers } else { 1 };
        if fault.removes() && removed + lost >= workers {
            fault = Fault::Pause(300);
        }
        if targets.etcd && key.with_str("etcd").below(4) == 0 {
            fault = Fault::Etcd(100 + key.with_str("away").below(2000) as u64);
        }
        let victim = launcher.filter(|_| strikes_processes(fault)).map(Victim::Launcher);
        hits.push(Injection {
            at,
            fault,
            victim: victim.unwrap_or_else(|| self::victim(key, fault, replaced)),
        });
        removed += if fault.removes() { lost } else { 0 };
        replaced |= fault.replaces() && victim.is_none();
    }
    hits
}

fn fault(key: Key) -> Fault {
    let within =
        |name: &str, range: std::ops::Range<usize>| range.start + key.with_str(name).below(range.len());
    match key.with_str("fault").below(100) {
        0..40 => Fault::Kill,
        40..48 => Fault::Stop,
        48..62 => Fault::Pause(within("pause", 20..1500) as u64),
        62..74 => Fault::Leave,
        74..88 => Fault::Cut(within("cut", 1..256) as u8),
        _ => Fault::Folder(within("away", 20..800) as u64),
    }
}

/// The node whose launcher is struck, if it is a launcher.
fn launcher(key: Key, fault: Fault, nodes: usize) -> Option<usize> {
    let strikes = nodes > 1 && strikes_processes(fault) && key.with_str("launcher").below(3) == 0;
    strikes.then(|| key.with_str("node").below(nodes))
}

/// Whether the fault may strike a launcher. To leave is for workers: a launcher that is asked to end ends its
/// node's part of the job. A cut would part it from its own workers, too, which no network does.
fn strikes_processes(fault: Fault) -> bool {
    matches!(fault, Fault::Kill | Fault::Stop | Fault::Pause(_))
}

fn victim(key: Key, fault: Fault, replaced: bool) -> Victim {
    match key.with_str("victim").below(3) {
        _ if matches!(fault, Fault::Folder(_) | Fault::Etcd(_)) => Victim::All,
        0 => Victim::First,
        1 if replaced => Victim::Replacement,
        _ => Victim::Other(key.with_str("other").below(16)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One node of so many workers.
    fn one_node(workers: usize) -> Targets {
        Targets { nodes: 1, workers, etcd: false }
    }

    #[test]
    fn a_seed_is_a_plan() {
        let plan = |seed| plan(seed, one_node(4));
        for seed in 0..50 {
            assert_eq!(plan(seed), plan(seed));
        }
        assert_ne!(plan(1), plan(2));
    }

    #[test]
    fn launchers_and_their_etcd_are_struck_and_a_node_stays() {
        let two = Targets { nodes: 2, workers: 2, etcd: true };
        let plans: Vec<Vec<Injection>> = (0..200).map(|seed| plan(seed, two)).collect();
        for hits in &plans {
            let launcher = |hit: &&Injection| matches!(hit.victim, Victim::Launcher(_));
            let removes = |hit: &&Injection| hit.fault.removes();
            let nodes = hits.iter().filter(launcher).filter(removes).count();
            let workers = hits.iter().filter(removes).count() - nodes;
            assert!(2 * nodes + workers < 4, "{hits:?}");
        }
        let all = || plans.iter().flatten();
        let strikes = |fault: Fault, node: usize| {
            all().any(|hit| hit.fault == fault && hit.victim == Victim::Launcher(node))
        };
        assert!(strikes(Fault::Kill, 0) && strikes(Fault::Kill, 1) && strikes(Fault::Stop, 0));
        assert!(all().any(|hit| matches!(hit.fault, Fault::Etcd(_)) && hit.victim == Victim::All));
    }

    #[test]
    fn every_seed_leaves_somebody() {
        for (seed, workers) in (0..200).flat_map(|seed| [1, 2, 4].map(|workers| (seed, workers))) {
            let hits = plan(seed, one_node(workers));
            assert!((1..=MOST).contains(&hits.len()));
            assert!(hits.iter().filter(|hit| hit.fault.removes()).count() < workers, "seed {seed}: {hits:?}");
            assert!(hits.is_sorted_by(|one, next| one.at <= next.at), "seed {seed}: {hits:?}");
            let before = |n: usize| hits[..n].iter().any(|hit| hit.fault.replaces());
            let waits = |n: usize| hits[n].victim == Victim::Replacement;
            assert!((0..hits.len()).all(|n| !waits(n) || before(n)), "seed {seed}: {hits:?}");
        }
    }

    #[test]
    fn a_hundred_seeds_have_everything() {
        let plans: Vec<Vec<Injection>> = (0..100).map(|seed| plan(seed, one_node(4))).collect();
        let hits = || plans.iter().flatten();
        for name in ["kill", "stop", "pause", "leave", "cut", "folder away"] {
            assert!(hits().any(|hit| hit.fault.name() == name), "{name}");
        }
        for victim in [Victim::First, Victim::Replacement] {
            assert!(hits().any(|hit| hit.victim == victim && hit.fault == Fault::Kill), "{victim:?}");
        }
        let removes = |hit: &Injection| hit.fault.removes();
        let close = |two: &[Injection]| two.iter().all(removes) && two[1].at - two[0].at < 0.02;
        assert!(plans.iter().any(|hits| hits.windows(2).any(close)));
    }
}
