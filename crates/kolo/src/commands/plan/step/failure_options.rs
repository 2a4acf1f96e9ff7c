//! Options for the rate of worker failures and their costs.

use clap::Args;
use kolo_plan::Checkpoints;
use kolo_plan::step::FailureCosts;

use crate::commands::plan::numbers::positive;

/// Options for the rate of worker failures and their costs.
#[derive(Args)]
pub(super) struct FailureOptions {
    /// Mean time between the failures of one worker, in hours
    #[arg(long, value_name = "HOURS", value_parser = positive)]
    worker_mtbf_hours: Option<f64>,
    /// In an elastic job: seconds from a failure until the others continue training
    #[arg(long, value_name = "SECONDS", value_parser = positive, default_value = "5")]
    #[arg(requires = "worker_mtbf_hours")]
    recovery_s: f64,
    /// In a job that restarts: seconds for which a checkpoint stops training
    #[arg(long, value_name = "SECONDS", value_parser = positive, default_value = "30")]
    #[arg(requires = "worker_mtbf_hours")]
    checkpoint_s: f64,
    /// In a job that restarts: seconds from a failure until it trains again
    #[arg(long, value_name = "SECONDS", value_parser = positive, default_value = "300")]
    #[arg(requires = "worker_mtbf_hours")]
    restart_s: f64,
}

impl FailureOptions {
    pub(super) fn costs(&self) -> Option<FailureCosts> {
        let worker_mtbf = self.worker_mtbf_hours? * 3600.0;
        let checkpoints = Checkpoints { write: self.checkpoint_s, restart: self.restart_s };
        Some(FailureCosts { worker_mtbf, recovery: self.recovery_s, checkpoints })
    }
}
