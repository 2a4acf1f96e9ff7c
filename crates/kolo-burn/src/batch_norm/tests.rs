//! Comparison with Burn's own batch normalization.

use std::sync::Arc;

use burn::nn::BatchNormConfig;
use burn::tensor::Device;
use kolo_comm::Group;
use kolo_ddp::cross_shard::{Exchange, TurnTaker};

use super::*;

fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((seed * 7_919 + i * 104_729) as f32 * 0.37).sin() * 2.0 + 5.0).collect()
}

fn turns() -> Arc<TurnTaker> {
    let mut exchange = Exchange::new(&Group::alone(), &[1]).unwrap();
    exchange.begin(true).unwrap();
    TurnTaker::new(exchange, vec![true])
}

/// Returns output, gradients of x, γ and β, and running statistics.
fn pass<const D: usize>(
    dims: [usize; D],
    place: impl Fn(Tensor<D>) -> Tensor<D>,
    forward: impl Fn(&BatchNorm, Tensor<D>) -> Tensor<D>,
) -> Vec<Vec<f32>> {
    let device = Device::flex().autodiff();
    let tensor =
        |seed| Tensor::<D>::from_data(TensorData::new(values(dims.iter().product(), seed), dims), &device);
    let mut layer = BatchNormConfig::new(dims[1]).with_momentum(0.3).init(&device);
    layer.gamma = layer.gamma.map(|old| {
        let values = TensorData::new(values(dims[1], 2), old.dims());
        Tensor::from_data(values, &device).require_grad()
    });
    let x = tensor(0).require_grad();
    let output = forward(&layer, place(x.clone()));
    let gradients = (output.clone() * tensor(1)).sum().backward();
    let of = |data: TensorData| data.iter::<f32>().collect::<Vec<f32>>();
    vec![
        of(output.into_data()),
        of(x.grad(&gradients).unwrap().into_data()),
        of(layer.gamma.grad(&gradients).unwrap().into_data()),
        of(layer.beta.grad(&gradients).unwrap().into_data()),
        of(layer.running_mean.value_sync().into_data()),
        of(layer.running_var.value_sync().into_data()),
    ]
}

fn same_as_burn<const D: usize>(dims: [usize; D]) {
    same_as_burn_where(dims, |x| x);
}

/// Compares with Burn; `place` may change the order of the elements in memory.
fn same_as_burn_where<const D: usize>(dims: [usize; D], place: impl Fn(Tensor<D>) -> Tensor<D>) {
    let turns = turns();
    let runner = turns.enter(0);
    let shard = CrossShardPass::new(0, runner.handle());
    let own = pass(dims, place, |layer, x| sync_batch_norm(layer, x, &shard));
    runner.leave();
    turns.end().unwrap();
    let burns = pass(dims, |x| x, |layer, x| layer.forward(x));
    for (what, (own, burns)) in own.iter().zip(&burns).enumerate() {
        assert_eq!(own.len(), burns.len());
        let size = burns.iter().fold(0.1f32, |most, value| most.max(value.abs()));
        for (own, burns) in own.iter().zip(burns) {
            assert!((own - burns).abs() <= 1e-5 * size, "{dims:?}, {what}: {own} and {burns}");
        }
    }
}

#[test]
fn alone_it_does_what_burns_does() {
    same_as_burn([4, 3, 5, 7]);
    same_as_burn([2, 5, 16]);
    same_as_burn([9, 4]);
    same_as_burn([1, 2, 3, 3]);
}

#[test]
fn channels_may_be_innermost() {
    let place = |x: Tensor<4>| {
        let ordered = x.permute([2, 3, 0, 1]).mul_scalar(1.0);
        let ordered =
            ordered.clone().reshape([ordered.dims().iter().product::<usize>()]).reshape(ordered.dims());
        ordered.permute([2, 3, 0, 1])
    };
    assert!(!order_of(place(Tensor::zeros([4, 3, 5, 7], &Device::flex()))).is_row_major());
    same_as_burn_where([4, 3, 5, 7], place);
    same_as_burn_where([2, 9, 1, 4], place);
}

#[test]
fn in_evaluation_it_is_the_layers_own() {
    let layer = BatchNormConfig::new(3).init(&Device::flex());
    let turns = turns();
    let runner = turns.enter(0);
    let shard = CrossShardPass::new(0, runner.handle());
    let x = Tensor::<2>::from_data(TensorData::new(values(12, 3), [4, 3]), &Device::flex());
    let expected = layer.forward(x.clone()).into_data();
    sync_batch_norm(&layer, x, &shard).into_data().assert_eq(&expected, true);
}
