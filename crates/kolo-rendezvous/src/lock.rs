//! A lock for what a panicking thread cannot leave half-written.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex of the standard library whose value is replaced whole or not at all, so that a panic under
/// the lock does no harm.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
