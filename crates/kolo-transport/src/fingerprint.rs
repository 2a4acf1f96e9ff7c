//! The fingerprint of a collective call, sent along with every message. Two ranks that make different
//! calls notice at the first message instead of hanging or mixing up their data.

use kolo_schedule::{ALGORITHMS, DType, Op, Rank};
use strum::{FromRepr, IntoStaticStr};

/// Names of the collectives, without their arguments. The order is that of the codes in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr, IntoStaticStr)]
#[repr(u8)]
#[strum(serialize_all = "snake_case")]
#[allow(missing_docs, reason = "the variants of kolo-comm's `Collective` describe them")]
pub enum CollectiveKind {
    AllReduce,
    TreeSum,
    ReduceScatter,
    AllGather,
    Broadcast,
    Reduce,
    Gather,
    Scatter,
    AllToAll,
    #[strum(serialize = "message")]
    Exchange,
    Barrier,
}

impl CollectiveKind {
    /// Name of the collective, as in errors: `all_reduce`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The properties of a rank's collective call that must match those of its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The collective.
    pub kind: CollectiveKind,
    /// Operator that combines contributions.
    pub op: Op,
    /// The root, if the collective has one.
    pub root: Option<Rank>,
    /// Checksum of the readers, if only some ranks read the result.
    pub readers: Option<u64>,
    /// Type of the elements.
    pub dtype: DType,
    /// Number of elements of one part.
    pub elements: u64,
    /// Index in [`ALGORITHMS`].
    pub algorithm: u8,
}

/// A call in two 64-bit words: sequence, kind, type, operation, and root or readers; then length and
/// algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u64; 2]);

const ROOT_BITS: u32 = 20;
const NO_ROOT: u64 = (1 << ROOT_BITS) - 1;
const LENGTH_BITS: u32 = 56;

impl Fingerprint {
    /// Creates the fingerprint of a call that is the first of its group.
    pub fn new(call: &Call) -> Self {
        let root = call.root.map(|root| root.0 as u64 & NO_ROOT);
        let root = root.or(call.readers.map(|sum| sum % NO_ROOT)).unwrap_or(NO_ROOT);
        let what = call.kind as u64 | (call.dtype as u64) << 4 | (call.op as u64) << 8 | root << 12;
        let length = call.elements & ((1 << LENGTH_BITS) - 1);
        Fingerprint([what << 32, length | u64::from(call.algorithm) << LENGTH_BITS])
    }

    /// Returns the fingerprint of the same call after `sequence` earlier collectives of the group.
    /// Messages have sequence 0 because only two ranks know of them.
    #[inline]
    pub fn after(self, sequence: u32) -> Self {
        let [what, length] = self.0;
        Fingerprint([what >> 32 << 32 | u64::from(sequence), length])
    }

    /// Returns the two words, as messages carry them.
    #[inline]
    pub fn words(&self) -> [u64; 2] {
        self.0
    }

    /// Describes the call of a received fingerprint, even an invalid one.
    pub fn describe(words: [u64; 2]) -> String {
        let (sequence, what) = (words[0] as u32, words[0] >> 32);
        let field = |shift: u32, bits: u32| (what >> shift & ((1 << bits) - 1)) as usize;
        let kind = CollectiveKind::from_repr(field(0, 4) as u8);
        let name = kind.map_or("unknown operation", CollectiveKind::name);
        let dtype = DType::ALL.get(field(4, 4)).map_or("unknown elements", |dtype| dtype.name());
        let op = Op::ALL.get(field(8, 4)).map_or("unknown".to_string(), |op| op.to_string());
        let root = Rank(field(12, ROOT_BITS));
        let argument = match kind {
            Some(CollectiveKind::AllReduce | CollectiveKind::ReduceScatter) => format!("({op})"),
            Some(CollectiveKind::Reduce) => format!("({op} at {root})"),
            Some(CollectiveKind::Broadcast | CollectiveKind::Scatter) => format!("(from {root})"),
            Some(CollectiveKind::Gather) => format!("(at {root})"),
            Some(CollectiveKind::TreeSum) if root.0 as u64 != NO_ROOT => format!("(readers {:05x})", root.0),
            _ => String::new(),
        };
        let length = words[1] & ((1 << LENGTH_BITS) - 1);
        let by = ALGORITHMS.get((words[1] >> LENGTH_BITS) as usize).map_or("unknown", |by| by.name);
        match kind {
            Some(CollectiveKind::Barrier) => format!("{name} (call {sequence})"),
            Some(CollectiveKind::Exchange) => format!("a {name} of {dtype}"),
            Some(CollectiveKind::AllToAll) => format!("{name} of {dtype} (call {sequence})"),
            _ => format!("{name}{argument} of {length} {dtype} by {by} (call {sequence})"),
        }
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&Fingerprint::describe(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_describe_themselves() {
        let call = |kind, op, root| {
            let (readers, dtype, elements, algorithm) = (None, DType::Bf16, 12, 0);
            let call = Call { kind, op, root, readers, dtype, elements, algorithm };
            Fingerprint::new(&call).after(7).to_string()
        };
        let text = call(CollectiveKind::AllReduce, Op::Average, None);
        assert_eq!(text, "all_reduce(average) of 12 bf16 by direct (call 7)");
        let text = call(CollectiveKind::Reduce, Op::Product, Some(Rank(300)));
        assert_eq!(text, "reduce(product at rank 300) of 12 bf16 by direct (call 7)");
        assert_eq!(call(CollectiveKind::Barrier, Op::Max, None), "barrier (call 7)");
        assert!(Fingerprint::describe([u64::MAX; 2]).contains("unknown operation"));
    }
}
