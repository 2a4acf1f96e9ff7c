//! Steps that an island counts from another one on than the job.

use crate::error::Error;

/// An error of an island that counts steps from `first` on, in the job's numbers.
pub(super) fn counted_from(first: u64, error: Error) -> Error {
    match error {
        Error::ValuesNotFinite { step, tensor } => Error::ValuesNotFinite { step: first + step, tensor },
        other => other,
    }
}
