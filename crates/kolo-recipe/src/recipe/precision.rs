//! The type in which a run computes, and its loss scaling.

use kolo_ddp::LossScaling;
use kolo_ddp::table::{Value, parse_number};
use serde::{Deserialize, Serialize};

use super::check::steps;
use super::defaults::defaults;
use crate::error::Error;

/// The defaults of [`LossScaling`].
const SCALING: LossScaling = LossScaling::DEFAULT;

/// Names of the types in which a run may compute.
pub const PRECISIONS: [&str; 3] = ["f32", "bf16", "f16"];

/// The type of convolutions and matrix products, and the loss scaling that `f16` needs. Parameters,
/// optimizer, normalizations, softmax and loss are `f32`.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrecisionConfig {
    /// Type of convolutions and matrix products: f32, bf16 or f16. Everything else uses f32
    #[arg(long = "precision", value_name = "TYPE", default_value = PRECISIONS[0])]
    pub compute: String,
    /// With --precision f16: initial loss scale
    #[arg(long = "loss-scale", value_name = "SCALE", default_value_t = SCALING.initial, value_parser = parse_number)]
    pub scale: f64,
    /// Factor of the loss scale after --loss-scale-interval steps without an overflow
    #[arg(long = "loss-scale-growth", value_name = "FACTOR", default_value_t = SCALING.growth, value_parser = parse_number)]
    pub growth: f64,
    /// Factor of the loss scale after an overflow. Kolo skips a step that overflows
    #[arg(long = "loss-scale-backoff", value_name = "FACTOR", default_value_t = SCALING.backoff, value_parser = parse_number)]
    pub backoff: f64,
    /// Steps without an overflow before the loss scale grows
    #[arg(long = "loss-scale-interval", value_name = "STEPS", default_value_t = SCALING.growth_interval)]
    pub interval: u64,
}

impl Default for PrecisionConfig {
    fn default() -> Self {
        defaults()
    }
}

impl PrecisionConfig {
    /// Returns the loss scaling; only `f16` needs it.
    ///
    /// # Errors
    ///
    /// There is no type of that name; lists the known ones.
    pub fn loss_scaling(&self) -> Result<Option<LossScaling>, Error> {
        if !PRECISIONS.contains(&&*self.compute) {
            return Err(Error::unknown("--precision", &self.compute, PRECISIONS));
        }
        Ok((self.compute == "f16").then_some(self.scaling()))
    }

    fn scaling(&self) -> LossScaling {
        let Self { scale: initial, growth, backoff, interval: growth_interval, .. } = *self;
        LossScaling { initial, growth, backoff, growth_interval }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        steps("--loss-scale-interval", self.interval)?;
        self.loss_scaling()?;
        match self.scaling().problem() {
            None => Ok(()),
            Some((setting, value, allowed)) => {
                let option = match setting {
                    "initial value" => "--loss-scale",
                    "growth" => "--loss-scale-growth",
                    _ => "--loss-scale-backoff",
                };
                Err(Error::setting(option, Value::Number(value), format!("it must be {allowed}")))
            }
        }
    }
}
