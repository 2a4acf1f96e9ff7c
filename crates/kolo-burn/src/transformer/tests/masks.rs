//! Positions that a position may attend to.

use burn::tensor::{Bool, Tensor};

use super::{device, tensor, values};
use crate::transformer::{Norm, TransformerConfig};

const SHAPE: [usize; 3] = [2, 9, 16];

/// Returns the bits of the output at each position of all samples.
fn positions(output: Tensor<3>) -> Vec<Vec<u32>> {
    let [_, time, _] = output.dims();
    let at = |t| values(output.clone().narrow(1, t, 1)).iter().map(|x| x.to_bits()).collect();
    (0..time).map(at).collect()
}

#[test]
fn a_position_does_not_depend_on_later_ones() {
    let device = device();
    for norm in [Norm::Pre, Norm::Post] {
        let transformer = TransformerConfig::new(16, 4, 3).with_norm(norm).init(&device);
        let x = tensor(1, SHAPE, &device);
        let before = positions(transformer.forward(x.clone(), None));
        for changed in 1..SHAPE[1] {
            let later = SHAPE[1] - changed;
            let other = tensor(2, [SHAPE[0], later, SHAPE[2]], &device) * 100.0;
            let x = Tensor::cat(vec![x.clone().narrow(1, 0, changed), other], 1);
            let after = positions(transformer.forward(x, None));
            assert!(before[..changed] == after[..changed], "{norm:?}: position {changed} was seen before");
            assert!(before[changed..].iter().zip(&after[changed..]).all(|(a, b)| a != b), "{changed}");
        }
    }
}

#[test]
fn without_the_causal_mask_the_first_position_sees_the_last() {
    let device = device();
    let transformer = TransformerConfig::new(16, 4, 1).with_causal(false).init(&device);
    let x = tensor(1, SHAPE, &device);
    let other = Tensor::cat(vec![x.clone().narrow(1, 0, 8), tensor(2, [2, 1, 16], &device)], 1);
    let [before, after] = [x, other].map(|x| positions(transformer.forward(x, None)));
    assert_ne!(before[0], after[0]);
}

/// Padding on both sides, and a causal position that can attend only to padding.
#[test]
fn nobody_looks_at_padding() {
    let device = device();
    for causal in [true, false] {
        let transformer = TransformerConfig::new(16, 4, 2).with_causal(causal).init(&device);
        let padded = [0, 1, 5, 8];
        let padding: Vec<bool> = (0..18).map(|index| padded.contains(&(index % 9))).collect();
        let padding = Tensor::<1, Bool>::from_data(&padding[..], &device).reshape([2, 9]);
        let run = |seed| {
            let real = tensor::<3>(1, SHAPE, &device);
            let x = real.mask_where(
                padding.clone().unsqueeze_dim::<3>(2).expand(SHAPE),
                tensor(seed, SHAPE, &device),
            );
            let output = transformer.forward_padded(x.require_grad(), &padding, None);
            assert!(values(output.clone()).iter().all(|value| value.is_finite()));
            positions(output)
        };
        let (one, other) = (run(3), run(4));
        for t in 0..9 {
            assert_eq!(one[t] == other[t], !padded.contains(&t), "position {t}, causal: {causal}");
        }
    }
}

#[test]
#[should_panic(expected = "a width of 10 in 4 heads")]
fn heads_that_do_not_divide_the_width_are_told() {
    TransformerConfig::new(10, 4, 1).init(&device());
}
