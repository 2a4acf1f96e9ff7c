//! Reduction operators.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

/// Operator that combines contributions.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Display, EnumString, IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
#[repr(u8)]
pub enum Op {
    /// The sum; integers wrap around.
    Sum,
    /// The sum divided by the number of ranks; integers round toward zero.
    Average,
    /// The maximum; any NaN gives NaN.
    Max,
    /// The minimum; any NaN gives NaN.
    Min,
    /// The product; integers wrap around.
    Product,
}

impl Op {
    /// All operators, in the order of their codes in headers.
    pub const ALL: [Op; 5] = [Op::Sum, Op::Average, Op::Max, Op::Min, Op::Product];

    /// Returns the name on the command line and in errors: `sum`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
