//! How the gradients of all shards become what the optimizer sees: their sum, or a sum of something that
//! travels more cheaply.
//!
//! A new one is a file here and a line in [`REDUCTIONS`]; one of the user's own is a `static` [`Entry`]
//! anywhere, as [`Config::reduction`](crate::Config::reduction).

mod ef_sign;
mod interface;
mod sum;

pub use self::interface::{Context, Entry, Reduction};
use kolo_optim::table::ChoiceError;

/// Every reduction there is; the first one is the default.
pub static REDUCTIONS: &[Entry] = &[sum::ENTRY, ef_sign::ENTRY];

/// The reduction of that name.
///
/// # Errors
///
/// There is none of that name; lists the known ones.
pub fn find(name: &str) -> Result<&'static Entry, ChoiceError> {
    REDUCTIONS.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known = REDUCTIONS.iter().map(|entry| entry.name).collect();
        ChoiceError::Unknown { kind: "reduction", name: name.into(), known }
    })
}
