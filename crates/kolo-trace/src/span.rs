//! Spans: the activities of a worker.

use serde::{Deserialize, Serialize};

/// Bucket of gradients, with its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Number, in the order in which buckets become ready.
    pub number: usize,
    /// Bytes of its gradient: four per element.
    pub bytes: usize,
    /// Bytes on the wire for one shard's part of it.
    pub wire_bytes: usize,
}

/// Activity of a worker over a span of time, or event at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A whole step, as `steps.jsonl` measures it.
    Step,
    /// The training thread waits for a batch.
    Data,
    /// The forward pass of a shard. May include waits and updates.
    Forward,
    /// The backward pass of a shard.
    Backward,
    /// The passes of all shards together, forward and backward, where models normalize over the global batch.
    Passes,
    /// Moment at which the gradient of a bucket is complete.
    Ready(Bucket),
    /// The ranks reduce a bucket.
    Reduce(Bucket),
    /// The training thread waits for a bucket.
    WaitBucket(Bucket),
    /// The training thread waits for something else from the other ranks.
    Wait {
        /// Description of what it waits for.
        thing: String,
    },
    /// The optimizer updates the parameters of a bucket.
    Update(Bucket),
    /// The model is evaluated.
    Evaluate,
    /// A checkpoint is taken or written.
    Checkpoint,
    /// Moment from which this process has this rank in this generation.
    Rank {
        /// Rank of the process.
        rank: usize,
        /// Number of ranks of the job.
        world_size: usize,
        /// Generation of an elastic job, otherwise 0.
        generation: u64,
    },
}

/// Track on which a span is drawn, one per thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Track {
    Training = 0,
    Wire = 1,
}

impl What {
    /// Returns the name that the timeline shows.
    pub(crate) fn name(&self) -> String {
        match self {
            What::Step => "step".into(),
            What::Data => "data".into(),
            What::Forward => "forward".into(),
            What::Backward => "backward".into(),
            What::Passes => "forward and backward".into(),
            What::Ready(bucket) => format!("bucket {} ready", bucket.number),
            What::Reduce(bucket) => format!("reduce bucket {}", bucket.number),
            What::WaitBucket(bucket) => format!("wait for bucket {}", bucket.number),
            What::Wait { thing } => format!("wait for {thing}"),
            What::Update(bucket) => format!("update bucket {}", bucket.number),
            What::Evaluate => "evaluate".into(),
            What::Checkpoint => "checkpoint".into(),
            What::Rank { rank, world_size, generation } => {
                format!("rank {rank} of {world_size}, generation {generation}")
            }
        }
    }

    /// Returns the category by which the timeline can be filtered.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            What::Step => "step",
            What::Data => "data",
            What::Forward | What::Backward | What::Passes | What::Update(_) => "compute",
            What::Ready(_) | What::Reduce(_) => "communication",
            What::WaitBucket(_) | What::Wait { .. } => "wait",
            What::Evaluate => "evaluation",
            What::Checkpoint => "checkpoint",
            What::Rank { .. } => "membership",
        }
    }

    pub(crate) fn track(&self) -> Track {
        match self {
            What::Reduce(_) => Track::Wire,
            _ => Track::Training,
        }
    }

    /// Returns the bucket of the activity, if any.
    pub fn bucket(&self) -> Option<Bucket> {
        match self {
            What::Ready(bucket) | What::Reduce(bucket) | What::WaitBucket(bucket) | What::Update(bucket) => {
                Some(*bucket)
            }
            _ => None,
        }
    }
}

/// Line of a part: an activity, its step, and its times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Activity of the worker.
    pub what: What,
    /// Step that the activity belongs to, from 0.
    pub step: u64,
    /// Start, in nanoseconds of the host's monotonic clock.
    pub start: u64,
    /// End, in the same unit; equal to the start for a moment.
    pub end: u64,
}
