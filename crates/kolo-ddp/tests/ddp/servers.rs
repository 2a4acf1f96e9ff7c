//! Summation servers: ranks that add for the others, so that these send less. With any number of them the
//! weights end in the same bits, also when one of them dies.

use crate::common::elastic::{MOMENTS, Role, Script, check, run};
use crate::common::{Combination, combinations, refusal};
use kolo_comm::{SHM, TCP, threads};
use kolo_ddp::Config;
use kolo_ddp::straggler::Policy;
use kolo_testing::selected;

/// The sum and every other reduction, with one optimizer.
fn reductions() -> impl Iterator<Item = Combination> {
    combinations().into_iter().filter(|(optimizer, ..)| optimizer.name == "sgd")
}

#[test]
fn the_same_bits_with_any_number_of_servers() {
    for (number, combination) in reductions().enumerate() {
        let kinds = [(None, false), (None, true), (Some(1.5), false)];
        for (clip_norm, scaled) in kinds.into_iter().take(if number == 0 { 3 } else { 2 }) {
            let script = || Script::new(0, &combination, clip_norm, scaled);
            let (expected, losses) = run(&script().undisturbed(), &TCP).remove(0);
            let mut transports = [&SHM, &TCP];
            transports.rotate_left((number + usize::from(scaled)) % 2);
            for transport in selected(if number == 0 { 2 } else { 1 }, transports) {
                let counts = (1..=4).flat_map(|workers| (0..=2).map(move |servers| (workers, servers)));
                // All of them with the sum.
                for (workers, servers) in
                    counts.filter(|counts| number == 0 || [(2, 1), (3, 2)].contains(counts))
                {
                    let direct = (workers + servers) % 2 == 0;
                    let script = Script { direct, ..script().with_servers(&[(workers, servers, None)]) };
                    check(&script, transport, 0, &expected, &losses);
                }
            }
        }
    }
}

#[test]
fn a_server_that_dies_is_a_member_that_dies() {
    // Before a step, after its passes, and when the ranks have agreed.
    let moments = [0, MOMENTS - 2, MOMENTS - 1];
    for combination in reductions().filter(|(.., reduction)| ["sum", "powersgd"].contains(&reduction.name()))
    {
        let script = || Script::new(0, &combination, None, false);
        let (expected, losses) = run(&script().undisturbed(), &TCP).remove(0);
        let cases = [(&SHM, 0), (&TCP, 1), (&SHM, 2), (&TCP, 0), (&SHM, 1), (&TCP, 2)];
        for (transport, n) in selected(3, cases) {
            let moment = moments[n];
            for generations in [
                // A server dies without a replacement; then the last one.
                &[
                    (3, 2, Some((Role::Server, 3, moment))),
                    (3, 1, Some((Role::Server, 6, moments[(n + 1) % 3]))),
                    (3, 0, None),
                ][..],
                // A server dies, another one joins; a worker dies, and another one joins.
                &[
                    (2, 1, Some((Role::Server, 4, moment))),
                    (2, 1, Some((Role::Worker, 7, moment))),
                    (2, 2, None),
                ],
                // A worker dies, and the servers outnumber the remaining workers.
                &[(2, 2, Some((Role::Worker, 5, moment))), (1, 2, None)],
            ] {
                let script = Script { direct: n != 1, ..script().with_servers(generations) };
                check(&script, transport, n as u64, &expected, &losses);
            }
        }
    }
}

/// Returns the errors of a job's ranks; `servers` marks servers.
fn refused(servers: &[bool], config: &Config) -> Vec<String> {
    threads::spawn(servers.len(), |group| {
        let rank = group.rank().0;
        let group = if servers[rank] { group.into_server() } else { group };
        refusal(group, config)
    })
    .unwrap()
}

#[test]
fn ranks_that_cannot_train_together_get_one_sentence() {
    let config = Config { shards: Some(4), straggler: Policy::Warn, ..Config::default() };
    let weights = |weights: &[f64]| Config { shares: Some(weights.to_vec()), ..config.clone() };
    let all = |errors: Vec<String>, text: &str| {
        assert!(errors.iter().all(|error| error.contains(text)), "{text}: {errors:?}");
    };
    all(refused(&[true, true], &config), "all of 2 ranks are summation servers; start workers");
    all(refused(&[true, false], &config), "rank 0 is a summation server");
    all(refused(&[false, false, true], &weights(&[1.0, 1.0, 1.0])), "3 weights for 2 workers");
    assert!(refused(&[false, false, true], &weights(&[3.0, 1.0])).iter().all(String::is_empty));
    // One shard for each worker.
    let config = Config { shards: None, ..Config::default() };
    assert!(refused(&[false, true, false], &config).iter().all(String::is_empty));
}
