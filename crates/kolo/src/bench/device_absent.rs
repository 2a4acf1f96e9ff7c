//! `kolo bench <operation> --backend nccl` without the feature `nccl`: explains how to build with it.

use std::sync::Arc;

use kolo_comm::Group;

use kolo::Failure;

/// Returns an error; `Group` stands for any type with collectives.
pub(crate) fn open(_: &Arc<Group>) -> Result<Group, Failure> {
    let remedy = "build it with `cargo build --release --features nccl` (nothing of CUDA is needed for that)";
    Err(Failure::input(format!("--backend nccl: this program was built without NCCL; {remedy}")))
}
