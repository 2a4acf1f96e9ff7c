//! The run folder: a run's results, in files of common formats.
//!
//! `config.toml` (all that is needed to repeat the run), `metrics.csv` (a row for each epoch), `steps.jsonl`
//! (a line for each step), `buckets.csv`, `checkpoints/`, `summary.json`. Only rank 0 writes.
//!
//! A folder is `made` or found, its parts are paths of a [`folder`], `written` under a claim, and `discarded`
//! if the run failed before it had anything to keep.

mod discarded;
mod folder;
mod made;
mod tokenizer;
mod written;

pub use folder::RunFolder;
pub use tokenizer::TokenizerNote;
