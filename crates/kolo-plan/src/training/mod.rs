//! Predictions for a whole training: its arithmetic, its duration, its price, and what limits it.

mod bill;
mod compute;
mod duration;
mod efficiency;
mod limit;
mod scaling_law;

pub use bill::{Bill, Prices};
pub use compute::training_flops;
pub use duration::{Duration, durations};
pub use efficiency::{Efficiency, EfficiencyError};
pub use limit::{DataSource, Limit, Limits};
pub use scaling_law::{Optimum, SCALING_LAWS, ScalingLaw};
