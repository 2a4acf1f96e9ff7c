//! Step numbers of an island that begins to count at a later step than the job.

use kolo_reduction::Error;

/// Returns an error of an island with the job's step number; the island counts steps from `first` on.
pub(super) fn counted_from(first: u64, error: Error) -> Error {
    match error {
        Error::ValuesNotFinite { step, tensor } => Error::ValuesNotFinite { step: first + step, tensor },
        other => other,
    }
}
