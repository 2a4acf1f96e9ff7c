//! Settings for large batches besides the learning rate: see docs/large-batches.md.

use kolo_ddp::BatchGrowth;
use kolo_ddp::table::parse_number;
use kolo_run_folder::units::counted;
use serde::{Deserialize, Serialize};

use super::check::below_1;
use super::defaults::defaults;
use crate::error::Error;

const GROW_BATCH: &str = "--grow-batch";

/// Settings with which larger batches train as well as small ones.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LargeBatch {
    /// Start with residual blocks that pass on their input: the last batch normalization of each block
    /// starts with scale 0
    #[arg(long)]
    pub zero_gamma: bool,
    /// Share of each label that the training loss spreads over all classes. Evaluation uses the plain
    /// labels
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = parse_number)]
    pub label_smoothing: f64,
    /// Enlarge the batch after some epochs: 30:2,60:5 trains with 2 and then 10 times --batch-size
    #[arg(long, value_name = "EPOCHS:FACTOR", value_delimiter = ',')]
    pub grow_batch: Vec<BatchGrowth>,
}

impl Default for LargeBatch {
    fn default() -> Self {
        defaults()
    }
}

impl LargeBatch {
    pub(super) fn check(&self, epochs: usize) -> Result<(), Error> {
        below_1("--label-smoothing", self.label_smoothing)?;
        let mut before = 0;
        for growth in &self.grow_batch {
            let refused = |problem: &str| Err(Error::setting(GROW_BATCH, growth, problem));
            if growth.factor < 2 {
                return refused("the factor must be at least 2");
            }
            if growth.epochs <= before {
                return refused("it must be after at least 1 epoch, and after the growth before it");
            }
            if growth.epochs >= epochs {
                return refused(&format!(
                    "the run has {}, so that the batch would never grow",
                    counted(epochs, "epoch")
                ));
            }
            before = growth.epochs;
        }
        Ok(())
    }

    /// Describes the growth of the batch; empty without growth.
    pub fn describe_growth(&self) -> String {
        let line = |growth: &BatchGrowth| format!(", × {} after epoch {}", growth.factor, growth.epochs);
        self.grow_batch.iter().map(line).collect()
    }
}
