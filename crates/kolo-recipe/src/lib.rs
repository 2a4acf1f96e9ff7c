//! A run before its first step: its recipe, and the folder that keeps it.
//!
//! A [`Recipe`] is all that is needed to repeat a run. The same structs are the options of `kolo train`, the
//! sections of a `config.toml` and the input of `kolo-train`, which trains by it. A [`RunFolder`] is made
//! with the recipe, and the one process that has claimed it writes its files. This crate knows no tensor
//! library and no model.
//!
//! | module | contents |
//! |---|---|
//! | `recipe` | the settings of a run, their defaults and checks |
//! | `plan` | steps and learning rates of a recipe on a data set |
//! | `run_folder` | the folder of a run: made, found, continued |
//! | `run_claim` | the exclusive right to write it |
//! | `nearest` | the known name that a misspelled one means |
//! | `shell` | paths in commands that the user may run |

mod error;
mod field_table;
mod nearest;
mod plan;
mod recipe;
mod run_claim;
mod run_folder;
mod shell;

pub use error::Error;
pub use field_table::OnResume;
pub use nearest::nearest;
pub use plan::Plan;
pub use recipe::{
    BatchNormalization, DEVICES, InputConfig, LargeBatch, LearningRateSchedule, NeedsAll, OptimizerChoice,
    OwnParts, PRECISIONS, PrecisionConfig, RateConfig, Recipe, RecipeOptions, SettingChange, Stem, StepRates,
    SyncConfig, TransformChoices, WORKERS, check_bucket_cap,
};
pub use run_claim::RunClaim;
pub use run_folder::{RunFolder, TokenizerNote};
pub use shell::shell_quoted;
