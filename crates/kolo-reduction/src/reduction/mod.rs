//! Reduction of the gradients of all shards to the one that the optimizer sees: their sum, or a compressed
//! sum.
//!
//! A new one is a file here, or in `compressed/`, and a line in [`REDUCTIONS`]. One of the user's own is a
//! type that implements [`Reducer`], as `Config::reduction`.

mod compressed;
mod interface;
mod samples;
mod sum;

use std::sync::Arc;

pub use self::interface::{Context, FinishedShard, ReadyStep, Reducer, Reduction};
pub use self::samples::SampleCount;
use kolo_optim::Settings;
use kolo_optim::table::{self, Choice, ChoiceError, Entry};

/// All reductions; the first one is the default.
pub static REDUCTIONS: &[Entry<dyn Reducer>] = &[
    sum::ENTRY,
    compressed::BF16,
    compressed::F16,
    compressed::QSGD,
    compressed::EF_SIGN,
    compressed::TOP_K,
    compressed::RANDOM_K,
    compressed::DGC,
    compressed::POWER_SGD,
    compressed::ONEBIT_ADAM,
];

/// Returns the entry of that name in [`REDUCTIONS`].
///
/// # Errors
///
/// There is none of that name; the error lists the known ones.
pub fn find(name: &str) -> Result<&'static Entry<dyn Reducer>, ChoiceError> {
    table::find("reduction", REDUCTIONS, name)
}

/// Returns the reduction of that name, with these settings; the others have their defaults.
///
/// # Errors
///
/// There is none of that name, it has no such setting, or a value is not allowed.
pub fn named(name: &str, settings: &Settings) -> Result<Arc<dyn Reducer>, ChoiceError> {
    Ok(find(name)?.build(settings)?.into())
}

/// Parses a reduction as written on the command line: `NAME`, or `NAME:key=value,…` as in
/// `qsgd:bits=4,block=512`.
///
/// # Errors
///
/// As [`named`], or the text has another form.
pub fn parse(text: &str) -> Result<Arc<dyn Reducer>, ChoiceError> {
    let Choice { name, settings } = text.parse()?;
    named(&name, &settings)
}

/// Returns the default: the exact sum.
pub fn exact() -> Arc<dyn Reducer> {
    Arc::new(sum::Exact)
}
