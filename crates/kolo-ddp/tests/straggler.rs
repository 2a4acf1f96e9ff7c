//! A slow rank: reported with its cause, relieved of shards, given them back; and never other bits.

mod common;

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use common::{WIDTH, bits, reductions, refusal, replica, run_shard};
use kolo_comm::env::WorkerEnv;
use kolo_comm::{Group, Options, Rank, TCP, threads};
use kolo_ddp::optimizer::Settings;
use kolo_ddp::reduction::{REDUCTIONS, Reducer};
use kolo_ddp::straggler::{Cause, EVERY, Policy, Straggler};
use kolo_ddp::{BucketCaps, Config, Replica, Warning};

const SHARDS: usize = 6;
/// Duration of a shard, and that on the slow rank: so far apart that a busy machine cannot mix them up.
const USUAL: Duration = Duration::from_millis(10);
const SLOW: Duration = Duration::from_millis(40);
/// Duration of a stop of a rank that is stopped at intervals.
const STALL: Duration = Duration::from_millis(60);
const CULPRIT: Rank = Rank(1);

/// Result of a run on one rank.
struct Outcome {
    bits: Vec<u32>,
    found: Vec<Straggler>,
    /// All ranks' shards after each step.
    shares: Vec<Vec<usize>>,
}

fn config(straggler: Policy, elastic: bool, reduction: Arc<dyn Reducer>) -> Config {
    let caps = Some(BucketCaps { first: 4 * WIDTH, other: 8 * WIDTH });
    Config { shards: Some(SHARDS), straggler, elastic, reduction, caps, ..Config::default() }
}

/// The culprit is slow in the steps before `until`; `work` runs before each shard.
fn train(
    group: Group,
    (policy, reduction): (Policy, &Arc<dyn Reducer>),
    steps: u64,
    until: u64,
    work: &dyn Fn(&mut Replica, bool),
) -> Outcome {
    let slow = group.rank() == CULPRIT;
    let config = config(policy, policy == Policy::Drop, reduction.clone());
    let mut replica = replica(Arc::new(group), &config, "adamw", Settings::default());
    let (mut found, mut shares) = (Vec::new(), Vec::new());
    for step in 0..steps {
        for shard in replica.shards() {
            work(&mut replica, slow && step < until);
            run_shard(&mut replica, &[step as usize * SHARDS + shard, 3 * shard]);
        }
        let before = replica.shares().to_vec();
        let report = replica.step(0.01).unwrap();
        assert_eq!(report.shards_changed, before != replica.shares());
        // Warnings about all ranks are in rank 0's report.
        let warns = |is: fn(&Warning) -> bool| report.warnings.iter().any(is);
        let is_first = replica.group().rank() == Rank(0);
        let is_found = is_first && report.straggler.is_some();
        assert_eq!(warns(|warning| matches!(warning, Warning::Straggler(_))), is_found);
        let has_moved = is_first && report.shards_changed;
        assert_eq!(warns(|warning| matches!(warning, Warning::SharesMoved { .. })), has_moved);
        found.extend(report.straggler);
        shares.push(replica.shares().to_vec());
    }
    let bits = bits(&mut replica);
    Outcome { bits, found, shares }
}

fn sum() -> Arc<dyn Reducer> {
    common::lively_reduction(&REDUCTIONS[0])
}

fn alone(steps: u64, reduction: &Arc<dyn Reducer>) -> Vec<u32> {
    let run = |group: Group| train(group, (Policy::Warn, reduction), steps, 0, &|_, _| {});
    threads::spawn(1, run).unwrap().remove(0).bits
}

fn computing(_: &mut Replica, slow: bool) {
    sleep(if slow { SLOW } else { USUAL });
}

fn waiting_for_data(replica: &mut Replica, slow: bool) {
    sleep(USUAL);
    if slow {
        sleep(SLOW);
        replica.data_waited(SLOW);
    }
}

#[test]
fn the_slow_rank_is_named_with_its_cause() {
    // The first step is not measured, and a finding takes two comparisons.
    let (steps, sum) = (2 * EVERY + 3, &sum());
    let expected = alone(steps, sum);
    for (work, cause, policy) in [
        (&computing as &(dyn Fn(&mut Replica, bool) + Sync), Cause::Compute, Policy::Warn),
        (&waiting_for_data, Cause::Data, Policy::Drop),
    ] {
        for outcome in threads::spawn(3, |group| train(group, (policy, sum), steps, steps, work)).unwrap() {
            assert!(outcome.bits == expected, "{cause:?}");
            let [found] = &outcome.found[..] else { panic!("one finding: {:?}", outcome.found) };
            assert_eq!((found.rank, found.cause), (CULPRIT, cause), "{}", found.reason);
            assert!(found.reason.contains("rank 1"), "{}", found.reason);
            assert!(
                outcome.shares.iter().all(|shares| *shares == [2, 2, 2]),
                "nothing has been asked to move"
            );
        }
    }
}

/// All messages of one rank over sockets take this long.
#[test]
fn a_rank_with_a_slow_link_is_named() {
    let steps = 2 * EVERY + 3;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let master = listener.local_addr().unwrap();
    drop(listener);
    let run = |rank: usize| {
        let place = WorkerEnv { rank: Rank(rank), world_size: 3, endpoint: master.into() };
        let delay = if Rank(rank) == CULPRIT { SLOW } else { Duration::ZERO };
        let options = Options { transport: Some(&TCP), delay, ..Options::default() };
        let group = Group::join(&place, &options).unwrap();
        train(group, (Policy::Warn, &sum()), steps, 0, &computing)
    };
    let run = &run;
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..3).map(|rank| scope.spawn(move || run(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    for outcome in outcomes {
        let [found] = &outcome.found[..] else { panic!("one finding: {:?}", outcome.found) };
        assert_eq!((found.rank, found.cause), (CULPRIT, Cause::Communication), "{}", found.reason);
    }
}

#[test]
fn shards_leave_the_slow_rank_and_come_back_when_it_recovers() {
    let steps = 8 * EVERY + 3;
    // The state of each shard moves with it, if there is any.
    let keeps = |reduction: &Arc<dyn Reducer>| !reduction.shard_state().is_empty();
    let adamw = kolo_ddp::optimizer::named("adamw", &Settings::default()).unwrap();
    let fits = |reduction: &Arc<dyn Reducer>| reduction.fits(&*adamw, &[]).is_ok();
    let all = [sum()].into_iter().chain(reductions().filter(keeps).filter(fits));
    // Their ranks sleep most of the time, so all run at once.
    std::thread::scope(|scope| {
        all.for_each(|reduction| drop(scope.spawn(move || shards_leave_and_come_back(steps, &reduction))));
    });
}

fn shards_leave_and_come_back(steps: u64, reduction: &Arc<dyn Reducer>) {
    let expected = alone(steps, reduction);
    let run = |group: Group| train(group, (Policy::Rebalance, reduction), steps, 3 * EVERY + 1, &computing);
    for outcome in threads::spawn(3, run).unwrap() {
        assert!(outcome.bits == expected, "{reduction:?}");
        assert!(outcome.shares.iter().all(|shares| shares.iter().sum::<usize>() == SHARDS));
        let least = outcome.shares.iter().map(|shares| shares[CULPRIT.0]).min();
        assert_eq!(least, Some(1), "it keeps one, to be measured by: {:?}", outcome.shares);
        assert_eq!(outcome.shares.last(), Some(&vec![2, 2, 2]), "{:?}", outcome.shares);
    }
}

/// The slow rank is as fast as the others, but is stopped in one of four steps, as by a CPU quota.
fn stopped_now_and_then(replica: &mut Replica, slow: bool) {
    sleep(USUAL);
    if slow && replica.steps().is_multiple_of(4) {
        sleep(STALL);
    }
}

#[test]
fn a_rank_that_is_stopped_now_and_then_is_named_and_relieved() {
    // Stalls are counted over eight comparisons, and a finding takes two.
    let (steps, sum) = (9 * EVERY + 3, &sum());
    let expected = alone(steps, sum);
    let run = |group: Group| train(group, (Policy::Rebalance, sum), steps, steps, &stopped_now_and_then);
    for outcome in threads::spawn(3, run).unwrap() {
        assert!(outcome.bits == expected);
        let [found] = &outcome.found[..] else { panic!("one finding: {:?}", outcome.found) };
        assert_eq!((found.rank, found.cause), (CULPRIT, Cause::Compute), "{}", found.reason);
        assert!(found.reason.contains("in stalls"), "{}", found.reason);
        assert_eq!(outcome.shares.last().map(|shares| shares[CULPRIT.0]), Some(1), "{:?}", outcome.shares);
    }
}

#[test]
fn dropping_a_rank_needs_an_elastic_job() {
    let error = refusal(Group::alone(), &config(Policy::Drop, false, sum()));
    assert!(error.contains("Config::elastic"), "{error}");
    let wrong = Config { shares: Some(vec![1.0, 2.0]), ..config(Policy::Warn, false, sum()) };
    let error = refusal(Group::alone(), &wrong);
    assert!(error.contains("2 weights for 1 worker;"), "{error}");
}
