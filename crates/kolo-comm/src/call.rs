//! The fingerprint of a collective call, sent along with every message: two ranks that call different things
//! find out at the first message instead of hanging or mixing up their data.

use crate::element::{DType, Op};
use crate::rank::Rank;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    AllReduce(Op),
    ReduceScatter(Op),
    AllGather,
    Broadcast(Rank),
}

/// One collective call of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// How many collectives this group had before.
    pub(crate) sequence: u32,
    pub(crate) operation: Operation,
    pub(crate) dtype: DType,
    /// Elements of one part.
    pub(crate) elements: u64,
}

impl Call {
    /// Two words: sequence, operation, its argument and type in the first; the length in the second.
    pub(crate) fn pack(&self) -> [u64; 2] {
        let (kind, argument) = match self.operation {
            Operation::AllReduce(op) => (0, op as u64),
            Operation::ReduceScatter(op) => (1, op as u64),
            Operation::AllGather => (2, 0),
            Operation::Broadcast(root) => (3, root.0 as u64),
        };
        let first =
            u64::from(self.sequence) | kind << 32 | (self.dtype as u64) << 36 | (argument & 0xff_ffff) << 40;
        [first, self.elements]
    }

    /// The call in words, from its packed form; also when that form came from a stranger.
    pub(crate) fn describe(words: [u64; 2]) -> String {
        let (sequence, argument) = (words[0] as u32, words[0] >> 40);
        let op = [Op::Sum, Op::Average, Op::Max]
            .into_iter()
            .find(|op| *op as u64 == argument)
            .map_or("unknown".to_string(), |op| op.to_string());
        let operation = match words[0] >> 32 & 0xf {
            0 => format!("all_reduce({op})"),
            1 => format!("reduce_scatter({op})"),
            2 => "all_gather".to_string(),
            3 => format!("broadcast(from {})", Rank(argument as usize)),
            kind => format!("operation {kind}"),
        };
        let dtype = [DType::F32, DType::F64, DType::I32, DType::I64, DType::U8]
            .into_iter()
            .find(|dtype| *dtype as u64 == words[0] >> 36 & 0xf)
            .map_or("unknown elements".to_string(), |dtype| dtype.to_string());
        format!("{operation} of {} {dtype} (call {sequence})", words[1])
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&Call::describe(self.pack()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_describe_themselves() {
        let call = |operation| Call { sequence: 7, operation, dtype: DType::F32, elements: 12 };
        let words = call(Operation::AllReduce(Op::Average)).to_string();
        assert_eq!(words, "all_reduce(average) of 12 f32 (call 7)");
        let words = call(Operation::Broadcast(Rank(300))).to_string();
        assert_eq!(words, "broadcast(from rank 300) of 12 f32 (call 7)");
        assert!(Call::describe([u64::MAX; 2]).contains("operation 15"));
    }
}
