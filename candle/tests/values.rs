//! Values against plain loops of candle, and what happens to each kind of variable.

mod common;

use candle_core::{CpuStorage, CustomOp1, DType, Device, Layout, Result, Shape, Tensor, Var};
use candle_nn::{
    AdamW, Embedding, Init, Linear, Module, Optimizer as _, ParamsAdamW, SGD, VarBuilder, VarMap,
};
use candle_nn::{embedding, linear, linear_no_bias};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kolo_candle::{CandleModel, Ddp, Loss, Options};
use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::{self, Optimizer, Settings};
use kolo_ddp::{BucketCaps, Config, Replica};

use common::{SHARDS, tensor};

const INPUTS: usize = 7;
const STEPS: usize = 12;

/// Two layers.
struct Mlp {
    hidden: Linear,
    out: Linear,
}

impl Mlp {
    fn new(builder: VarBuilder) -> Result<Self> {
        Ok(Mlp { hidden: linear(INPUTS, 16, builder.pp("hidden"))?, out: linear(16, 3, builder.pp("out"))? })
    }

    /// Sum of squared errors of samples.
    fn error(&self, samples: &Tensor) -> Result<Tensor> {
        let targets = samples.narrow(1, 0, 3)?.sin()?;
        let outputs = self.out.forward(&self.hidden.forward(samples)?.tanh()?)?;
        (outputs - targets)?.sqr()?.sum_all()
    }
}

/// Samples of a shard; each has another number of them.
fn samples(step: usize, shard: usize) -> Tensor {
    tensor(step * SHARDS + shard, &[1 + (step + 2 * shard) % 4, INPUTS])
}

fn values(vars: &VarMap, name: &str) -> Vec<f32> {
    vars.data().lock().unwrap()[name].flatten_all().unwrap().to_vec1().unwrap()
}

fn all(vars: &VarMap) -> Vec<f32> {
    ["hidden.weight", "hidden.bias", "out.weight", "out.bias"]
        .iter()
        .flat_map(|name| values(vars, name))
        .collect()
}

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

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn two_workers_make_the_steps_of_candles_sgd() {
    let sgd = || optimizer::named("sgd", &Settings::default().with("momentum", 0.0)).unwrap();
    let expected = by_candle(|vars| {
        let mut sgd = SGD::new(vars, 0.05).unwrap();
        Box::new(move |loss| sgd.backward_step(loss).unwrap())
    });
    let alone = trained(Group::alone(), sgd(), 0.05);
    assert!(largest_difference(&alone, &expected) < 2e-6, "{}", largest_difference(&alone, &expected));
    let start = trained(Group::alone(), sgd(), 0.0);
    assert!(largest_difference(&start, &expected) > 0.01, "nothing was learned");
    for rank in threads::spawn(2, |group| trained(group, sgd(), 0.05)).unwrap() {
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

/// The gate holds back the first layer's gradients until both workers have reduced a bucket of the last layer. If
/// gradients were handed over at the end of the pass, it would never open.
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

/// The embedding is also the last layer's weight.
struct Tied {
    table: Embedding,
    out: Linear,
}

impl Tied {
    fn new(builder: VarBuilder) -> Result<Self> {
        let table = embedding(5, 4, builder.pp("table"))?;
        let out = Linear::new(table.embeddings().clone(), None);
        Ok(Tied { table, out })
    }

    fn error(&self) -> Result<Tensor> {
        let words = self.table.forward(&Tensor::new(&[0u32, 3, 3], &Device::Cpu)?)?;
        self.out.forward(&words)?.sqr()?.sum_all()
    }
}

fn plain_sgd() -> Box<dyn Optimizer> {
    optimizer::named("sgd", &Settings::default().with("momentum", 0.0)).unwrap()
}

fn one_shard() -> Config {
    Config { shards: Some(1), ..Config::default() }
}

#[test]
fn a_weight_in_two_places_takes_the_gradients_of_both() {
    let vars = VarMap::new();
    let model = CandleModel::build(&vars, Tied::new).unwrap();
    let plain = Tied::new(VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu)).unwrap();
    let table = vars.all_vars().remove(0);
    let gradients = plain.error().unwrap().backward().unwrap();
    let expected = (table.as_tensor() - (gradients.get(&table).unwrap() * 0.1).unwrap()).unwrap();
    let expected: Vec<f32> = expected.flatten_all().unwrap().to_vec1().unwrap();
    let mut ddp = Ddp::new(Group::alone(), model, &one_shard(), plain_sgd()).unwrap();
    let loss = ddp.model().error().unwrap();
    ddp.backward(Loss::sum(loss, 1).unwrap()).unwrap();
    ddp.step(0.1).unwrap();
    ddp.into_model().unwrap();
    assert_eq!(vars.all_vars().len(), 1);
    assert!(largest_difference(&values(&vars, "table.weight"), &expected) < 1e-6);
}

/// One variable under two names, as after `map.insert("b", map["a"].clone())`.
#[test]
fn a_variable_with_two_names_is_one_parameter() {
    let vars = VarMap::new();
    let weight = Var::from_tensor(&tensor(1, &[3])).unwrap();
    vars.data().lock().unwrap().extend([("a".to_owned(), weight.clone()), ("b".to_owned(), weight)]);
    let both = |builder: VarBuilder| Ok([builder.get(3, "a")?, builder.get(3, "b")?]);
    let model = CandleModel::build(&vars, both).unwrap();
    let mut ddp = Ddp::new(Group::alone(), model, &one_shard(), plain_sgd()).unwrap();
    assert_eq!(ddp.layout().spans().len(), 1);
    let warnings = ddp.take_warnings();
    assert!(warnings.iter().any(|warning| warning.to_string().contains("`b` is the same variable as `a`")));
    let [a, b] = &**ddp.model();
    let loss = a.mul(b).unwrap().sum_all().unwrap();
    ddp.backward(Loss::sum(loss, 1).unwrap()).unwrap();
    ddp.step(0.25).unwrap();
    ddp.into_model().unwrap();
    let expected: Vec<f32> = (0..3).map(|i| common::noise(1, i)).map(|x| x - 0.25 * 2.0 * x).collect();
    assert!(largest_difference(&values(&vars, "a"), &expected) < 1e-6);
    assert_eq!(values(&vars, "a"), values(&vars, "b"));
}

/// A variable that the model holds itself has no hook; its gradient comes at the end of the pass.
#[test]
fn a_variable_that_the_model_holds_itself_is_trained() {
    let vars = VarMap::new();
    let own = Var::from_tensor(&tensor(2, &[INPUTS])).unwrap();
    vars.data().lock().unwrap().insert("own".to_owned(), own.clone());
    let before = values(&vars, "own");
    let held = own.clone();
    let model = CandleModel::build(&vars, move |builder| {
        Ok((held.as_tensor().clone(), linear_no_bias(INPUTS, 1, builder.pp("layer"))?))
    });
    let mut ddp = Ddp::new(Group::alone(), model.unwrap(), &one_shard(), plain_sgd()).unwrap();
    let (own, layer) = &**ddp.model();
    let loss = layer.forward(&own.unsqueeze(0).unwrap()).unwrap().sum_all().unwrap();
    let weight = values(&vars, "layer.weight");
    ddp.backward(Loss::sum(loss, 1).unwrap()).unwrap();
    ddp.step(0.5).unwrap();
    ddp.into_model().unwrap();
    let expected: Vec<f32> = before.iter().zip(&weight).map(|(x, w)| x - 0.5 * w).collect();
    assert!(largest_difference(&values(&vars, "own"), &expected) < 1e-6);
    let expected: Vec<f32> = weight.iter().zip(&before).map(|(w, x)| w - 0.5 * x).collect();
    assert!(largest_difference(&values(&vars, "layer.weight"), &expected) < 1e-6);
}

#[test]
fn frozen_parameters_keep_their_bits_and_the_others_train() {
    let train = |group: Group| {
        let vars = VarMap::new();
        let options = Options { freeze: vec!["hidden.*".into()], ..Options::default() };
        let model = options.build(&vars, Mlp::new).unwrap();
        let before = all(&vars);
        let mut ddp =
            Ddp::new(group, model, &Config { shards: Some(2), ..Config::default() }, common::sgd()).unwrap();
        for shard in ddp.shards() {
            let loss = ddp.model().error(&samples(0, shard)).unwrap();
            ddp.backward(Loss::sum(loss, samples(0, shard).dims()[0]).unwrap()).unwrap();
        }
        let report = ddp.step(0.1).unwrap();
        let bytes: usize = report.traffic.buckets.iter().map(|bucket| bucket.bytes).sum();
        assert_eq!(bytes, size_of::<f32>() * (16 * 3 + 3));
        ddp.into_model().unwrap();
        let frozen = 16 * INPUTS + 16;
        assert!(before[..frozen] == all(&vars)[..frozen] && before[frozen..] != all(&vars)[frozen..]);
        all(&vars)
    };
    let alone = train(Group::alone());
    assert!(threads::spawn(2, train).unwrap().iter().all(|rank| *rank == alone));
    for (pattern, words) in
        [("body.*", "body.*: this selects no trained parameter"), ("*", "nothing to train")]
    {
        let options = Options { freeze: vec![pattern.into()], ..Options::default() };
        let error = options.build(&VarMap::new(), Mlp::new).err().unwrap().to_string();
        assert!(error.contains(words), "{error}");
    }
    let options = Options { statistics: vec!["mean".into()], ..Options::default() };
    let error = options.build(&VarMap::new(), Mlp::new).err().unwrap().to_string();
    assert_eq!(error, "statistics mean: no variable of the model has such a name");
}

#[test]
fn what_cannot_be_trained_is_refused_by_name() {
    let vars = VarMap::new();
    let double = Var::zeros(3, DType::F64, &Device::Cpu).unwrap();
    vars.data().lock().unwrap().insert("double".to_owned(), double);
    let error = CandleModel::build(&vars, Mlp::new).err().unwrap().to_string();
    assert_eq!(error, "parameter `double` is f64; Kolo trains f32, so build the model with `DType::F32`");
    let half = |builder: VarBuilder| builder.get_with_hints_dtype(3, "half", Init::Const(0.0), DType::BF16);
    let error = CandleModel::build(&VarMap::new(), half).err().unwrap().to_string();
    assert_eq!(error, "the model cannot be built: parameter `half` is bf16; Kolo trains f32");
    let error = CandleModel::build(&VarMap::new(), |_| Ok(())).err().unwrap().to_string();
    assert!(error.contains("no parameter to train"), "{error}");
    let vars = VarMap::new();
    drop(CandleModel::build(&vars, |builder| linear(2, 2, builder)).unwrap());
    let error = CandleModel::build(&vars, |builder| linear(2, 3, builder)).err().unwrap().to_string();
    assert!(error.contains("`weight` has the shape [2, 2]; the model asks for [3, 2]"), "{error}");
}

fn mlp(group: Group) -> Ddp<Mlp> {
    let model = CandleModel::build(&VarMap::new(), Mlp::new).unwrap();
    Ddp::new(group, model, &one_shard(), common::sgd()).unwrap()
}

#[test]
fn losses_of_another_graph_are_refused() {
    let mut ddp = mlp(Group::alone());
    let error = ddp.backward(Loss::sum(tensor(1, &[1]), 1).unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("the loss does not depend on a trained parameter"), "{error}");
    let mut ddp = mlp(Group::alone());
    let hidden = ddp.model().hidden.forward(&samples(0, 0)).unwrap();
    // It has no backward pass in candle.
    let loss = candle_nn::ops::softmax_last_dim(&hidden).unwrap().sum_all().unwrap();
    let error = ddp.backward(Loss::sum(loss, 1).unwrap()).unwrap_err().to_string();
    assert!(error.contains("without an operation that has no backward pass"), "{error}");
    let error = Loss::sum(tensor(1, &[2, 3]), 1).unwrap_err().to_string();
    assert_eq!(error, "the loss has the shape [2, 3]; give one number, as by `mean_all` or `sum_all`");
    let ddp = mlp(Group::alone());
    let error = ddp.model().error(&samples(0, 0)).unwrap().backward().unwrap_err().to_string();
    assert!(error.contains("call `Ddp::backward`"), "{error}");
}

#[test]
fn gradients_that_are_not_numbers_are_named_and_change_nothing() {
    let mut ddp = mlp(Group::alone());
    let before = ddp.weights_sha256().unwrap();
    let hidden = ddp.model().hidden.forward(&samples(0, 0)).unwrap();
    // The root of 0 has no derivative: 0 · ∞.
    let zeros = (&hidden - hidden.detach()).unwrap();
    let loss = zeros.sqr().unwrap().sqrt().unwrap().sum_all().unwrap();
    ddp.backward(Loss::sum(loss, 1).unwrap()).unwrap();
    let error = ddp.step(0.1).unwrap_err().to_string();
    assert!(error.contains("`hidden.weight`") && error.contains("NaN"), "{error}");
    assert_eq!(ddp.weights_sha256().unwrap(), before);
}

#[test]
fn averages_of_the_weights_are_a_model_of_their_own() {
    let model = CandleModel::build(&VarMap::new(), Mlp::new).unwrap();
    let averaged = optimizer::Averaged::new(plain_sgd(), 0.5, false);
    let mut ddp = Ddp::new(Group::alone(), model, &one_shard(), averaged).unwrap();
    let start = all(ddp.model().vars());
    let loss = ddp.model().error(&samples(0, 0)).unwrap();
    ddp.backward(Loss::sum(loss, 1).unwrap()).unwrap();
    ddp.step(0.1).unwrap();
    let averages = ddp.averaged_model().unwrap().unwrap();
    let now = all(ddp.model().vars());
    let of_model = averages.out.bias().unwrap().to_vec1::<f32>().unwrap();
    assert!(now != start && all(averages.vars()) != now);
    assert_eq!(of_model, values(averages.vars(), "out.bias"));
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
