//! candle through the whole trainer: run folder, metrics, resume, the values of candle's optimizer, errors.

mod common;
#[path = "../../crates/kolo-train/tests/flat_arrays/whole_runs.rs"]
mod whole_runs;

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use candle_nn::{Module, Optimizer, SGD, VarBuilder, VarMap, loss};
use kolo_candle::{
    CandleModel, Loss, Trainer, accuracy, classification, cross_entropy, dropout, dropout_key,
};
use kolo_comm::{Group, threads};
use kolo_data::{AugmentKey, DataError, DataSet, Mixing, Part};
use kolo_train::{BatchNormalization, Error, Job, Membership, Metric, Pass, Recipe, Trained};

use common::mlp::{INPUTS, Mlp, all, largest_difference};
use common::noise;
use whole_runs::recipe;

const CLASSES: usize = 3;

/// Rows of inputs, and their classes.
type Rows = (Vec<f32>, Vec<u32>);

/// Numbers of samples that no number of shards divides.
struct Points;

impl DataSet for Points {
    type Batch = Rows;

    fn samples(&self, part: Part) -> usize {
        match part {
            Part::Train => 30,
            Part::Validation => 0,
            Part::Test => 7,
        }
    }

    fn batch(&self, part: Part, indices: &[usize], _: Option<AugmentKey>) -> Result<Rows, DataError> {
        let row = |sample: usize| (0..INPUTS).map(move |i| noise(part as usize, sample * INPUTS + i));
        let inputs: Vec<f32> = indices.iter().flat_map(|sample| row(*sample)).collect();
        let class = |row: &[f32]| if row[0] > 0.3 { 0 } else { 1 + u32::from(row[1] > 0.0) };
        let labels = inputs.chunks(INPUTS).map(class).collect();
        Ok((inputs, labels))
    }
}

fn tensors((inputs, labels): &Rows) -> candle_core::Result<(Tensor, Tensor)> {
    let inputs = Tensor::from_slice(inputs, (labels.len(), INPUTS), &Device::Cpu)?;
    Ok((inputs, Tensor::from_slice(labels, labels.len(), &Device::Cpu)?))
}

fn scores(model: &Mlp, inputs: &Tensor) -> candle_core::Result<Tensor> {
    model.out.forward(&model.hidden.forward(inputs)?.tanh()?)
}

fn loss(model: &Mlp, rows: &Rows, pass: &Pass<'_>, dropped: f64) -> candle_core::Result<Loss> {
    let (inputs, labels) = tensors(rows)?;
    let hidden = model.hidden.forward(&inputs)?.tanh()?;
    let hidden = dropout(&hidden, dropped, dropout_key(pass).with(1))?;
    cross_entropy(&model.out.forward(&hidden)?, &labels, pass)
}

fn train(job: Job, group: Group, dropped: f64) -> Result<Trained<CandleModel<Mlp>>, Error> {
    let model = CandleModel::build(&VarMap::new(), Mlp::new).unwrap();
    let trainer = Trainer::of(job, Arc::new(Points), move |model: &CandleModel<Mlp>, rows, pass| {
        loss(model, &rows, pass, dropped).into()
    });
    let trainer = trainer.tally([Metric::ACCURACY], |model, rows, _| {
        let (inputs, labels) = tensors(&rows).unwrap();
        classification(&scores(model, &inputs).unwrap(), &labels).unwrap()
    });
    trainer.train_as(Membership::Fixed(group), model)
}

#[test]
fn any_number_of_workers_ends_in_the_same_weights_and_scores() {
    let whole = whole_runs::on_any_number_of_workers(|job, group| train(job, group, 0.25).unwrap().summary);
    assert_eq!((whole.steps, whole.parameters), (20, 16 * (INPUTS + 1) + 3 * 17));
    assert!(whole.scores.get("accuracy").unwrap() > 0.5, "{whole:?}");
}

#[test]
fn a_resumed_run_ends_in_the_weights_of_a_whole_one() {
    whole_runs::resumed(|job, group| train(job, group, 0.25).unwrap().summary);
}

/// candle's SGD on all samples at once ends in the trainer's weights, to rounding.
#[test]
fn the_trainer_takes_the_steps_of_candles_sgd() {
    const STEPS: usize = 20;
    const RATE: f64 = 0.1;
    let trained = threads::spawn(3, |group| {
        let model = train(Job::new(whole_runs::descent(STEPS, RATE)), group, 0.0).unwrap().model.unwrap();
        all(model.vars())
    });

    let vars = VarMap::new();
    drop(CandleModel::build(&vars, Mlp::new).unwrap());
    let before = all(&vars);
    let model = Mlp::new(VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu)).unwrap();
    let mut sgd = SGD::new(vars.all_vars(), RATE).unwrap();
    let rows = Points.batch(Part::Train, &(0..30).collect::<Vec<_>>(), None).unwrap();
    let (inputs, labels) = tensors(&rows).unwrap();
    for _ in 0..STEPS {
        let loss = loss::cross_entropy(&scores(&model, &inputs).unwrap(), &labels).unwrap();
        sgd.backward_step(&loss).unwrap();
    }
    assert!(largest_difference(&before, &all(&vars)) > 0.05, "it has trained");
    for trained in trained.unwrap() {
        assert!(largest_difference(&trained, &all(&vars)) < 1e-5);
    }
}

/// Label smoothing and mixed labels by their definition, in plain numbers.
#[test]
fn cross_entropy_smooths_and_mixes_labels() {
    let values = [[0.5f32, -1.0, 2.0], [0.0, 0.25, -0.5]];
    let scores = Tensor::new(&values, &Device::Cpu).unwrap();
    let labels = Tensor::new(&[2u32, 0], &Device::Cpu).unwrap();
    let mixing = Mixing { partners: vec![1, 0], own_share: 0.7, cut: None };
    for (smoothing, mixing) in [(0.0, None), (0.1, None), (0.0, Some(&mixing)), (0.1, Some(&mixing))] {
        let mut recipe = recipe();
        recipe.large_batch.label_smoothing = smoothing;
        let pass = Pass { recipe: &recipe, epoch: 0, step: 0, shard: 0, mixing, cross_shard: None };
        let loss = cross_entropy(&scores, &labels, &pass).unwrap();
        let own = mixing.map_or(1.0, |mixing| mixing.own_share);
        let expected: f64 = (0..2)
            .map(|sample| {
                let row = values[sample].map(f64::from);
                let total: f64 = row.iter().map(|score| score.exp()).sum();
                let share = |class: usize, label: usize| {
                    smoothing / 3.0 + if class == label { 1.0 - smoothing } else { 0.0 }
                };
                let labels = [2, 0];
                let mixed = |class| {
                    own * share(class, labels[sample]) + (1.0 - own) * share(class, labels[1 - sample])
                };
                (0..CLASSES).map(|class| -mixed(class) * (row[class].exp() / total).ln()).sum::<f64>()
            })
            .sum();
        let sum = kolo_ddp::binding::Loss::sum(&loss);
        assert!((sum - expected).abs() < 1e-6, "{smoothing} {mixing:?}: {sum} {expected}");
    }
    let share = accuracy(&scores, &labels).unwrap();
    assert_eq!((share.sum, share.count), (1.0, 2.0));
    let bad = Tensor::new(&[[f32::NAN, 1.0, 0.0], [0.0, f32::INFINITY, 0.0]], &Device::Cpu).unwrap();
    assert_eq!(accuracy(&bad, &labels).unwrap().sum, 0.0, "scores that are not finite are wrong");
}

#[test]
fn what_candle_lacks_is_refused_in_one_sentence() {
    type Change = fn(&mut Recipe);
    let refused: [(Change, &str); 4] = [
        (
            |recipe| recipe.precision.compute = "bf16".into(),
            "candle models compute in f32, not in bf16 (--precision)",
        ),
        (
            |recipe| recipe.batch_norm = BatchNormalization::Sync,
            "--batch-norm sync: candle's normalization cannot wait",
        ),
        (|recipe| recipe.freeze = vec!["out.*".into()], "--freeze out.*: freeze a candle model by"),
        (|recipe| recipe.init = Some("there".into()), "--init there: load a candle model's weights by"),
    ];
    for (change, words) in refused {
        let mut recipe = recipe();
        change(&mut recipe);
        let error = train(Job::new(recipe), Group::alone(), 0.0).unwrap_err().to_string();
        assert!(error.contains(words) && error.lines().count() == 1, "{error}");
    }
    // An error of candle in the loss, here a probability out of range.
    let error = train(Job::new(recipe()), Group::alone(), 1.5).unwrap_err().to_string();
    assert!(error.contains("the loss cannot be computed: dropout: the probability is 1.5"), "{error}");
}
