//! Bytes that a reduction of gradients puts on the wire, and the collectives that carry them.

/// Path of the shards' messages to all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Travel {
    /// All-reduces add the messages in transit; this many run one after another.
    Summed {
        /// Number of all-reduces, of about equal length.
        rounds: u32,
    },
    /// To the owner of each part, and back: as many bytes as in an all-reduce by `direct`.
    ToOwners,
    /// Every worker receives each shard's message and adds it.
    Gathered,
}

/// Cost of a reduction on the wire. The time to compute messages is not part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WireCost {
    /// Path of the messages.
    pub travel: Travel,
    /// Bytes of a shard's message per element; `None` if they depend on the shapes of the tensors.
    pub bytes_per_element: Option<f64>,
    /// True if weights end with the bits of exact sums; otherwise accuracy may differ.
    pub is_exact: bool,
}

impl WireCost {
    /// The exact sum of 4 bytes per element.
    pub const SUM: WireCost =
        WireCost { travel: Travel::Summed { rounds: 1 }, bytes_per_element: Some(4.0), is_exact: true };

    /// Creates the cost of a reduction that is not exact.
    pub const fn lossy(travel: Travel, bytes_per_element: f64) -> Self {
        WireCost { travel, bytes_per_element: Some(bytes_per_element), is_exact: false }
    }
}
