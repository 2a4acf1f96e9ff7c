//! Pooling of images.

mod average;
mod kernel;
mod max;

pub use average::global_average_pool;
pub use max::max_pool2d;
