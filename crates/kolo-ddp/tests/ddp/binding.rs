//! A binding without a tensor library: a straight line, differentiated by hand. The promises of [`Ddp`] hold
//! for it as for any other.

use std::cell::RefCell;
use std::sync::Arc;

use kolo_comm::{Group, threads};
use kolo_ddp::binding::{Binding, BindingError, GradientSink, Inventory, Loss, Values, Which};
use kolo_ddp::cross_shard::{CrossShardPass, SumRequest};
use kolo_ddp::optimizer::{self, Optimizer, Settings};
use kolo_ddp::{Config, Ddp, Error, Kind, ParamSpec, SpanId};

const NAMES: [&str; 3] = ["slope", "offset", "mean"];
const SHARDS: usize = 4;
const STEPS: usize = 8;

/// `slope · (x − center) + offset`, and the running mean of x. Refuses to be listed if its slope is NaN.
#[derive(Clone)]
struct Line(RefCell<[f32; 3]>);

impl Line {
    fn new() -> Self {
        Line(RefCell::new([0.5, -0.25, 0.0]))
    }

    /// Half the squared distance from y = 2x + 1, and its gradient.
    fn forward(&self, xs: &[f32], center: f32) -> LineLoss {
        let mut values = self.0.borrow_mut();
        let [slope, offset, mean] = *values;
        let mut loss = LineLoss { sum: 0.0, count: xs.len() as f64, gradient: [0.0; 2] };
        for x in xs {
            let distance = slope * (x - center) + offset - (2.0 * x + 1.0);
            loss.sum += f64::from(distance * distance) / 2.0;
            loss.gradient[0] += distance * (x - center);
            loss.gradient[1] += distance;
        }
        values[2] = mean + 0.1 * (xs.iter().sum::<f32>() / xs.len() as f32 - mean);
        loss
    }
}

struct LineLoss {
    sum: f64,
    count: f64,
    gradient: [f32; 2],
}

impl Loss for LineLoss {
    fn sum(&self) -> f64 {
        self.sum
    }

    fn count(&self) -> f64 {
        self.count
    }

    fn scaled(self, factor: f32) -> Self {
        LineLoss { gradient: self.gradient.map(|value| value * factor), ..self }
    }
}

impl Binding for Line {
    type Loss = LineLoss;

    fn inventory(&self, which: Which) -> Result<Inventory, BindingError> {
        let values = *self.0.borrow();
        if values[0].is_nan() {
            return Err("the slope is not a number".into());
        }
        let kind = |index| if index == 2 { Kind::Statistic } else { Kind::Parameter { decay: true } };
        let mut inventory = Inventory::default();
        for (index, name) in NAMES.into_iter().enumerate() {
            if which == Which::All || kind(index) == Kind::Statistic {
                inventory.specs.push(ParamSpec::new(name, vec![1], kind(index)));
                inventory.values.push(values[index]);
            }
        }
        Ok(inventory)
    }

    fn write(&mut self, which: Which, values: &Values) {
        for (index, span) in values.layout().spans().iter().enumerate() {
            if which != Which::Statistics || span.spec.kind == Kind::Statistic {
                self.0.borrow_mut()[index] = values.of(SpanId(index)).wait()[0];
            }
        }
    }

    fn backward(&self, loss: LineLoss, sink: Arc<dyn GradientSink>) -> Result<(), BindingError> {
        for (span, gradient) in loss.gradient.into_iter().enumerate().rev() {
            // In two parts: they are added.
            sink.ready(SpanId(span), &[gradient - 1.0]);
            sink.ready(SpanId(span), &[1.0]);
        }
        Ok(())
    }
}

/// A shard's inputs; some shards have another number of them, and one has none.
fn inputs(step: usize, shard: usize) -> Vec<f32> {
    let count = if (step, shard) == (2, 1) { 0 } else { 3 + shard };
    (0..count).map(|i| ((step * 31 + shard * 7 + i) as f32 * 0.7).sin()).collect()
}

fn sgd() -> impl Optimizer {
    optimizer::named("sgd", &Settings::default()).unwrap()
}

fn ddp(group: Group) -> Ddp<Line> {
    let config = Config { shards: Some(SHARDS), verify_every: 3, ..Config::default() };
    Ddp::new(group, Line::new(), &config, sgd()).unwrap()
}

/// The mean of x over all shards.
fn global_mean(xs: &[f32], pass: &CrossShardPass) -> f32 {
    let own = vec![xs.iter().map(|x| f64::from(*x)).sum(), xs.len() as f64];
    let request = SumRequest { what: "the mean", number: pass.next_layer(), len: own.len() };
    let sums = pass.handle().sum(request, own);
    (sums[0] / sums[1]) as f32
}

/// Returns the loss of every step, and the bits of all values at the end.
fn train(group: Group, together: bool) -> (Vec<f64>, Vec<u32>) {
    let mut ddp = ddp(group);
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let shards = ddp.shards().map(|shard| inputs(step, shard));
        if together {
            let shards = shards.map(|xs| (!xs.is_empty()).then_some(xs)).collect();
            ddp.cross_shard_passes(shards, |line, xs, pass| line.forward(&xs, global_mean(&xs, pass)))
                .unwrap();
        } else {
            for xs in shards {
                match xs.is_empty() {
                    true => ddp.skip_shard().unwrap(),
                    false => {
                        let loss = ddp.model().forward(&xs, 0.0);
                        ddp.backward(loss).unwrap();
                    }
                }
            }
        }
        losses.push(ddp.step(0.3).unwrap().loss);
    }
    let bits = ddp.with_replica(|replica| replica.values().unwrap().iter().map(|x| x.to_bits()).collect());
    // The model's values are the replica's.
    let own = *ddp.into_model().unwrap().0.borrow();
    assert_eq!(own.map(f32::to_bits).to_vec(), bits);
    (losses, bits)
}

#[test]
fn any_binding_ends_in_the_same_bits_on_any_number_of_ranks() {
    for together in [false, true] {
        let alone = train(Group::alone(), together);
        assert!(alone.0[STEPS - 1] < alone.0[0] / 4.0, "{:?}", alone.0);
        for world in [2, 3, 5] {
            for rank in threads::spawn(world, |group| train(group, together)).unwrap() {
                assert_eq!(rank, alone, "{world} ranks, together: {together}");
            }
        }
    }
}

#[test]
fn refusals_of_a_binding_are_reported() {
    let line = Line(RefCell::new([f32::NAN, 0.0, 0.0]));
    let error = Ddp::<Line>::new(Group::alone(), line, &Config::default(), sgd()).err().unwrap();
    assert!(
        matches!(error, Error::Binding(_)) && error.to_string() == "the slope is not a number",
        "{error}"
    );
}

#[test]
fn cross_shard_passes_need_an_input_for_each_shard_and_samples_in_each() {
    let forward = |line: &Line, xs: Vec<f32>, _: &CrossShardPass| line.forward(&xs, 0.0);
    let error = ddp(Group::alone()).cross_shard_passes(vec![Some(vec![1.0])], forward).unwrap_err();
    assert!(matches!(error, Error::InputsMismatch { given: 1, due: SHARDS }), "{error}");
    let inputs = (0..SHARDS).map(|shard| Some(vec![1.0; if shard == 2 { 0 } else { 1 }])).collect();
    let error = ddp(Group::alone()).cross_shard_passes(inputs, forward).unwrap_err();
    assert!(matches!(error, Error::EmptyShard { shard: 2 }), "{error}");
}
