//! `kolo bench all-reduce --backend nccl` in a program built without the feature `nccl`: it says how to build
//! with it.

use crate::fail::Failure;

pub(crate) fn measure(_sizes: &[usize], _seconds: f64, _json: bool) -> Result<(), Failure> {
    let remedy = "build it with `cargo build --release --features nccl` (nothing of CUDA is needed for that)";
    Err(Failure::input(format!("--backend nccl: this program was built without NCCL; {remedy}")))
}
