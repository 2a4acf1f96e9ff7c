//! Loops over elements with the widest vectors of the processor.

/// Runs a loop that the compiler may vectorize. Everything in it must be inlined: the compiler builds
/// separate functions for the oldest processors.
///
/// Wider vectors take more elements at a time, but change neither the operations on each element nor the
/// order of additions. The bits are therefore the same on all processors.
#[inline(always)]
pub fn vectorized<R>(of: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(of)
}
