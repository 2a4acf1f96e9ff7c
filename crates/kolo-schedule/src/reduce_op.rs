//! The ways in which a reduction combines contributions.

use serde::{Deserialize, Serialize};

/// How contributions are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Op {
    /// The sum; integers wrap around.
    Sum,
    /// The sum divided by the number of ranks; integers round toward zero.
    Average,
    /// The largest; a NaN anywhere gives NaN.
    Max,
    /// The smallest; a NaN anywhere gives NaN.
    Min,
    /// The product; integers wrap around.
    Product,
}

impl Op {
    /// Every operation, in the order of its code in headers.
    pub const ALL: [Op; 5] = [Op::Sum, Op::Average, Op::Max, Op::Min, Op::Product];
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Op::Sum => "sum",
            Op::Average => "average",
            Op::Max => "max",
            Op::Min => "min",
            Op::Product => "product",
        })
    }
}
