//! A setting of the same steps: the cuts of gradients into buckets, and the transport of those. It decides
//! no bit.

use std::fmt;

use kolo_comm::Group;
use serde::Serialize;

use kolo_reduction::BucketCaps;

/// Cuts and transport of a job's gradients.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunedSetting {
    /// Largest size of the first and the last bucket, in bytes.
    pub first_bytes: usize,
    /// Largest size of all other buckets, in bytes: the bucket cap.
    pub cap_bytes: usize,
    /// Bytes of the longest slice of a tensor: a larger tensor is cut into several buckets.
    pub slice_bytes: usize,
    /// The algorithm of long sums ([`Group::prefer_algorithm`]); `None`: the cost model's choice.
    pub algorithm: Option<&'static str>,
    /// Relative share of each sum that every rank adds, according to its link; `None`: equal shares.
    pub ownership: Option<Vec<u32>>,
    /// Connections between two ranks over which messages go in turn.
    pub streams: usize,
}

impl TunedSetting {
    /// The setting of a job that is not tuned.
    pub fn untuned(caps: BucketCaps, group: &Group) -> Self {
        TunedSetting {
            first_bytes: caps.first,
            cap_bytes: caps.other,
            slice_bytes: caps.other,
            algorithm: None,
            ownership: None,
            streams: group.streams().0,
        }
    }

    /// The same setting with another cap, by which tensors are sliced as well.
    pub(crate) fn with_cap(&self, cap_bytes: usize) -> Self {
        TunedSetting { cap_bytes, slice_bytes: cap_bytes, ..self.clone() }
    }

    /// Size limits of buckets.
    pub(crate) fn caps(&self) -> BucketCaps {
        BucketCaps { first: self.first_bytes.min(self.cap_bytes), other: self.cap_bytes }
    }
}

/// Formats it as `buckets of 4 MiB, direct by links, 2 connections`: the differences from a job that is not
/// tuned.
impl fmt::Display for TunedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "buckets of {}", size(self.cap_bytes))?;
        if self.slice_bytes != self.cap_bytes {
            write!(f, ", slices of {}", size(self.slice_bytes))?;
        }
        match (&self.ownership, self.algorithm) {
            (Some(_), _) => write!(f, ", direct by links")?,
            (None, Some(name)) => write!(f, ", {name}")?,
            (None, None) => {}
        }
        if self.streams > 1 {
            write!(f, ", {} connections", self.streams)?;
        }
        Ok(())
    }
}

fn size(bytes: usize) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    match bytes as f64 / MIB {
        mib if mib >= 0.1 => format!("{:.4} MiB", mib).replace(".0000", "").replace("00 MiB", " MiB"),
        _ => format!("{bytes} bytes"),
    }
}
