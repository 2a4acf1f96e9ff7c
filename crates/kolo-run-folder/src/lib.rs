//! The files of a run folder: their rows, each defined once for writers and readers.
//!
//! `kolo-metrics` writes the rows, on rank 0. [`Run::read`] reads a whole folder, of a running or a completed
//! run. [`Run::remarks`] lists missing files; a file that cannot be understood is an error that names file
//! and line. This crate knows no tensor library and no worker, and writes no file itself.
//!
//! | module | file |
//! |---|---|
//! | `steps` | `steps.jsonl`: one row per step |
//! | `ranks` | `ranks.jsonl`: the time use of each rank, one row per comparison |
//! | `epochs` | `metrics.csv`: one row per epoch |
//! | `buckets` | `buckets.csv`: one row per bucket |
//! | `changes` | `changes.jsonl`: one row per setting that changed on the way |
//! | `generations` | `generations.jsonl`: one row per generation of an elastic job |
//! | `settings`, `summary` | `config.toml`, `summary.json` |
//! | `classification` | scores of each class, in `summary.json` |
//! | `csv`, `lines` | tables of numbers; files with one JSON object per line |
//! | `run` | all of them together |
//! | [`units`] | numbers as text with units |
//! | `terminal` | names from outside as text for a terminal |

mod buckets;
mod changes;
mod classification;
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
mod terminal;
pub mod units;

pub use buckets::{BUCKETS, BucketRow};
pub use changes::{CHANGES, ChangeRow};
pub use classification::{ClassScores, Classification, WrongSample};
pub use csv::NumberTable;
pub use epochs::{EpochRow, METRICS};
pub use error::Error;
pub use generations::{GENERATIONS, GenerationRow, unix_seconds};
pub use lines::JsonRow;
pub use ranks::{RANKS, RankTimes, RanksRow};
pub use run::{RANGE_PICTURE, RANGE_TABLE, Run};
pub use settings::Settings;
pub use statistics::{mean, median, percentile};
pub use steps::{NoiseRow, STEP_FIELDS, STEPS, StepRow};
pub use summary::{SUMMARY, Summary};
pub use terminal::{in_line, in_lines};
