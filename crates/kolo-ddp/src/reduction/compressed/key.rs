//! Keys of a reduction's random numbers: pure functions of what they are for.

use crate::key::Key;
use kolo_optim::SpanId;

/// The key of one block of a tensor in one step. Where shards draw numbers of their own, their number is a
/// level below.
pub(super) fn of_block(seed: u64, step: u64, span: SpanId, first: usize) -> Key {
    Key::new(seed).with_str("reduction").with(step).with(span.0 as u64).with(first as u64)
}
