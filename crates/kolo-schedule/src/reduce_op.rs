//! A reduction combines contributions in one of these ways.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

/// How contributions are combined.
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

    /// Its name on the command line and in errors: `sum`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
