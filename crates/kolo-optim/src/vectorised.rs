//! Loops over elements with the widest vectors that the processor has.

/// Runs a loop that the compiler may turn into vector instructions. All of it must be inlined: what is called
/// in it by another function is compiled for the oldest processors.
///
/// Wider vectors take more elements at a time, but do not change what is done to each, or in which order
/// elements are added, since the compiler does neither: the bits are the same on all processors.
#[inline(always)]
pub fn vectorised<R>(of: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(of)
}
