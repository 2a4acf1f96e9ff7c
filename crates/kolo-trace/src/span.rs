//! What a worker does in a span of time.

use serde::{Deserialize, Serialize};

/// A bucket of gradients, and how large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Its number, in the order in which buckets become ready.
    pub number: usize,
    /// Bytes of its gradient: four for each element.
    pub bytes: usize,
    /// Bytes in which one shard's part of it travels.
    pub wire_bytes: usize,
}

/// What a worker does in a span of time, or what happens at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A whole step, as `steps.jsonl` measures it.
    Step,
    /// The training thread waits for a batch.
    Data,
    /// The forward pass of a shard. Waits and updates may lie within it.
    Forward,
    /// The backward pass of a shard.
    Backward,
    /// The forward and backward passes of all shards together, where they normalise over the global batch.
    Passes,
    /// At one moment: the gradient of a bucket is there.
    Ready(Bucket),
    /// A bucket is being reduced with the other ranks.
    Reduce(Bucket),
    /// The training thread waits for a bucket.
    WaitBucket(Bucket),
    /// The training thread waits for something else of the other ranks.
    Wait {
        /// What it is.
        thing: String,
    },
    /// The optimizer steps what is in a bucket.
    Update(Bucket),
    /// The model is evaluated.
    Evaluate,
    /// A checkpoint is taken, or written.
    Checkpoint,
    /// At one moment: from here on this process is this rank of this generation.
    Rank {
        /// The rank.
        rank: usize,
        /// The ranks of the job.
        world_size: usize,
        /// The generation of an elastic job, else 0.
        generation: u64,
    },
}

/// Where a span is drawn: each is one thread's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Track {
    Training = 0,
    Wire = 1,
}

impl What {
    /// The name that the timeline shows.
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

    /// The category by which the timeline can be filtered.
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

    /// The bucket that it is about.
    pub fn bucket(&self) -> Option<Bucket> {
        match self {
            What::Ready(bucket) | What::Reduce(bucket) | What::WaitBucket(bucket) | What::Update(bucket) => {
                Some(*bucket)
            }
            _ => None,
        }
    }
}

/// A line of a part: what a worker did, in the step that ran, from when to when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// What it did.
    pub what: What,
    /// The step that it belongs to, from 0.
    pub step: u64,
    /// Nanoseconds of the host's monotonic clock at its beginning.
    pub start: u64,
    /// The same at its end; of what happens at one moment the same moment.
    pub end: u64,
}
