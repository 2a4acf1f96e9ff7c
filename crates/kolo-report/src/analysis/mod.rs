//! What the figures of a run say together: for pictures ([`columns`]), and for findings ([`Pace`],
//! [`BucketCosts`]).

mod bucket_costs;
mod columns;
mod pace;

pub(crate) use bucket_costs::{BucketCosts, median_bytes};
pub(crate) use columns::{Column, columns};
pub(crate) use pace::Pace;
