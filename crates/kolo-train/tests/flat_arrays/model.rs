//! A tensor library of flat arrays: a perceptron in plain loops, differentiated by hand.

use std::sync::Arc;

use kolo_data::{AugmentKey, DataError, DataSet, Part};
use kolo_ddp::binding::{Binding, BindingError, GradientSink, Inventory, Loss, Values, Which};
use kolo_ddp::{Kind, ParamSpec, SpanId};
use kolo_train::{Error, Framework, Pass, Recipe};

pub const INPUTS: usize = 2;
pub const HIDDEN: usize = 6;

/// Weights of a perceptron with rectified hidden units: `[HIDDEN, INPUTS + 1]` and `[HIDDEN + 1]`. The last
/// column is the bias.
#[derive(Clone, Debug)]
pub struct Perceptron(pub [Vec<f32>; 2]);

impl Perceptron {
    pub fn new() -> Self {
        let value = |i: usize| ((i * 7919) % 101) as f32 / 101.0 - 0.4;
        let hidden = HIDDEN * (INPUTS + 1);
        Perceptron([(0..hidden).map(value).collect(), (hidden..hidden + HIDDEN + 1).map(value).collect()])
    }

    /// Half the squared distances of all samples from their targets, and their gradient.
    pub fn forward(&self, (inputs, targets): &Rows) -> SquaredError {
        let Perceptron([hidden, output]) = self;
        let (mut sum, mut gradient) = (0.0, [vec![0.0; hidden.len()], vec![0.0; output.len()]]);
        for (x, target) in inputs.chunks(INPUTS).zip(targets) {
            let unit = |w: &[f32]| (w[0] * x[0] + w[1] * x[1] + w[INPUTS]).max(0.0);
            let units: Vec<f32> = hidden.chunks(INPUTS + 1).map(unit).chain([1.0]).collect();
            let error = output.iter().zip(&units).map(|(w, unit)| w * unit).sum::<f32>() - target;
            sum += f64::from(error * error) / 2.0;
            for (j, unit) in units.iter().enumerate() {
                gradient[1][j] += error * unit;
                if j < HIDDEN && *unit > 0.0 {
                    for (i, x) in x.iter().chain(&[1.0]).enumerate() {
                        gradient[0][j * (INPUTS + 1) + i] += error * output[j] * x;
                    }
                }
            }
        }
        SquaredError { sum, count: targets.len() as f64, gradient }
    }
}

pub struct SquaredError {
    sum: f64,
    count: f64,
    gradient: [Vec<f32>; 2],
}

impl Loss for SquaredError {
    fn sum(&self) -> f64 {
        self.sum
    }

    fn count(&self) -> f64 {
        self.count
    }

    fn scaled(self, factor: f32) -> Self {
        let times = |values: Vec<f32>| values.into_iter().map(|value| value * factor).collect();
        SquaredError { gradient: self.gradient.map(times), ..self }
    }
}

impl Binding for Perceptron {
    type Loss = SquaredError;

    fn inventory(&self, which: Which) -> Result<Inventory, BindingError> {
        if which == Which::Statistics {
            return Ok(Inventory::default());
        }
        let shapes = [("hidden", vec![HIDDEN, INPUTS + 1]), ("output", vec![HIDDEN + 1])];
        let spec = |(name, shape)| ParamSpec::new(name, shape, Kind::Parameter { decay: false });
        let specs = shapes.map(spec).into();
        Ok(Inventory { specs, values: self.0.concat(), warnings: Vec::new() })
    }

    fn write(&mut self, which: Which, values: &Values) {
        if which != Which::Statistics {
            self.0 = [0, 1].map(|span| values.of(SpanId(span)).wait());
        }
    }

    fn backward(&self, loss: SquaredError, sink: Arc<dyn GradientSink>) -> Result<(), BindingError> {
        for (span, gradient) in loss.gradient.iter().enumerate().rev() {
            sink.ready(SpanId(span), gradient);
        }
        Ok(())
    }
}

/// Flat arrays on the CPU, the only device.
#[derive(Default)]
pub struct FlatArrays(Cpu);

#[derive(Default)]
pub struct Cpu;

impl Framework<Perceptron> for FlatArrays {
    type Model = Perceptron;
    type Loss = SquaredError;
    type Device = Cpu;
    type Context<'a> = Pass<'a>;

    fn on(device: Cpu) -> Self {
        FlatArrays(device)
    }

    fn prepare(&mut self, model: Perceptron, recipe: &Recipe, _resumed: bool) -> Result<Perceptron, Error> {
        match recipe.precision.compute.as_str() {
            "f32" => Ok(model),
            other => Err(Error::Precision(format!("flat arrays do not compute in {other}; take f32").into())),
        }
    }

    fn training<R>(&self, pass: &Pass<'_>, forward: impl FnOnce(&Pass<'_>) -> R) -> R {
        forward(pass)
    }

    fn evaluation<R>(&self, forward: impl FnOnce(&Cpu) -> R) -> R {
        forward(&self.0)
    }

    fn module(model: &Perceptron) -> &Perceptron {
        model
    }

    fn evaluated(model: &Perceptron) -> Perceptron {
        model.clone()
    }

    fn into_module(model: Perceptron) -> Perceptron {
        model
    }
}

/// Inputs and targets.
pub type Rows = (Vec<f32>, Vec<f32>);

/// Points of the plane and a function of them.
pub struct Plane;

impl DataSet for Plane {
    type Batch = Rows;

    fn samples(&self, part: Part) -> usize {
        match part {
            Part::Train => 30,
            Part::Validation => 0,
            Part::Test => 7,
        }
    }

    fn batch(&self, part: Part, indices: &[usize], _: Option<AugmentKey>) -> Result<Rows, DataError> {
        let noise = |at: usize| ((at * 104_729 + part as usize) % 89) as f32 / 89.0;
        let inputs: Vec<f32> = indices.iter().flat_map(|&i| [noise(2 * i), noise(2 * i + 1)]).collect();
        let targets = inputs.chunks(INPUTS).map(|x| 2.0 * (x[0] - x[1]).abs() - 0.5).collect();
        Ok((inputs, targets))
    }
}
