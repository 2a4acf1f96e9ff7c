//! Keys of a reduction's random numbers: pure functions of their purpose.

use kolo_optim::SpanId;
use kolo_sampler::key::Key;

/// Returns the key of one block of a tensor in one step. If shards draw numbers of their own, the shard's
/// number is one more level of the key.
pub(super) fn of_block(seed: u64, step: u64, span: SpanId, first: usize) -> Key {
    Key::new(seed).with_str("reduction").with(step).with(span.0 as u64).with(first as u64)
}
