//! Products of matrices that stay in registers, tile by tile. The order of additions depends only on the
//! shapes.

mod multiply;
mod panel;
mod tile;

pub(crate) use multiply::{Beside, Matrix, add_product, multiply, multiply_onto};
pub(crate) use panel::{Panel, panels};
pub(crate) use tile::{CHAIN, Product, Segment};

/// Returns all instruction sets of this processor.
#[cfg(test)]
pub(crate) fn instruction_sets() -> Vec<pulp::Arch> {
    use pulp::Arch;
    #[allow(unused_mut, reason = "there may be no others")]
    let mut all = vec![Arch::Scalar, Arch::new()];
    #[cfg(target_arch = "x86_64")]
    {
        all.extend(pulp::x86::V3::try_new().map(Arch::V3));
        all.extend(pulp::x86::V4::try_new().map(Arch::V4));
    }
    all
}
