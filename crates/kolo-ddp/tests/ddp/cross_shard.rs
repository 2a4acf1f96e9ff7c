//! Sums over all shards in the middle of their passes: the same bits on any number of ranks, and no rank
//! left waiting.

use kolo_comm::{Group, Rank, threads, tree};
use kolo_ddp::Error;
use kolo_ddp::cross_shard::{Exchange, Runner, SumRequest, TurnTaker};

const LEN: usize = 3;

/// A shard's summand of its n-th sum. No two have the same magnitude, so that another order yields other
/// bits.
fn own(shard: usize, number: usize) -> Vec<f64> {
    let value = |i: usize| ((shard * 31 + number * 7 + i) as f64 * 0.7).sin() * 10f64.powi(shard as i32 % 5);
    (0..LEN).map(value).collect()
}

/// Returns the bits of two steps' sums of `numbers` each, as each shard of this rank has received them;
/// `has` is true for shards that run.
fn sums(group: Group, shares: &[usize], has: impl Fn(usize) -> bool + Sync, numbers: usize) -> Vec<Vec<u64>> {
    let first: usize = shares[..group.rank().0].iter().sum();
    let shards: Vec<usize> = (first..first + shares[group.rank().0]).collect();
    let runs: Vec<bool> = shards.iter().map(|shard| has(*shard)).collect();
    let mut exchange = Some(Exchange::new(&group, shares).unwrap());
    let mut got = Vec::new();
    for _ in 0..2 {
        let mut begun = exchange.take().unwrap();
        begun.begin(runs.contains(&true)).unwrap();
        if !runs.contains(&true) {
            begun.follow().unwrap();
            exchange = Some(begun);
            continue;
        }
        let turns = TurnTaker::new(begun, runs.clone());
        std::thread::scope(|scope| {
            let pass = |place: usize| {
                let (turns, shard) = (&turns, shards[place]);
                scope.spawn(move || {
                    let runner = turns.enter(place);
                    let sum = |number| {
                        let request = SumRequest { what: "test", number, len: LEN };
                        runner.handle().sum(request, own(shard, number))
                    };
                    let bits = (0..numbers).flat_map(sum).map(f64::to_bits).collect();
                    runner.leave();
                    bits
                })
            };
            let places: Vec<usize> = (0..shards.len()).filter(|place| runs[*place]).collect();
            let threads: Vec<_> = places.into_iter().map(pass).collect();
            got.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        });
        exchange = Some(turns.end().unwrap());
    }
    got
}

#[test]
fn every_shard_gets_the_same_bits_on_any_rank() {
    for shards in [1, 4, 7, 8] {
        // Shard 1 and the last one may have no samples; with a rank each they follow.
        for empty in [vec![], vec![1], vec![1, shards - 1]] {
            let has = |shard: usize| shard == 0 || !empty.contains(&shard);
            let alone = sums(Group::alone(), &[shards], has, 4);
            for world in [2, 3, 8, 9] {
                let shares: Vec<usize> =
                    (0..world).map(|rank| tree::share(shards, world, Rank(rank)).len()).collect();
                let got = threads::spawn(world, |group| sums(group, &shares, has, 4)).unwrap();
                for bits in got.concat() {
                    assert!(bits == alone[0], "{shards} shards on {world} ranks without {empty:?}");
                }
            }
        }
    }
}

#[test]
fn a_sum_is_the_sum_of_the_shards_that_have_samples() {
    let got = sums(Group::alone(), &[3], |shard| shard != 1, 1);
    let expected = own(0, 0).into_iter().zip(own(2, 0)).map(|(a, b)| (a + b).to_bits()).collect::<Vec<_>>();
    assert_eq!(got, vec![expected; 4]);
}

/// Returns the error of a step of a rank whose two shards do this.
fn end_of(first: impl FnOnce(Runner) + Send, second: impl FnOnce(Runner) + Send) -> String {
    let mut exchange = Exchange::new(&Group::alone(), &[2]).unwrap();
    exchange.begin(true).unwrap();
    let turns = TurnTaker::new(exchange, vec![true, true]);
    std::thread::scope(|scope| {
        scope.spawn(|| first(turns.enter(0)));
        scope.spawn(|| second(turns.enter(1)));
    });
    turns.end().map(drop).unwrap_err().to_string()
}

#[test]
fn a_shard_that_ends_early_or_requests_another_sum_ends_the_step() {
    let sum = |runner: &Runner, number| {
        runner.handle().sum(SumRequest { what: "test", number, len: LEN }, vec![1.0; LEN])
    };
    let error = end_of(drop, |runner| assert_eq!(sum(&runner, 0), [1.0; LEN]));
    assert!(error.contains("ended before its time"), "{error}");

    let error = end_of(|runner| drop(sum(&runner, 0)), |runner| drop(sum(&runner, 1)));
    assert!(error.contains("3 numbers of test 0") && error.contains("3 numbers of test 1"), "{error}");

    let error = end_of(|runner| drop(sum(&runner, 0)), Runner::leave);
    assert!(error.contains("3 numbers of test 0") && error.contains("nothing more"), "{error}");
}

#[test]
fn a_rank_that_is_gone_is_named() {
    let ended = threads::spawn(2, |group| {
        let mut exchange = Exchange::new(&group, &[1, 1]).unwrap();
        exchange.begin(true).unwrap();
        if group.rank() == Rank(1) {
            return None;
        }
        let turns = TurnTaker::new(exchange, vec![true]);
        let runner = turns.enter(0);
        runner.handle().sum(SumRequest { what: "test", number: 0, len: LEN }, own(0, 0));
        runner.leave();
        Some(turns.end().map(drop).unwrap_err())
    });
    let error = ended.unwrap().remove(0).unwrap();
    assert!(matches!(&error, Error::Comm(kolo_comm::Error::Left { rank: Rank(1), .. })), "{error}");
}
