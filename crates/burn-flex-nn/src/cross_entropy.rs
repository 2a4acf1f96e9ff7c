//! Cross entropy of scores and target classes: log Σ exp(scores) minus the target's score. Its gradient is
//! softmax(scores), minus one at the target.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Bool, Int, Tensor, TensorData};

use crate::lanes::{exponentials, largest, sum_of, vectorized};
use crate::memory::{Values, row_major, vector};
use crate::on_flex;

/// Returns the sum of the rows' cross entropies, in nats. Rows with target `None` add nothing and have no
/// gradient. Large scores do not overflow.
///
/// On `flex` there is one pass over the scores forward and one backward, and no table of targets.
///
/// # Shapes
///
/// - `scores`: `[rows, classes]`, before softmax - `targets`: one for each row - output: `[1]`
///
/// # Panics
///
/// Panics if the number of targets is not that of the rows, or if a target is not below `classes`.
pub fn cross_entropy(scores: Tensor<2>, targets: Vec<Option<usize>>) -> Tensor<1> {
    smoothed_cross_entropy(scores, targets, 0.0)
}

/// Same as [`cross_entropy`], with a share of each target spread over all classes (Szegedy et al.,
/// [arXiv:1512.00567](https://arxiv.org/abs/1512.00567), section 7): with a share ε, the target counts 1 − ε +
/// ε / `classes`, and each other class ε / `classes`.
///
/// # Shapes
///
/// See [`cross_entropy`].
///
/// # Panics
///
/// See [`cross_entropy`].
pub fn smoothed_cross_entropy(scores: Tensor<2>, targets: Vec<Option<usize>>, share: f32) -> Tensor<1> {
    check_targets(&targets, scores.dims());
    if !on_flex(&scores) {
        return composed(scores, &targets, share);
    }
    Tensor::from_dispatch(<Dispatch as CrossEntropy>::cross_entropy(scores.into_dispatch(), targets, share))
}

/// Checks the targets of scores of a shape.
pub(crate) fn check_targets(targets: &[Option<usize>], [rows, classes]: [usize; 2]) {
    assert_eq!(targets.len(), rows, "{} targets for {rows} rows of scores", targets.len());
    if let Some(target) = targets.iter().flatten().find(|target| **target >= classes) {
        panic!("target {target} of {classes} classes: they count from 0");
    }
}

/// Same with Burn's operations.
fn composed(scores: Tensor<2>, targets: &[Option<usize>], share: f32) -> Tensor<1> {
    let ([rows, classes], device) = (scores.dims(), scores.device());
    let index: Vec<i64> = targets.iter().map(|target| target.unwrap_or(0) as i64).collect();
    let index = Tensor::<2, Int>::from_data(TensorData::new(index, [rows, 1]), &device);
    // A row without a target is ignored: NaN in it must not reach the sum.
    let ignored: Vec<bool> = targets.iter().map(Option::is_none).collect();
    let ignored = Tensor::<1, Bool>::from_data(&ignored[..], &device).reshape([rows, 1]);
    let scores = scores.mask_fill(ignored.clone().expand([rows, classes]), 0.0);
    let logarithms = log_softmax(scores, 1);
    let of_target = logarithms.clone().gather(1, index);
    let of_row = match share > 0.0 {
        true => of_target * (1.0 - share) + logarithms.mean_dim(1) * share,
        false => of_target,
    };
    of_row.mask_fill(ignored, 0.0).sum().neg()
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait CrossEntropy: Backend {
    fn cross_entropy(scores: FloatTensor<Self>, targets: Vec<Option<usize>>, share: f32)
    -> FloatTensor<Self>;
}

impl CrossEntropy for Flex {
    fn cross_entropy(scores: FlexTensor, targets: Vec<Option<usize>>, share: f32) -> FlexTensor {
        vector(vec![forward(&scores, targets, share).0])
    }
}

impl<C: CheckpointStrategy> CrossEntropy for Autodiff<Flex, C> {
    fn cross_entropy(
        scores: FloatTensor<Self>,
        targets: Vec<Option<usize>>,
        share: f32,
    ) -> FloatTensor<Self> {
        let (scores, node) = scores.into_parts();
        let (sum, saved) = forward(&scores, targets, share);
        let output = vector(vec![sum]);
        match Backward::<Flex, 1>::prepare::<C>(CrossEntropyOp, [node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(saved, output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

/// State for the backward pass.
#[derive(Clone, Debug)]
struct Saved {
    scores: Values,
    targets: Vec<Option<usize>>,
    /// Part of each target that is spread over all classes.
    share: f32,
    /// Largest score of each row, and the sum of exp(score − largest).
    sums: Vec<[f32; 2]>,
}

#[derive(Debug)]
struct CrossEntropyOp;

impl Backward<Flex, 1> for CrossEntropyOp {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = Values::row_major(&gradients.consume::<Flex>(&ops.node));
        let [Some(parent)] = ops.parents else { return };
        let of_scores = backward(&ops.state, gradient[0]);
        gradients.register::<Flex>(parent.id, row_major(of_scores, ops.state.scores.shape()));
    }
}

fn forward(scores: &FlexTensor, targets: Vec<Option<usize>>, share: f32) -> (f32, Saved) {
    let scores = Values::row_major(scores);
    let classes = scores.shape()[1];
    let mut sums = Vec::with_capacity(targets.len());
    let mut row = vec![0.0; classes];
    let mut total = 0.0;
    vectorized(
        #[inline(always)]
        || {
            for (index, target) in targets.iter().enumerate() {
                let Some(target) = *target else {
                    sums.push([0.0; 2]);
                    continue;
                };
                row.copy_from_slice(&scores[index * classes..][..classes]);
                let (entropy, of_row) = entropy_of_row(&mut row, target, share);
                total += entropy;
                sums.push(of_row);
            }
        },
    );
    (total as f32, Saved { scores, targets, share, sums })
}

fn backward(saved: &Saved, gradient: f32) -> Vec<f32> {
    let classes = saved.scores.shape()[1];
    let mut of_scores = saved.scores.to_vec();
    vectorized(
        #[inline(always)]
        || {
            let rows = saved.targets.iter().zip(&saved.sums);
            for (row, (target, [largest, sum])) in of_scores.chunks_exact_mut(classes.max(1)).zip(rows) {
                let Some(target) = *target else {
                    row.fill(0.0);
                    continue;
                };
                exponentials(row, *largest, 1.0);
                gradient_of_row(row, target, *sum, gradient, saved.share);
            }
        },
    );
    of_scores
}

/// Replaces a row's scores by exp(score − largest). Returns its cross entropy, and the largest score with the
/// sum of the row.
#[inline(always)]
pub(crate) fn entropy_of_row(row: &mut [f32], target: usize, share: f32) -> (f64, [f32; 2]) {
    let largest = largest(row);
    let below = f64::from(largest) - f64::from(row[target]);
    let below = match share > 0.0 {
        true => {
            let mean = sum_of(row, row, |score, _| largest - score) / row.len() as f32;
            below * (1.0 - f64::from(share)) + f64::from(mean) * f64::from(share)
        }
        false => below,
    };
    let sum = exponentials(row, largest, 1.0);
    (libm::log(f64::from(sum)) + below, [largest, sum])
}

/// Replaces exp(score − largest), of which the sum is given, by the gradient with respect to a row's scores.
#[inline(always)]
pub(crate) fn gradient_of_row(row: &mut [f32], target: usize, sum: f32, gradient: f32, share: f32) {
    let scale = gradient / sum;
    row.iter_mut().for_each(|value| *value *= scale);
    row[target] -= gradient * (1.0 - share);
    if share > 0.0 {
        let spread = gradient * share / row.len() as f32;
        row.iter_mut().for_each(|value| *value -= spread);
    }
}
