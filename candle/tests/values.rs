//! Values against plain loops of candle, gradients that travel during the pass, initial values.

mod common;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use candle_core::{CpuStorage, CustomOp1, DType, Device, Layout, Result, Shape, Tensor, Var};
use candle_nn::{AdamW, Init, Module, Optimizer as _, ParamsAdamW, SGD, VarBuilder, VarMap, linear};
use kolo_candle::{CandleModel, Ddp, Loss, Options};
use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::{self, Optimizer, Settings};
use kolo_ddp::{BucketCaps, Config, Replica};

use common::mlp::{INPUTS, Mlp, all, largest_difference, plain_sgd, samples, values};
use common::{SHARDS, tensor};

const STEPS: usize = 12;

/// Trains by Kolo on this worker.
fn trained(group: Group, optimizer: Box<dyn Optimizer>, rate: f64) -> Vec<f32> {
    let vars = VarMap::new();
    let model = CandleModel::build(&vars, Mlp::new).unwrap();
    let config = Config { shards: Some(SHARDS), ..Config::default() };
    let mut ddp = Ddp::new(group, model, &config, optimizer).unwrap();
    for step in 0..STEPS {
        for shard in ddp.shards() {
            let samples = samples(step, shard);
            let count = samples.dims()[0];
            let loss = ddp.model().error(&samples).unwrap();
            ddp.backward(Loss::sum(loss, count).unwrap()).unwrap();
        }
        ddp.step(rate).unwrap();
    }
    ddp.into_model().unwrap();
    all(&vars)
}

/// Trains by candle alone, on the samples of all shards at once.
fn by_candle(optimizer: impl FnOnce(Vec<Var>) -> Box<dyn FnMut(&Tensor)>) -> Vec<f32> {
    let vars = VarMap::new();
    // The same initial values.
    drop(CandleModel::build(&vars, Mlp::new).unwrap());
    let model = Mlp::new(VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu)).unwrap();
    let mut step_by = optimizer(vars.all_vars());
    for step in 0..STEPS {
        let shards: Vec<Tensor> = (0..SHARDS).map(|shard| samples(step, shard)).collect();
        let samples = Tensor::cat(&shards, 0).unwrap();
        let mean = model.error(&samples).unwrap() / samples.dims()[0] as f64;
        step_by(&mean.unwrap());
    }
    all(&vars)
}

#[test]
fn two_workers_make_the_steps_of_candles_sgd() {
    let expected = by_candle(|vars| {
        let mut sgd = SGD::new(vars, 0.05).unwrap();
        Box::new(move |loss| sgd.backward_step(loss).unwrap())
    });
    let alone = trained(Group::alone(), plain_sgd(), 0.05);
    assert!(largest_difference(&alone, &expected) < 2e-6, "{}", largest_difference(&alone, &expected));
    let start = trained(Group::alone(), plain_sgd(), 0.0);
    assert!(largest_difference(&start, &expected) > 0.01, "nothing was learned");
    for rank in threads::spawn(2, |group| trained(group, plain_sgd(), 0.05)).unwrap() {
        assert_eq!(rank, alone);
    }
}

#[test]
fn two_workers_make_the_steps_of_candles_adamw() {
    let settings = [("beta1", 0.9), ("beta2", 0.999), ("epsilon", 1e-3), ("weight_decay", 0.1)];
    let settings = settings.into_iter().fold(Settings::default(), |all, (name, value)| all.with(name, value));
    let adamw = || optimizer::named("adamw", &settings).unwrap();
    let expected = by_candle(|vars| {
        let params = ParamsAdamW { lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-3, weight_decay: 0.1 };
        let mut adamw = AdamW::new(vars, params).unwrap();
        Box::new(move |loss| adamw.backward_step(loss).unwrap())
    });
    let alone = trained(Group::alone(), adamw(), 0.01);
    assert!(largest_difference(&alone, &expected) < 5e-6, "{}", largest_difference(&alone, &expected));
    for rank in threads::spawn(2, |group| trained(group, adamw(), 0.01)).unwrap() {
        assert_eq!(rank, alone);
    }
}

/// Identity whose backward pass waits until the first bucket is reduced.
struct Gate(Arc<Mutex<Replica>>);

impl CustomOp1 for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (start, end) = layout.contiguous_offsets().unwrap();
        Ok((CpuStorage::F32(storage.as_slice::<f32>()?[start..end].to_vec()), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let until = Instant::now() + Duration::from_secs(30);
        while !self.0.lock().unwrap().is_back(0) {
            assert!(Instant::now() < until, "no bucket was reduced while the backward pass went on");
            std::thread::yield_now();
        }
        Ok(Some(gradient.clone()))
    }
}

/// The gate holds back the first layer's gradients until both workers have reduced a bucket of the last
/// layer. If gradients were handed over at the end of the pass, it would never open.
#[test]
fn buckets_are_reduced_while_the_backward_pass_goes_on() {
    threads::spawn(2, |group| {
        let wide = |builder: VarBuilder| {
            Ok((linear(INPUTS, 64, builder.pp("first"))?, linear(64, 64, builder.pp("last"))?))
        };
        let model = CandleModel::build(&VarMap::new(), wide).unwrap();
        let caps = Some(BucketCaps { first: 4096, other: 4096 });
        let config = Config { shards: Some(2), caps, ..Config::default() };
        let mut ddp = Ddp::new(group, model, &config, common::sgd()).unwrap();
        for step in 0..3 {
            let replica = ddp.shared_replica();
            let (first, last) = &**ddp.model();
            let x = first.forward(&tensor(step, &[3, INPUTS])).unwrap();
            // Buckets are in the order of readiness from the second step on.
            let x = if step == 0 { x } else { x.apply_op1(Gate(replica)).unwrap() };
            let loss = last.forward(&x).unwrap().sqr().unwrap().sum_all().unwrap();
            ddp.backward(Loss::sum(loss, 3).unwrap()).unwrap();
            assert!(ddp.step(0.01).unwrap().traffic.started_early >= 1);
        }
    })
    .unwrap();
}

/// Mean and deviation of the values of each kind, as candle defines them; the same at every start.
#[test]
fn initial_values_have_candles_distributions() {
    let draw = |name: &'static str, seed: u64, init: Init| {
        let vars = VarMap::new();
        let build = move |builder: VarBuilder| builder.get_with_hints((100, 200), name, init);
        drop(Options { seed, ..Options::default() }.build(&vars, build).unwrap());
        values(&vars, name)
    };
    let moments = |values: &[f32]| {
        let n = values.len() as f64;
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        (mean, (values.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n).sqrt())
    };
    let kaiming = (2f64 / 200.0).sqrt();
    for (init, mean, deviation, bound) in [
        (Init::Const(3.0), 3.0, 0.0, 3.0),
        (Init::Uniform { lo: -1.0, up: 3.0 }, 1.0, 4.0 / 12f64.sqrt(), 3.0),
        (Init::Randn { mean: 2.0, stdev: 0.5 }, 2.0, 0.5, f64::INFINITY),
        (candle_nn::init::DEFAULT_KAIMING_UNIFORM, 0.0, kaiming, 3f64.sqrt() * kaiming),
        (candle_nn::init::DEFAULT_KAIMING_NORMAL, 0.0, kaiming, f64::INFINITY),
    ] {
        let values = draw("w", 1, init);
        let found = moments(&values);
        let close = |a: f64, b: f64| (a - b).abs() <= 0.03 * deviation + 1e-9;
        assert!(close(found.0, mean) && close(found.1, deviation), "{init:?}: {found:?}");
        assert!(values.iter().all(|value| f64::from(value.abs()) <= bound + 1e-6), "{init:?}");
        assert_eq!(values, draw("w", 1, init));
        if deviation > 0.0 {
            assert!(values != draw("w", 2, init) && values != draw("v", 1, init));
        }
    }
}
