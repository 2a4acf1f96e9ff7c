//! Figures derived from those of a run: for pictures ([`columns()`], [`rank_times()`]), and for findings
//! ([`Pace`], [`BucketCosts`], [`SlowRank`]).

mod bucket_costs;
mod columns;
mod pace;
mod rank_times;
mod slow_rank;

pub(crate) use bucket_costs::{BucketCosts, median_bytes};
pub(crate) use columns::{Column, columns};
pub(crate) use pace::Pace;
pub(crate) use rank_times::rank_times;
pub(crate) use slow_rank::SlowRank;
