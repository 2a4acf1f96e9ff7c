//! Initial values by seed and name.
//!
//! Candle's random numbers on the CPU cannot be seeded, so two starts of a program would train two models.

use candle_core::Shape;
use candle_nn::Init;
use candle_nn::init::NormalOrUniform;
use kolo_ddp::key::Key;

/// Returns the values that `init` asks for, in row-major order: of the same distribution as candle's.
pub(crate) fn values(init: Init, shape: &Shape, seed: u64, name: &str) -> Vec<f32> {
    let key = Key::new(seed).with_str("initial values").with_str(name);
    let draw =
        |of: &dyn Fn(Key) -> f64| (0..shape.elem_count()).map(|i| of(key.with(i as u64)) as f32).collect();
    let uniform = |low: f64, high: f64| draw(&|key| low + (high - low) * key.unit());
    let normal = |mean: f64, deviation: f64| draw(&|key| mean + deviation * key.normal());
    match init {
        Init::Const(value) => vec![value as f32; shape.elem_count()],
        Init::Uniform { lo, up } => uniform(lo, up),
        Init::Randn { mean, stdev } => normal(mean, stdev),
        Init::Kaiming { dist, fan, non_linearity } => {
            let deviation = non_linearity.gain() / (fan.for_shape(shape) as f64).sqrt();
            match dist {
                NormalOrUniform::Uniform => uniform(-(3f64.sqrt()) * deviation, 3f64.sqrt() * deviation),
                NormalOrUniform::Normal => normal(0.0, deviation),
            }
        }
    }
}
