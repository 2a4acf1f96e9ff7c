use burn::tensor::Device;

use super::*;

fn numbers<const D: usize>(seed: usize, shape: [usize; D], device: &Device) -> Tensor<D> {
    let value = |i: usize| ((i * 7_919 + seed * 104_729) % 1_000) as f32 / 250.0 - 2.0;
    let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn close(what: &str, a: Tensor<3>, b: Tensor<3>) {
    let [a, b] = [a, b].map(|tensor| tensor.into_data().iter::<f32>().collect::<Vec<f32>>());
    for (index, (a, b)) in a.iter().zip(&b).enumerate() {
        assert!(
            (a - b).abs() < 1e-5 * (1.0 + b.abs()),
            "{what}, element {index}: {a}, of Burn's operations {b}"
        );
    }
}

/// Compares outputs and gradients of the one operation with those of Burn's operations: with every mask, all
/// masks together, and sequences whose first positions see only padding.
#[test]
fn it_is_what_burns_operations_make_of_it() {
    let device = Device::flex().autodiff();
    for ([batch, time, heads, head], causal, padded, dropping) in [
        ([2, 5, 3, 4], false, false, false),
        ([3, 37, 2, 8], true, false, false),
        ([3, 18, 1, 5], false, true, false),
        ([2, 20, 4, 3], true, true, true),
        ([1, 33, 2, 16], true, false, true),
        ([2, 1, 2, 2], true, false, false),
    ] {
        let sizes = Sizes { batch, time, heads, head };
        let padding = padded.then(|| {
            let padding: Vec<bool> = (0..batch * time).map(|i| i % time < 2 || i % 5 == 0).collect();
            Tensor::<1, Bool>::from_data(&padding[..], &device).reshape([batch, time])
        });
        let mask = dropping.then(|| {
            let [rows, columns] = sizes.rows_of_weights();
            let row = |row: usize| (columns, move |key: usize| (row * columns + key) * 7_919 % 10 >= 3);
            DropoutMask::draw(rows, columns, 1.0 / 0.7, row)
        });
        let qkv = numbers(1, [batch, time, 3 * heads * head], &device);
        let [one, several] = [qkv.clone(), qkv].map(Tensor::require_grad);
        let attention = Attention { heads, causal, padding: padding.clone(), weight_mask: mask.clone() };
        let by_one = self_attention(one.clone(), attention);
        let by_several = composed(several.clone(), sizes, causal, padding, mask);
        let what = format!("{sizes:?}, causal {causal}, padded {padded}, dropping {dropping}");
        close(&what, by_one.clone(), by_several.clone());
        let weights = numbers(2, [batch, time, heads * head], &device);
        let gradient = |output: Tensor<3>, qkv: Tensor<3>| {
            Tensor::from_inner(qkv.grad(&(output * weights.clone()).sum().backward()).unwrap())
        };
        close(&format!("gradient, {what}"), gradient(by_one, one), gradient(by_several, several));
    }
}

#[test]
#[should_panic(expected = "a mask of 3 rows of 2 for weights of [4, 2]")]
fn a_mask_of_another_shape_is_refused() {
    let qkv = numbers(1, [1, 2, 12], &Device::flex());
    let weight_mask = Some(DropoutMask::draw(3, 2, 1.0, |_| (2, |_| true)));
    self_attention(qkv, Attention { heads: 2, weight_mask, ..Attention::default() });
}

/// Also for more keys than a chain of additions has terms.
#[test]
fn every_instruction_set_gives_the_same_bits() {
    let values = |len: usize, seed: usize| -> Vec<f32> {
        (0..len).map(|i| ((i * 7_919 + seed * 104_729) as f32 * 0.37).sin()).collect()
    };
    for ([batch, time, heads, head], causal) in [([2, 37, 3, 5], true), ([1, 530, 1, 8], false)] {
        let sizes = Sizes { batch, time, heads, head };
        let masks = Masks { causal, padding: None, dropout: None };
        let len = batch * time * heads * head;
        let (qkv, gradient) = (values(3 * len, 1), values(len, 2));
        let bits = |arch| {
            let (output, weights) = kernel::forward_on(arch, &qkv, sizes, masks.rows(sizes), None);
            let of_qkv = kernel::backward_on(arch, &qkv, sizes, masks.rows(sizes), None, weights, &gradient);
            [output, of_qkv].map(|values| values.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        };
        let scalar = bits(pulp::Arch::Scalar);
        assert!(crate::tiles::instruction_sets().into_iter().all(|arch| bits(arch) == scalar), "{sizes:?}");
    }
}
