//! Measurements of `kolo bench`. Every figure is a percentile over samples; a sample is the maximum over the
//! ranks.

pub(crate) mod collective;
#[cfg(feature = "nccl")]
pub(crate) mod device;
#[cfg(not(feature = "nccl"))]
#[path = "device_absent.rs"]
pub(crate) mod device;
pub(crate) mod exact;
pub(crate) mod profile;
mod samples;
pub(crate) mod step;
mod trainee;
