//! Loss of language models.

use burn::tensor::{Int, Tensor};
use burn_flex_nn::cross_entropy;

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

fn loss(logits: Tensor<3>, targets: Tensor<2, Int>, ignored: Option<i64>) -> Loss {
    let [batch, time, vocabulary] = logits.dims();
    assert_eq!(targets.dims(), [batch, time], "targets for logits of [{batch}, {time}, {vocabulary}]");
    let index = |target: i64| {
        usize::try_from(target)
            .unwrap_or_else(|_| panic!("target {target} is no token of a vocabulary of {vocabulary}"))
    };
    let targets = targets.into_data();
    let targets = targets.iter::<i64>().map(|target| (Some(target) != ignored).then(|| index(target)));
    let targets: Vec<Option<usize>> = targets.collect();
    let count = targets.iter().flatten().count();
    Loss::sum(cross_entropy(logits.reshape([batch * time, vocabulary]), targets), count)
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
