//! Islands that synchronize rarely, on a real network: the model is that of one process that trains the
//! islands in turn. Also, updates that are one step late: the model is complete only when all are applied.

use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::Settings;
use kolo_ddp::{BucketCaps, Config};

use super::residual_net::ResidualNet;
use super::{device, residual_shard, sgd};
use crate::Ddp;
use crate::tests::inventory_of;

/// Returns the bits of all values after two and a half rounds; the last one ends early.
fn train(group: Group, config: &Config) -> Vec<u32> {
    let momentum = Settings::default().with("momentum", 0.9);
    let mut ddp = Ddp::new(group, ResidualNet::new(0.2, &device()), config, sgd(&momentum)).unwrap();
    for step in 0..8 {
        if step == 7 {
            ddp.end_round();
        }
        for shard in ddp.shards() {
            residual_shard(&mut ddp, step, shard);
        }
        ddp.step(0.05).unwrap();
    }
    let values = ddp.with_replica(|replica| replica.values().unwrap().to_vec());
    // The model has the replica's values, including running statistics.
    assert_eq!(inventory_of::<ResidualNet>(ddp.model()).values, values);
    ddp.into_model().unwrap();
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn a_residual_network_has_the_same_bits_on_any_number_of_ranks() {
    let mut different = Vec::new();
    for (sync, islands) in [
        ("local:H=3", Some(4)),
        ("diloco:H=3", Some(2)),
        ("post-local:H=3,T=2", Some(2)),
        ("delayed:1", None),
    ] {
        let config = Config { shards: Some(4), sync: sync.parse().unwrap(), islands, ..Config::default() };
        let alone = train(Group::alone(), &config);
        for (world, caps) in [(2, 0.5), (3, 25.0), (4, 0.5)] {
            let config = Config { caps: Some(BucketCaps::of_mib(caps)), ..config.clone() };
            for bits in threads::spawn(world, |group| train(group, &config)).unwrap() {
                assert!(bits == alone, "{sync}, {world} ranks");
            }
        }
        assert!(!different.contains(&alone), "{sync} is what another mode is");
        different.push(alone);
    }
}

#[test]
fn a_model_in_the_middle_of_a_round_is_refused() {
    for sync in ["local:H=3", "delayed:1"] {
        let config = Config { shards: Some(4), sync: sync.parse().unwrap(), ..Config::default() };
        let mut ddp =
            Ddp::new(Group::alone(), ResidualNet::new(0.2, &device()), &config, sgd(&Settings::default()))
                .unwrap();
        (0..4).for_each(|shard| residual_shard(&mut ddp, 0, shard));
        ddp.step(0.05).unwrap();
        let error = ddp.into_model().err().unwrap().to_string();
        assert!(error.contains("call `Ddp::end_round` before the last step"), "{error}");
    }
}
