//! Parts of a step: fields that belong together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kolo_comm::Group;
use kolo_optim::SpanId;
use kolo_reduction::BucketCaps;
use kolo_reduction::reduction::FinishedShard;
use kolo_sampler::Assignment;

use super::finiteness::{Limits, Watch};
use super::shard_squares::ShardSquares;
use super::unscaling::Unscaling;
use super::wire_time::WireTime;
use crate::division::Division;

/// Ranks of a step, and their shards.
pub(super) struct Ranks {
    pub(super) group: Arc<Group>,
    /// True for summation servers.
    pub(super) servers: Arc<[bool]>,
    pub(super) assignment: Assignment,
    /// Division of the work among owners; `None` if each rank steps all of flat memory.
    pub(super) division: Option<Division>,
}

/// Division of the model into buckets, the same on all ranks.
pub(super) struct Cuts {
    pub(super) caps: BucketCaps,
    /// Bytes of the longest slice of a tensor.
    pub(super) slice: usize,
    /// True if no tensor is cut.
    pub(super) whole: bool,
    /// The order in which spans become ready, as far as it is known.
    pub(super) order: Vec<SpanId>,
}

/// Settings that apply from one step to the next.
pub(super) struct Options {
    pub(super) synchronize: bool,
    /// True if reduced gradients are read once
    /// ([`Reduction::read_once`](kolo_reduction::reduction::Reduction)) on all ranks; false in the first
    /// steps, before the ranks have agreed on it.
    pub(super) reads_once: bool,
    /// True if all ranks read all of the current step's reduced gradient, besides its owners.
    pub(super) all_read: bool,
    /// True if a step may be without any sample: then nothing changes.
    pub(super) may_be_empty: bool,
    /// True if a pass may wait for sums, to bound the buckets in flight.
    pub(super) waits_in_passes: bool,
}

impl Default for Options {
    fn default() -> Self {
        let (reads_once, all_read, may_be_empty) = Default::default();
        Options { synchronize: true, reads_once, all_read, may_be_empty, waits_in_passes: true }
    }
}

/// Buckets in flight, where a rank keeps only its own parts of their sums; the oldest first.
#[derive(Default)]
pub(super) struct InFlight {
    /// Those whose sums have been started.
    pub(super) sums: VecDeque<usize>,
    /// Those whose new values travel.
    pub(super) gathers: VecDeque<usize>,
}

/// The running backward pass, or the last one.
pub(super) struct Pass {
    /// Passes begun so far.
    pub(super) number: u64,
    pub(super) shard: FinishedShard,
    pub(super) began: Instant,
    /// Time of waiting ([`Times::exposed`]) when it began.
    pub(super) exposed: Duration,
}

impl Default for Pass {
    fn default() -> Self {
        let shard = FinishedShard { number: 0, step: 0, count: 0.0 };
        Pass { number: 0, shard, began: Instant::now(), exposed: Duration::ZERO }
    }
}

/// Treatment of contributions as they arrive.
pub(super) struct Incoming {
    pub(super) unscaling: Unscaling,
    /// Observed magnitudes, and their limits.
    pub(super) watch: Watch,
    pub(super) limits: Limits,
    /// For the noise scale; `None` where it is not measured.
    pub(super) squares: Option<ShardSquares>,
}

/// Times of this rank's thread.
pub(super) struct Times {
    /// Time of waiting for communication, not yet reported.
    pub(super) exposed: Duration,
    /// Time in which buckets were being reduced, not yet reported.
    pub(super) wire: WireTime,
    pub(super) spent: Spent,
    /// End of the last step.
    pub(super) ended: Instant,
    /// Time since then of waiting for buckets and of updating values.
    pub(super) away: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let (exposed, away) = (Duration::ZERO, Duration::ZERO);
        Times { exposed, wire: WireTime::default(), spent: Spent::default(), ended: Instant::now(), away }
    }
}

/// Times of this rank's thread since the last query.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// In backward passes.
    pub backward: Duration,
    /// In updates of the values.
    pub optimizer: Duration,
}
