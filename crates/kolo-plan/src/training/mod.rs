//! A whole training before it is begun: its arithmetic, how long it takes on so many workers, what that
//! costs, and what keeps it from being shorter.

mod bill;
mod compute;
mod duration;
mod efficiency;
mod limit;
mod scaling_law;

pub use bill::{Bill, Prices};
pub use compute::{Transformer, training_flops};
pub use duration::{Duration, durations};
pub use efficiency::{Efficiency, EfficiencyError};
pub use limit::{DataSource, Limit, Limits};
pub use scaling_law::{Optimum, SCALING_LAWS, ScalingLaw};
