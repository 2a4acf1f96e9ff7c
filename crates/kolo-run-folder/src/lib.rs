//! The files of a run folder: their rows, each defined once for who writes it and who reads it.
//!
//! `kolo-train` writes the rows, on rank 0; [`Run::read`] reads a whole folder, of a run that goes on or is
//! over. What is missing is said in [`Run::remarks`]; what is there and cannot be understood is an error
//! that names file and line. This crate knows no tensor library and no worker, and writes no file itself.
//!
//! | module | file |
//! |---|---|
//! | `steps` | `steps.jsonl`: a row a step |
//! | `ranks` | `ranks.jsonl`: what each rank does with its time, a row a comparison |
//! | `epochs` | `metrics.csv`: a row an epoch |
//! | `buckets` | `buckets.csv`: a row a bucket |
//! | `generations` | `generations.jsonl`: a row a generation of an elastic job |
//! | `settings`, `summary` | `config.toml`, `summary.json` |
//! | `csv`, `lines` | tables of numbers; files of one JSON object a line |
//! | `run` | all of them together |

mod buckets;
mod csv;
mod epochs;
mod error;
mod generations;
mod lines;
mod ranks;
mod run;
mod settings;
mod statistics;
mod steps;
mod summary;

pub use buckets::{BUCKETS, BucketRow};
pub use csv::NumberTable;
pub use epochs::{EpochRow, METRICS};
pub use error::Error;
pub use generations::{GENERATIONS, GenerationRow, unix_seconds};
pub use ranks::{RANKS, RankTimes, RanksRow};
pub use run::Run;
pub use settings::Settings;
pub use statistics::{mean, median, percentile};
pub use steps::{NoiseRow, STEP_FIELDS, STEPS, StepRow};
pub use summary::{SUMMARY, Summary};
