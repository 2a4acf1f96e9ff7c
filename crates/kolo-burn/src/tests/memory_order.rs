//! Weights in a memory order other than row-major.

use burn_flex_nn::arrange;

use super::*;
use crate::hook::order_of;

/// With the same layers they train to the same values and are never reordered.
#[test]
fn weights_in_another_order_become_the_same() {
    let train = |model: ResidualNet| {
        let config = Config { shards: Some(4), ..Config::default() };
        let settings = Settings::default().with("momentum", 0.9);
        let mut ddp = Ddp::new(Group::alone(), model, &config, sgd(&settings)).unwrap();
        for step in 0..3 {
            for shard in ddp.shards() {
                residual_shard(&mut ddp, step, shard);
            }
            ddp.step(0.05).unwrap();
        }
        let layout = ddp.layout().spans().iter().map(|span| span.spec.order.clone()).collect::<Vec<_>>();
        let weight = order_of(ddp.model().conv1.weight.val());
        let folder = tempfile::tempdir().unwrap();
        let at = checkpoint::Position { step: 3, epoch: 0, step_in_epoch: 3, notes: Default::default() };
        let saved = ddp.with_replica(|replica| checkpoint::save(folder.path(), replica, &at)).unwrap();
        let saved = std::fs::read(saved.join("optimizer.safetensors")).unwrap();
        (ddp.with_replica(checkpoint::weights_sha256).unwrap(), saved, layout, weight)
    };
    let new = || ResidualNet::new(0.25, &device());
    let (sha256, saved, layout, weight) = train(arrange(new()));
    assert_eq!(layout.iter().filter(|order| !order.is_row_major()).count(), 4);
    assert!(!weight.is_row_major() && layout.contains(&weight));
    let expected = train(new());
    assert!(expected.2.iter().all(|order| order.is_row_major()));
    assert_eq!((sha256, saved), (expected.0, expected.1));
}
