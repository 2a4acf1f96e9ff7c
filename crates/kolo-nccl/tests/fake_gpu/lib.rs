//! CUDA's driver and NCCL as far as Kolo uses them, on the host: "device" memory is the host's, a stream is a
//! thread, and the ranks are threads of one process. For tests of what is around them; it shows nothing about
//! the real ones.
//!
//! It is stricter than they are where a mistake would otherwise go unnoticed: a collective gets onto the
//! stream only when the communicator has been asked for its state three times, and freed memory is
//! overwritten.

// A C interface, called with whatever the caller promises to the real libraries.
#![allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc, missing_docs, non_snake_case)]

mod cuda;
mod nccl;
