//! Each kind of variable, and refusals.

mod common;

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{Embedding, Init, Linear, Module, VarBuilder, VarMap, embedding, linear, linear_no_bias};
use kolo_candle::{CandleModel, Ddp, Loss, Options};
use kolo_comm::{Group, threads};
use kolo_ddp::{Config, Sharding, optimizer};

use common::mlp::{INPUTS, Mlp, all, largest_difference, mlp, one_shard, plain_sgd, samples, values};
use common::tensor;

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

#[test]
fn divided_parameters_are_refused() {
    let errors = threads::spawn(2, |group| {
        let model = CandleModel::build(&VarMap::new(), Mlp::new).unwrap();
        let config = Config { sharding: Sharding::Parameters, ..one_shard() };
        Ddp::new(group, model, &config, common::sgd()).err().unwrap().to_string()
    });
    assert!(errors.unwrap().iter().all(|error| error.contains("take `Sharding::Gradients`")));
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
    // An operation whose backward pass candle refuses, with a backtrace behind the sentence.
    let mut ddp = mlp(Group::alone());
    let loss = ddp.model().hidden.forward(&samples(0, 0)).unwrap().reshape((1, 1, 4, ())).unwrap();
    let loss = loss.avg_pool2d_with_stride(2, 1).unwrap().sum_all().unwrap();
    let error = ddp.backward(Loss::sum(loss, 1).unwrap()).unwrap_err().to_string();
    assert!(
        error.starts_with("the backward pass failed: backward not supported") && !error.contains('\n'),
        "{error}"
    );
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
