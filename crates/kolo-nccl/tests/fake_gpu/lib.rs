//! Fakes of CUDA's driver and NCCL, as far as Kolo uses them. "Device" memory is the host's, a stream is
//! a thread, and the ranks are threads of one process. They test the code around the libraries and prove
//! nothing about the real ones.
//!
//! The fakes are stricter than the libraries where a mistake would otherwise go unnoticed. A collective
//! gets onto the stream only after the communicator's state has been polled three times, and freed memory
//! is overwritten.

// A C interface, called with the promises that callers make to the real libraries.
#![allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc, missing_docs, non_snake_case)]

mod cuda;
mod nccl;
