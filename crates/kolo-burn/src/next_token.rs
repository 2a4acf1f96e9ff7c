//! Loss of language models.

use burn::tensor::{Int, Tensor};
use burn_flex_nn::{cross_entropy, linear_cross_entropy};

use crate::Loss;

/// Returns the cross entropy of the next token, in nats, as a sum over all tokens; the loss's count is the
/// number of tokens.
///
/// `targets[b][t]` is the token after position `t`: the input shifted by one. Large logits do not overflow.
///
/// # Shapes
///
/// - `logits`: `[batch, time, vocabulary]`, before softmax - `targets`: `[batch, time]`
///
/// # Panics
///
/// Panics if the shapes do not match, or if a target is not in `0 .. vocabulary`.
pub fn next_token_loss(logits: Tensor<3>, targets: Tensor<2, Int>) -> Loss {
    loss(logits, targets, None)
}

/// Same as [`next_token_loss`], without the positions whose target is `ignored`, such as padding: they have
/// no gradient and are not counted. `ignored` need not be in the vocabulary; -100 is common.
///
/// # Shapes
///
/// See [`next_token_loss`].
///
/// # Panics
///
/// Panics if the shapes do not match, or if another target is not in `0 .. vocabulary`.
pub fn next_token_loss_ignoring(logits: Tensor<3>, targets: Tensor<2, Int>, ignored: i64) -> Loss {
    loss(logits, targets, Some(ignored))
}

/// Same as [`next_token_loss`] of the logits `matmul(x, head)`, without their whole matrix in memory on
/// `flex` (see [`linear_cross_entropy`]). `head` may be a transposed embedding.
///
/// # Shapes
///
/// - `x`: `[batch, time, width]` - `head`: `[width, vocabulary]` - `targets`: `[batch, time]`
///
/// # Panics
///
/// Panics if the shapes do not match, or if a target is not in `0 .. vocabulary`.
pub fn linear_next_token_loss(x: Tensor<3>, head: Tensor<2>, targets: Tensor<2, Int>) -> Loss {
    linear_loss(x, head, targets, None)
}

/// Same as [`linear_next_token_loss`], without the positions whose target is `ignored`: see
/// [`next_token_loss_ignoring`].
///
/// # Shapes
///
/// See [`linear_next_token_loss`].
///
/// # Panics
///
/// Panics if the shapes do not match, or if another target is not in `0 .. vocabulary`.
pub fn linear_next_token_loss_ignoring(
    x: Tensor<3>,
    head: Tensor<2>,
    targets: Tensor<2, Int>,
    ignored: i64,
) -> Loss {
    linear_loss(x, head, targets, Some(ignored))
}

fn loss(logits: Tensor<3>, targets: Tensor<2, Int>, ignored: Option<i64>) -> Loss {
    let [batch, time, vocabulary] = logits.dims();
    let (targets, count) = checked(targets, [batch, time, vocabulary], ignored);
    Loss::sum(cross_entropy(logits.reshape([batch * time, vocabulary]), targets), count)
}

fn linear_loss(x: Tensor<3>, head: Tensor<2>, targets: Tensor<2, Int>, ignored: Option<i64>) -> Loss {
    let ([batch, time, width], [_, vocabulary]) = (x.dims(), head.dims());
    let (targets, count) = checked(targets, [batch, time, vocabulary], ignored);
    Loss::sum(linear_cross_entropy(x.reshape([batch * time, width]), head, targets), count)
}

/// Returns the targets that are not ignored, and their number.
fn checked(
    targets: Tensor<2, Int>,
    [batch, time, vocabulary]: [usize; 3],
    ignored: Option<i64>,
) -> (Vec<Option<usize>>, usize) {
    assert_eq!(targets.dims(), [batch, time], "targets for logits of [{batch}, {time}, {vocabulary}]");
    let index = |target: i64| {
        usize::try_from(target)
            .unwrap_or_else(|_| panic!("target {target} is no token of a vocabulary of {vocabulary}"))
    };
    let targets = targets.into_data();
    let targets = targets.iter::<i64>().map(|target| (Some(target) != ignored).then(|| index(target)));
    let targets: Vec<Option<usize>> = targets.collect();
    let count = targets.iter().flatten().count();
    (targets, count)
}

#[cfg(test)]
mod tests {
    use burn::nn::loss::CrossEntropyLossConfig;
    use burn::tensor::{Device, TensorData};

    use super::*;

    const SHAPE: [usize; 3] = [3, 5, 7];

    fn logits(scale: f32) -> Tensor<3> {
        let values: Vec<f32> = (0..105).map(|index| crate::tests::noise(1, index) * scale).collect();
        Tensor::from_data(TensorData::new(values, SHAPE), &Device::flex().autodiff()).require_grad()
    }

    /// Returns targets of which every fourth is `other`.
    fn targets(other: Option<i64>) -> Tensor<2, Int> {
        let target = |index: i64| other.filter(|_| index % 4 == 1).unwrap_or(index * 3 % 7);
        let targets: Vec<i64> = (0..15).map(target).collect();
        Tensor::from_data(TensorData::new(targets, [3, 5]), &Device::flex().autodiff())
    }

    #[test]
    fn losses_and_gradients_are_burns() {
        // Burn can ignore only a token of the vocabulary, such as 2.
        for (ignored, scale) in [(None, 1.0), (None, 50.0), (Some(2), 3.0)] {
            let [ours, burns] = [logits(scale), logits(scale)];
            let loss = match ignored {
                Some(ignored) => next_token_loss_ignoring(ours.clone(), targets(Some(2)), ignored),
                None => next_token_loss(ours.clone(), targets(None)),
            };
            let flat = targets(ignored).reshape([15]);
            let expected = CrossEntropyLossConfig::new()
                .with_pad_tokens(ignored.map(|token| vec![token as usize]))
                .init(&burns.device())
                .forward(burns.clone().reshape([15, 7]), flat.clone());
            let counted = flat.into_data().iter::<i64>().filter(|target| Some(*target) != ignored).count();
            assert_eq!(loss.count, counted as f64);
            let mean = loss.sum / counted as f32;
            let [ours_value, burns_value] = [&mean, &expected].map(|loss| loss.clone().into_scalar::<f32>());
            assert!(
                (ours_value - burns_value).abs() < 1e-5 * burns_value,
                "{ours_value}, Burn's {burns_value}"
            );
            let of = |logits: &Tensor<3>, loss: Tensor<1>| {
                logits.grad(&loss.backward()).unwrap().into_data().iter().collect::<Vec<f32>>()
            };
            for (ours, burns) in of(&ours, mean).iter().zip(of(&burns, expected)) {
                assert!((ours - burns).abs() < 1e-6, "{ours}, Burn's {burns}");
            }
        }
    }

    /// Also with more positions than a block of scores has, and with a transposed embedding.
    #[test]
    fn a_head_within_the_loss_is_the_loss_of_its_logits() {
        let device = Device::flex().autodiff();
        let noise = |seed, shape: [usize; 2]| {
            let values = (0..shape[0] * shape[1]).map(|index| crate::tests::noise(seed, index));
            let data = TensorData::new(values.collect::<Vec<f32>>(), shape);
            Tensor::<2>::from_data(data, &device).require_grad()
        };
        for (batch, time, is_transposed) in [(3, 5, false), (3, 5, true), (4, 300, true)] {
            let (width, vocabulary) = (6, 7);
            let ignored = 2;
            let targets: Vec<i64> = (0..(batch * time) as i64).map(|index| index * 3 % 7).collect();
            let targets = Tensor::<1, Int>::from_data(&targets[..], &device).reshape([batch, time]);
            let weights = if is_transposed { [vocabulary, width] } else { [width, vocabulary] };
            let run = |together: bool| {
                let (x, weight) = (noise(1, [batch * time, width]), noise(2, weights));
                let head = if is_transposed { weight.clone().transpose() } else { weight.clone() };
                let hidden = x.clone().reshape([batch, time, width]);
                let loss = match together {
                    true => linear_next_token_loss_ignoring(hidden, head, targets.clone(), ignored),
                    false => {
                        let logits = hidden.matmul(head.unsqueeze());
                        next_token_loss_ignoring(logits, targets.clone(), ignored)
                    }
                };
                let value = loss.sum.clone().into_scalar::<f32>();
                let gradients = (loss.sum * 3.0).backward();
                let of = |leaf: &Tensor<2>| {
                    leaf.grad(&gradients).unwrap().into_data().iter::<f32>().collect::<Vec<f32>>()
                };
                (loss.count, value, [of(&x), of(&weight)].concat())
            };
            let (together, apart) = (run(true), run(false));
            assert_eq!(together.0, apart.0);
            assert!((together.1 - apart.1).abs() < 1e-5 * apart.1, "{}, {}", together.1, apart.1);
            for (index, (a, b)) in together.2.iter().zip(&apart.2).enumerate() {
                assert!(
                    (a - b).abs() < 1e-4 * (1.0 + b.abs()),
                    "{batch} x {time}, element {index}: {a}, {b}"
                );
            }
        }
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let logits = logits(1e6);
        let loss = next_token_loss(logits.clone(), targets(None)).sum;
        assert!(loss.clone().into_scalar::<f32>() > 1e6 && loss.clone().into_scalar::<f32>().is_finite());
        let gradient = logits.grad(&loss.backward()).unwrap().into_data();
        assert!(gradient.iter::<f32>().all(f32::is_finite));
    }

    #[test]
    fn nothing_but_padding_is_no_loss_of_no_tokens() {
        let logits = logits(1.0);
        let targets = Tensor::full([3, 5], -100, &logits.device());
        let loss = next_token_loss_ignoring(logits.clone(), targets, -100);
        assert_eq!(loss.count, 0.0);
        assert_eq!(loss.sum.clone().into_scalar::<f32>(), 0.0);
        let gradient = logits.grad(&loss.sum.backward()).unwrap().into_data();
        assert!(gradient.iter::<f32>().all(|gradient| gradient == 0.0));
    }

    #[test]
    #[should_panic(expected = "target 7 of 7 classes")]
    fn a_target_outside_the_vocabulary_is_told() {
        next_token_loss(logits(1.0), targets(Some(7)));
    }

    #[test]
    #[should_panic(expected = "target -100 is no token of a vocabulary of 7")]
    fn a_negative_target_that_is_not_ignored_is_told() {
        next_token_loss(logits(1.0), targets(Some(-100)));
    }
}
