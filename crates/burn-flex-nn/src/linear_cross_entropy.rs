//! Cross entropy of a linear layer's outputs, without their whole matrix in memory: [`ROWS`] rows of scores
//! at a time turn into their loss and their gradient, which enters the gradients of input and weights at once
//! (as in Hsu et al., [arXiv:2410.10989](https://arxiv.org/abs/2410.10989)).

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
use burn::tensor::Tensor;

use crate::cross_entropy::{check_targets, entropy_of_row, gradient_of_row, smoothed_cross_entropy};
use crate::lanes::vectorized;
use crate::memory::{Values, row_major, vector};
use crate::on_flex;
use crate::precision::{Precision, precision};
use crate::product::{Factor, matmul};
use crate::tiles::{CHAIN, Matrix, multiply_onto};

/// Rows of scores in memory: the terms of one chain of additions in the gradient of the weights.
const ROWS: usize = CHAIN;

/// Computes `cross_entropy(matmul(x, weight), targets)`. On `flex` only some rows of the scores are in memory
/// at a time, except in a lower precision.
///
/// # Shapes
///
/// - `x`: `[rows, width]` - `weight`: `[width, classes]` - `targets`: one for each row - output: `[1]`
///
/// # Panics
///
/// Panics if the widths differ, if the number of targets is not that of the rows, or if a target is not below
/// `classes`.
pub fn linear_cross_entropy(x: Tensor<2>, weight: Tensor<2>, targets: Vec<Option<usize>>) -> Tensor<1> {
    smoothed_linear_cross_entropy(x, weight, targets, 0.0)
}

/// Same as [`linear_cross_entropy`], with a share of each target spread over all classes: see
/// [`smoothed_cross_entropy`].
///
/// # Shapes
///
/// See [`linear_cross_entropy`].
///
/// # Panics
///
/// See [`linear_cross_entropy`].
pub fn smoothed_linear_cross_entropy(
    x: Tensor<2>,
    weight: Tensor<2>,
    targets: Vec<Option<usize>>,
    share: f32,
) -> Tensor<1> {
    let ([rows, width], [inputs, classes]) = (x.dims(), weight.dims());
    assert_eq!(width, inputs, "rows of {width} for weights of {inputs} inputs");
    check_targets(&targets, [rows, classes]);
    let is_ours = on_flex(&x) && on_flex(&weight) && ![rows, width, classes].contains(&0);
    if !is_ours || precision() != Precision::F32 {
        return smoothed_cross_entropy(matmul(x, weight), targets, share);
    }
    let [x, weight] = [x, weight].map(Tensor::into_dispatch);
    let targets = Targets { classes: targets, share };
    Tensor::from_dispatch(<Dispatch as LinearCrossEntropy>::linear_cross_entropy(x, weight, targets))
}

/// Class of each row.
struct Targets {
    classes: Vec<Option<usize>>,
    /// Part of each target that is spread over all classes.
    share: f32,
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait LinearCrossEntropy: Backend {
    fn linear_cross_entropy(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        targets: Targets,
    ) -> FloatTensor<Self>;
}

impl LinearCrossEntropy for Flex {
    fn linear_cross_entropy(x: FlexTensor, weight: FlexTensor, targets: Targets) -> FlexTensor {
        vector(vec![entropy(&Values::row_major(&x), &Factor::new(&weight, &[]), &targets, None)])
    }
}

impl<C: CheckpointStrategy> LinearCrossEntropy for Autodiff<Flex, C> {
    fn linear_cross_entropy(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        targets: Targets,
    ) -> FloatTensor<Self> {
        let [(x, x_node), (weight, weight_node)] = [x, weight].map(FloatTensor::<Self>::into_parts);
        let nodes = [x_node, weight_node];
        match Backward::<Flex, 2>::prepare::<C>(LinearCrossEntropyOp, nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (x, weight) = (Values::row_major(&x), Factor::new(&weight, &[]));
                let of_weight = vec![0.0; weight.matrix(0).dims().iter().product()];
                let mut found = Found { of_x: Vec::with_capacity(x.len()), of_weight };
                let entropy = entropy(&x, &weight, &targets, Some(&mut found));
                let of_x = row_major(found.of_x, x.shape());
                prepared.finish([of_x, weight.in_shape(found.of_weight)], vector(vec![entropy]))
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(<Flex as LinearCrossEntropy>::linear_cross_entropy(x, weight, targets))
            }
        }
    }
}

#[derive(Debug)]
struct LinearCrossEntropyOp;

impl Backward<Flex, 2> for LinearCrossEntropyOp {
    /// Gradients of the entropy with respect to `x` and `weight`.
    type State = [FlexTensor; 2];

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let factor = Values::row_major(&gradients.consume::<Flex>(&ops.node))[0];
        for (node, gradient) in ops.parents.into_iter().zip(ops.state) {
            if let Some(node) = node {
                gradients.register::<Flex>(node.id, scaled(gradient, factor));
            }
        }
    }
}

fn scaled(gradient: FlexTensor, factor: f32) -> FlexTensor {
    // A loss is mostly the end of the graph, and then the factor is 1.
    if factor == 1.0 { gradient } else { Flex::float_mul_scalar(gradient, factor.into()) }
}

/// Gradients of the entropy.
struct Found {
    /// Rows so far.
    of_x: Vec<f32>,
    /// Sum over the rows so far, in the weights' memory order.
    of_weight: Vec<f32>,
}

/// Returns the sum of the rows' cross entropies, and adds up the gradients.
fn entropy(x: &[f32], weight: &Factor, targets: &Targets, mut found: Option<&mut Found>) -> f32 {
    let weights = weight.matrix(0);
    let [width, classes] = weights.dims();
    let (targets, share) = (&targets.classes, targets.share);
    let mut scores = Vec::with_capacity(ROWS.min(targets.len()) * classes);
    let mut total = 0.0;
    for (x, targets) in x.chunks(ROWS * width).zip(targets.chunks(ROWS)) {
        let x = Matrix::row_major(x, width);
        scores.clear();
        multiply_onto(&mut scores, x, weights);
        total = add_rows(total, &mut scores, targets, share, found.is_some());
        if let Some(found) = &mut found {
            let of_scores = Matrix::row_major(&scores, classes);
            multiply_onto(&mut found.of_x, of_scores, weights.transposed());
            weight.add_gradient(&mut found.of_weight, x.transposed(), of_scores);
        }
    }
    total as f32
}

/// Returns a total plus the rows' cross entropies, and replaces the scores by their gradients, if they are
/// needed.
fn add_rows(
    mut total: f64,
    scores: &mut [f32],
    targets: &[Option<usize>],
    share: f32,
    with_gradients: bool,
) -> f64 {
    let classes = scores.len() / targets.len();
    vectorized(
        #[inline(always)]
        || {
            for (row, target) in scores.chunks_exact_mut(classes).zip(targets) {
                let Some(target) = *target else {
                    row.fill(0.0);
                    continue;
                };
                let (entropy, [_, sum]) = entropy_of_row(row, target, share);
                total += entropy;
                if with_gradients {
                    gradient_of_row(row, target, sum, 1.0, share);
                }
            }
        },
    );
    total
}
