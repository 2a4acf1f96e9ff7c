//! The formats of data files, one file each, and the byte stream that they are read from.

pub(crate) mod cifar;
pub(crate) mod csv;
pub(crate) mod documents;
pub(crate) mod idx;
#[cfg(not(feature = "parquet"))]
mod no_parquet;
#[cfg(feature = "parquet")]
mod parquet;
pub(crate) mod sheet;
pub(crate) mod source;
