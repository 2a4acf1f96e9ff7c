//! Division of a job's state among its workers (Rajbhandari et al. 2020, "ZeRO").

use kolo_comm::Group;
use kolo_reduction::BucketCaps;

/// State of which each worker holds a part only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharding {
    /// None: each worker holds all of it.
    #[default]
    Nothing,
    /// The optimizer's state (stage 1): each worker steps its part of the model, with the gradient of all
    /// shards, and sends the new values to the others.
    Optimizer,
    /// The optimizer's state and gradients (stage 2): each worker also keeps the sum of the gradients of its
    /// part only, besides a few buckets. If a worker has several shards, it has all buckets until the pass of
    /// the last one.
    Gradients,
    /// Also the values (stage 3): each worker holds its part of every large parameter, and gathers a
    /// parameter when a pass uses it.
    Parameters,
    /// None: the workers of one host have one copy of all state, in memory that outlives each of them, and
    /// each steps its part. A worker that dies takes nothing with it.
    Host,
}

impl Sharding {
    /// All of them, with their names on a command line.
    pub const ALL: [(&'static str, Sharding); 5] = [
        ("nothing", Sharding::Nothing),
        ("optimizer", Sharding::Optimizer),
        ("gradients", Sharding::Gradients),
        ("parameters", Sharding::Parameters),
        ("host", Sharding::Host),
    ];

    /// Name on a command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, sharding)| *sharding == self).map_or("", |(name, _)| name)
    }

    /// Returns true if each worker keeps the sum of the gradients of its part only.
    pub fn divides_gradients(self) -> bool {
        matches!(self, Sharding::Gradients | Sharding::Parameters)
    }

    /// Sizes of buckets, where the program gives none.
    pub(crate) fn caps(self, group: &Group) -> BucketCaps {
        match self {
            Sharding::Gradients | Sharding::Parameters => BucketCaps::of_mib(kolo_step::DIVIDED_BUCKET_MIB),
            Sharding::Nothing | Sharding::Optimizer | Sharding::Host => BucketCaps::for_group(group),
        }
    }
}
