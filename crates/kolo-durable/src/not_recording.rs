//! The stand-in for `recording` in ordinary builds: it records nothing and injects no failure.

use std::io;

use crate::operation::Operation;

#[inline]
pub(crate) fn observed<T>(
    _: impl FnOnce() -> Operation,
    act: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    act()
}
