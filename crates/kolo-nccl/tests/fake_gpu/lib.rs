//! Fakes of CUDA's driver and NCCL, as far as Kolo uses them: "device" memory is the host's, a stream is a
//! thread, and ranks are threads of one process. They test the surrounding code, not the real libraries.
//!
//! The fakes are stricter than the libraries where a mistake would go unnoticed. A collective gets onto the
//! stream only after three polls of the communicator's state, and freed memory is overwritten.

// A C interface, called with the promises that callers make to the real libraries.
#![allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc, missing_docs, non_snake_case)]

mod cuda;
mod nccl;
