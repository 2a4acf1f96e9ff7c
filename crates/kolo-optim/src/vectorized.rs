//! Loops over elements with the widest vectors of the processor.

use pulp::{Arch, Simd, WithSimd};

/// Runs a loop that the compiler may vectorize. Everything in it must be inlined: the compiler builds
/// separate functions for the oldest processors.
///
/// Wider vectors take more elements at a time, but change neither the operations on each element nor the
/// order of additions. The bits are therefore the same on all processors.
#[inline(always)]
pub fn vectorized<R>(of: impl FnOnce() -> R) -> R {
    Arch::new().dispatch(Vectorized(of))
}

/// A closure itself would be called through a function that the compiler may build for the oldest processors.
struct Vectorized<F>(F);

impl<R, F: FnOnce() -> R> WithSimd for Vectorized<F> {
    type Output = R;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> R {
        (self.0)()
    }
}
