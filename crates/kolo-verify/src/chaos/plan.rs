//! The faults of a run: a pure function of its seed.

use kolo_ddp::key::Key;
use kolo_ddp::verify::aim::{Aim, Moment};

use super::fault::{Fault, Injection, Request, Victim};
use super::hosts::LinkCut;

/// Most faults in one run.
pub(crate) const MOST: usize = 3;
/// Least time between two faults that remove owners of divided state, as a part of the undisturbed run's
/// time.
const APART: f64 = 0.4;
/// Possible targets of faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Targets {
    /// Nodes of the job, each with a launcher; the launcher of a job of one node is the job.
    pub(crate) nodes: usize,
    /// Workers of a node.
    pub(crate) workers: usize,
    /// True if workers have one copy of the state, and may die at moments of its update.
    pub(crate) shares_state: bool,
    /// True if faults strike launchers.
    pub(crate) launchers: bool,
    /// True if the job can be ended and resumed, and its program replaced: it is `kolo train`, on one node.
    pub(crate) resumes: bool,
    /// True if an etcd grants the generations.
    pub(crate) etcd: bool,
    /// True if the run folder is on a disk that can be filled up.
    pub(crate) disk: bool,
    /// True if each node has a host whose link can be cut.
    pub(crate) links: bool,
}

/// Returns the faults of a run by rising time. At least one worker of the beginning stays, with its launcher.
pub(crate) fn plan(seed: u64, targets: Targets) -> Vec<Injection> {
    let workers = targets.nodes * targets.workers;
    let root = Key::new(seed).with_str("chaos");
    let count = 1 + root.with_str("count").below(MOST);
    let (mut at, mut removed, mut replaced, mut is_parted) = (0.0, 0, false, false);
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
        let launcher = launcher(key, fault, targets.nodes).filter(|_| targets.launchers);
        if targets.nodes == 1 && key.with_str("of all").below(4) == 0 {
            fault = of_all(key, targets.resumes);
        }
        if targets.shares_state && fault == Fault::Kill && key.with_str("aims").below(4) > 0 {
            fault = kill_in_update(key, removed + 2 < workers);
        }
        let lost = if launcher.is_some() { targets.workers } else { fault.lost().max(1) };
        if fault.removes() && (is_parted || removed + lost >= workers) {
            fault = Fault::Pause(300);
        }
        if targets.etcd && key.with_str("etcd").below(4) == 0 {
            fault = Fault::Etcd(100 + key.with_str("away").below(2000) as u64);
        }
        if targets.disk && key.with_str("disk").below(3) == 0 {
            fault = Fault::DiskFull(200 + key.with_str("full").below(3000) as u64);
        }
        let mut victim = launcher.filter(|_| strikes_processes(fault)).map(Victim::Launcher);
        if targets.links && key.with_str("link").below(3) == 0 {
            // The part that continues is known beforehand only if the job has lost no worker otherwise.
            fault = link_cut(key, removed == 0 && !is_parted);
            victim = Some(Victim::Host(key.with_str("host").below(targets.nodes)));
            is_parted |= fault.parts();
        }
        hits.push(Injection {
            at,
            fault,
            victim: victim.unwrap_or_else(|| self::victim(key, fault, replaced)),
        });
        removed += if fault.removes() { lost } else { 0 };
        replaced |= fault.replaces() && victim.is_none();
        // A resumed job has new workers, none of which is a replacement.
        replaced &= !matches!(fault, Fault::End(_));
    }
    hits
}

/// Returns the faults of a job in which each part of the state has two owners. They do not die together: a
/// fault removes a worker only when the job has recovered from the one before, and never after a worker has
/// been stopped, which the others notice late.
pub(crate) fn apart(mut hits: Vec<Injection>) -> Vec<Injection> {
    let (mut delay, mut free) = (0.0, 0.0);
    for hit in &mut hits {
        hit.at += delay;
        if !hit.fault.removes() {
            continue;
        }
        if free == f64::INFINITY {
            hit.fault = Fault::Pause(300);
            continue;
        }
        let wait = f64::max(free - hit.at, 0.0);
        (hit.at, delay) = (hit.at + wait, delay + wait);
        free = if hit.fault == Fault::Stop { f64::INFINITY } else { hit.at + APART };
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
        62..74 => Fault::Leave(Request::ALL[key.with_str("request").below(4)]),
        74..88 => Fault::Cut(within("cut", 1..256) as u8),
        _ => Fault::Folder(within("away", 20..800) as u64),
    }
}

/// Draws the death of a worker in an update, or of two if both may go.
fn kill_in_update(key: Key, may_be_two: bool) -> Fault {
    let aim = |key: Key, completes| {
        let (_, moment) = Moment::ALL[key.with_str("moment").below(Moment::ALL.len())];
        Aim { moment, blocks: key.with_str("blocks").below(4), completes }
    };
    let are_two = may_be_two && key.with_str("two").below(3) == 0;
    let second = are_two.then(|| aim(key.with_str("second"), true));
    Fault::KillInUpdate(aim(key, false), second)
}

/// Draws a fault of the whole job.
fn of_all(key: Key, resumes: bool) -> Fault {
    match key.with_str("kind").below(if resumes { 4 } else { 2 }) {
        // The launcher ends a worker that is stopped alone after five seconds.
        0 => Fault::StopAll(200 + key.with_str("stopped").below(6800) as u64),
        1 => Fault::Output,
        2 => Fault::Program,
        _ => Fault::End(Request::ALL[key.with_str("request").below(4)]),
    }
}

/// Draws a cut link. The cut outlasts the others' wait only if the job `may_part`.
fn link_cut(key: Key, may_part: bool) -> Fault {
    let how = [LinkCut::PacketsLost, LinkCut::Down][key.with_str("how").below(2)];
    let (short, long) = (50 + key.with_str("short").below(2500), 20_000 + key.with_str("long").below(20_000));
    let ms = match key.with_str("parts").below(4) {
        0 if may_part => None,
        1 if may_part => Some(long as u64),
        _ => Some(short as u64),
    };
    Fault::Link { how, ms }
}

/// Draws the node whose launcher is struck, if any.
fn launcher(key: Key, fault: Fault, nodes: usize) -> Option<usize> {
    let strikes = nodes > 1 && strikes_processes(fault) && key.with_str("launcher").below(3) == 0;
    strikes.then(|| key.with_str("node").below(nodes))
}

/// True if the fault may strike a launcher. Leaving is for workers: a launcher that gets such a signal ends
/// its node's part of the job. A cut would separate a launcher from its own workers, which no network does.
fn strikes_processes(fault: Fault) -> bool {
    matches!(fault, Fault::Kill | Fault::Stop | Fault::Pause(_))
}

fn victim(key: Key, fault: Fault, replaced: bool) -> Victim {
    match key.with_str("victim").below(3) {
        _ if fault.is_of_job() => Victim::All,
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
        Targets {
            nodes: 1,
            workers,
            shares_state: false,
            launchers: false,
            resumes: true,
            etcd: false,
            disk: false,
            links: false,
        }
    }

    /// Two nodes of two workers, and launchers that may die.
    fn two_nodes() -> Targets {
        Targets {
            nodes: 2,
            workers: 2,
            shares_state: false,
            launchers: true,
            resumes: false,
            etcd: false,
            disk: false,
            links: false,
        }
    }

    #[test]
    fn owners_do_not_die_together() {
        let (mut two, mut stops) = (0, 0);
        for hits in (0..300).map(|seed| plan(seed, one_node(4))) {
            let apart = apart(hits.clone());
            assert!(
                apart.len() == hits.len() && apart.is_sorted_by(|one, next| one.at <= next.at),
                "{apart:?}"
            );
            let removes: Vec<&Injection> = apart.iter().filter(|hit| hit.fault.removes()).collect();
            for pair in removes.windows(2) {
                assert!(pair[1].at - pair[0].at > APART - 1e-9 && pair[0].fault != Fault::Stop, "{apart:?}");
                two += 1;
            }
            stops += apart.iter().filter(|hit| hit.fault == Fault::Stop).count();
        }
        assert!(two > 30 && stops > 10, "{two} {stops}");
    }

    #[test]
    fn who_is_parted_has_lost_nobody() {
        let plans = (0..400).map(|seed| plan(seed, Targets { links: true, ..two_nodes() }));
        let (mut for_good, mut long, mut short) = (0, 0, 0);
        for hits in plans {
            let is_link = |hit: &&Injection| matches!(hit.fault, Fault::Link { .. });
            for hit in hits.iter().filter(is_link) {
                assert!(matches!(hit.victim, Victim::Host(0 | 1)), "{hits:?}");
                let parts = hit.fault.parts();
                let Fault::Link { ms, .. } = hit.fault else { continue };
                for_good += usize::from(ms.is_none());
                long += usize::from(parts && ms.is_some());
                short += usize::from(!parts);
                assert!(!parts || !hits.iter().any(|hit| hit.fault.removes()), "{hits:?}");
            }
            assert!(hits.iter().filter(|hit| hit.fault.parts()).count() < 2, "{hits:?}");
        }
        assert!(for_good > 20 && long > 20 && short > 100, "{for_good} {long} {short}");
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
        let two = Targets { etcd: true, ..two_nodes() };
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
    fn a_disk_is_filled_up_and_plans_without_that_stay() {
        let with = |disk| (0..200).map(move |seed| plan(seed, Targets { disk, ..one_node(4) }));
        let is_full = |hit: &Injection| matches!(hit.fault, Fault::DiskFull(_)) && hit.victim == Victim::All;
        assert!(with(true).flatten().filter(is_full).count() > 50);
        for (with, without) in with(true).zip(with(false)) {
            assert!(with.iter().any(is_full) || with == without, "{with:?}");
        }
    }

    #[test]
    fn workers_with_one_copy_of_the_state_die_at_every_moment_of_its_update() {
        let shared = |workers| Targets { shares_state: true, ..one_node(workers) };
        let plans: Vec<Vec<Injection>> = (0..300).map(|seed| plan(seed, shared(4))).collect();
        let aims = || {
            plans.iter().flatten().filter_map(|hit| match hit.fault {
                Fault::KillInUpdate(aim, second) => Some((aim, second)),
                _ => None,
            })
        };
        for (name, moment) in Moment::ALL {
            let first = aims().any(|(aim, _)| aim.moment == moment && !aim.completes);
            let second = aims().any(|(_, aim)| aim.is_some_and(|aim| aim.moment == moment && aim.completes));
            assert!(first && second, "{name}");
        }
        for (seed, workers) in (0..300).flat_map(|seed| [2, 3, 4].map(|workers| (seed, workers))) {
            let hits = plan(seed, shared(workers));
            assert!(hits.iter().map(|hit| hit.fault.lost()).sum::<usize>() < workers, "{hits:?}");
            let is_aimed = |hit: &Injection| matches!(hit.fault, Fault::KillInUpdate(..));
            assert!(hits.iter().any(is_aimed) || hits == plan(seed, one_node(workers)), "{hits:?}");
        }
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
    fn only_what_can_be_resumed_is_ended_or_replaced() {
        let own = Targets { resumes: false, ..one_node(4) };
        let hits: Vec<Injection> = (0..100).flat_map(|seed| plan(seed, own)).collect();
        let is_drawn = |name| hits.iter().any(|hit| hit.fault.name() == name);
        assert!(is_drawn("stop all") && is_drawn("output closed"));
        assert!(!is_drawn("end and resume") && !is_drawn("program replaced"));
    }

    #[test]
    fn a_hundred_seeds_have_everything() {
        let plans: Vec<Vec<Injection>> = (0..100).map(|seed| plan(seed, one_node(4))).collect();
        let hits = || plans.iter().flatten();
        let of_workers = ["kill", "stop", "pause", "leave", "cut", "folder away"];
        let of_all = ["end and resume", "stop all", "program replaced", "output closed"];
        for name in of_workers.into_iter().chain(of_all) {
            assert!(hits().any(|hit| hit.fault.name() == name), "{name}");
        }
        for request in Request::ALL {
            assert!(hits().any(|hit| hit.fault == Fault::Leave(request)), "{request:?}");
            assert!(hits().any(|hit| hit.fault == Fault::End(request)), "{request:?}");
        }
        for victim in [Victim::First, Victim::Replacement] {
            assert!(hits().any(|hit| hit.victim == victim && hit.fault == Fault::Kill), "{victim:?}");
        }
        let removes = |hit: &Injection| hit.fault.removes();
        let close = |two: &[Injection]| two.iter().all(removes) && two[1].at - two[0].at < 0.02;
        assert!(plans.iter().any(|hits| hits.windows(2).any(close)));
    }
}
