//! The context of a loss, and the usual losses of a classifier.

use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_flex_nn::smoothed_cross_entropy;
use kolo_burn::{DropoutKey, Loss};
use kolo_data::Mixing;
use kolo_ddp::cross_shard::CrossShardPass;

use kolo_train::{Classification, Confusion, Mean, best_class};

/// Place in a training at which a loss is computed.
#[derive(Clone, Copy, Debug)]
pub struct TrainingContext<'a> {
    /// Key of the dropout masks.
    pub dropout: &'a DropoutKey,
    /// Present if normalizations are over the global batch: they go through
    /// [`sync_batch_norm`](kolo_burn::sync_batch_norm).
    pub cross_shard: Option<&'a CrossShardPass>,
    /// Device of the model's parameters.
    pub device: &'a Device,
    /// Share of a label that the loss spreads over all classes
    /// ([`LargeBatch::label_smoothing`](kolo_train::LargeBatch)).
    pub label_smoothing: f64,
    /// Present if the images of the batch are mixed with each other (`--mixup`, `--cutmix`). A loss of your
    /// own mixes their labels alike, as [`TrainingContext::cross_entropy`] does.
    pub mixing: Option<&'a Mixing>,
}

impl TrainingContext<'_> {
    /// Returns the loss of a classifier in training: [`cross_entropy`] with the recipe's label smoothing
    /// (Szegedy et al. 2016, [arXiv:1512.00567](https://arxiv.org/abs/1512.00567), section 7). With a share ε
    /// the correct one of K classes counts 1 − ε + ε / K, and each of the others ε / K. Shapes as in
    /// [`cross_entropy`]. Where images are mixed, it is λ times the loss by their own labels and 1 − λ times
    /// that by their partners', which is the loss by mixed labels.
    ///
    /// ```
    /// use burn::tensor::{Device, Int, Tensor};
    /// use kolo_burn_train::TrainingContext;
    ///
    /// /// The loss of one shard, for `Trainer::new`.
    /// fn loss(scores: Tensor<2>, labels: Tensor<1, Int>, context: &TrainingContext<'_>) -> kolo_burn::Loss {
    ///     context.cross_entropy(scores, labels)
    /// }
    /// # let _ = loss;
    /// ```
    pub fn cross_entropy(&self, scores: Tensor<2>, labels: Tensor<1, Int>) -> Loss {
        let sum = |labels| summed_cross_entropy(scores.clone(), labels, self.label_smoothing);
        let count = labels.dims()[0];
        let Some(mixing) = self.mixing else { return Loss::sum(sum(labels), count) };
        let partners: Vec<i32> = mixing.partners.iter().map(|partner| *partner as i32).collect();
        let partners = TensorData::new(partners, [mixing.partners.len()]);
        let others = labels.clone().select(0, Tensor::from_data(partners, &labels.device()));
        let own = mixing.own_share;
        Loss::sum(sum(labels) * own + sum(others) * (1.0 - own), count)
    }
}

/// Returns the cross entropy of a classifier's scores, before softmax.
///
/// # Shapes
///
/// - `scores`: `[samples, classes]`
/// - `labels`: `[samples]`
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use kolo_burn_train::cross_entropy;
///
/// let device = Device::flex();
/// let scores = Tensor::<2>::from_floats([[1.0, 1.0]], &device); // one sample, two classes as probable
/// let labels = Tensor::<1, Int>::from_ints([0], &device);
/// let loss = cross_entropy(scores, labels).into_mean().into_scalar::<f32>();
/// assert!((loss - 2.0f32.ln()).abs() < 1e-6);
/// ```
pub fn cross_entropy(scores: Tensor<2>, labels: Tensor<1, Int>) -> Loss {
    let count = labels.dims()[0];
    Loss::sum(summed_cross_entropy(scores, labels, 0.0), count)
}

fn summed_cross_entropy(scores: Tensor<2>, labels: Tensor<1, Int>, share: f64) -> Tensor<1> {
    let targets = classes(labels).into_iter().map(|class| Some(class as usize)).collect();
    smoothed_cross_entropy(scores, targets, share as f32)
}

/// Returns the share of samples with their highest score at their label, for
/// [`Metric::ACCURACY`](kolo_train::Metric::ACCURACY). Shapes as in [`cross_entropy`].
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use kolo_burn_train::{Mean, accuracy};
///
/// let device = Device::flex();
/// let scores = Tensor::<2>::from_floats([[2.0, 1.0], [0.0, 3.0], [4.0, 0.0]], &device);
/// let labels = Tensor::<1, Int>::from_ints([0, 1, 1], &device);
/// assert_eq!(accuracy(scores, labels), Mean::share(2, 3));
/// ```
pub fn accuracy(scores: Tensor<2>, labels: Tensor<1, Int>) -> Mean {
    let count = labels.dims()[0];
    Mean::share(count_correct(scores, labels), count)
}

/// Returns the counts of samples by label and predicted class, and the most wrong samples, for
/// [`Trainer::tally`](kolo_train::Trainer::tally). Shapes as in [`cross_entropy`].
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use kolo_burn_train::classification;
///
/// let device = Device::flex();
/// let scores = Tensor::<2>::from_floats([[2.0, 1.0], [0.0, 3.0], [4.0, 0.0]], &device);
/// let labels = Tensor::<1, Int>::from_ints([0, 1, 1], &device);
/// assert_eq!(classification(scores, labels).confusion.count(1, 0), 1);
/// ```
pub fn classification(scores: Tensor<2>, labels: Tensor<1, Int>) -> Classification {
    let scores: Vec<f32> = scores.into_data().iter().collect();
    Classification::of(&scores, &classes(labels))
}

/// Returns the counts of samples by label and by the class with the highest score, for
/// [`Trainer::tally`](kolo_train::Trainer::tally). Shapes as in [`cross_entropy`].
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use kolo_burn_train::{Confusion, confusion};
///
/// let device = Device::flex();
/// let scores = Tensor::<2>::from_floats([[2.0, 1.0], [0.0, 3.0], [4.0, 0.0]], &device);
/// let labels = Tensor::<1, Int>::from_ints([0, 1, 1], &device);
/// assert_eq!(confusion(scores, labels), Confusion::of([0, 1, 1], [0, 1, 0]));
/// ```
pub fn confusion(scores: Tensor<2>, labels: Tensor<1, Int>) -> Confusion {
    Confusion::of(classes(labels), guesses(scores))
}

/// Returns the class with the highest score of each row, or that it has none.
fn guesses(scores: Tensor<2>) -> impl Iterator<Item = u32> {
    let width = scores.dims()[1].max(1);
    let scores: Vec<f32> = scores.into_data().iter().collect();
    let guess = |row: &[f32]| best_class(row).unwrap_or(Confusion::NO_GUESS);
    scores.chunks(width).map(guess).collect::<Vec<_>>().into_iter()
}

fn classes(tensor: Tensor<1, Int>) -> Vec<u32> {
    tensor.into_data().iter::<i64>().map(|class| class as u32).collect()
}

/// Returns the number of samples with their highest score at their label. Shapes as in [`cross_entropy`].
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use kolo_burn_train::count_correct;
///
/// let device = Device::flex();
/// let scores = Tensor::<2>::from_floats([[2.0, 1.0], [0.0, 3.0], [4.0, 0.0]], &device);
/// let labels = Tensor::<1, Int>::from_ints([0, 1, 1], &device);
/// assert_eq!(count_correct(scores, labels), 2);
/// ```
pub fn count_correct(scores: Tensor<2>, labels: Tensor<1, Int>) -> usize {
    guesses(scores).zip(classes(labels)).filter(|(guess, label)| guess == label).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothed_labels_give_pytorchs_loss() {
        let device = Device::flex();
        let values = vec![2.0f32, -1.0, 0.5, 0.1, 0.2, 0.3];
        let scores = Tensor::<2>::from_data(TensorData::new(values, [2, 3]), &device);
        let labels = Tensor::<1, Int>::from_data(TensorData::new(vec![0i32, 2], [2]), &device);
        let dropout = &DropoutKey { seed: 0, epoch: 0, step: 0, shard: 0 };
        let loss = |label_smoothing| {
            let context = TrainingContext {
                dropout,
                cross_shard: None,
                device: &device,
                label_smoothing,
                mixing: None,
            };
            let loss = context.cross_entropy(scores.clone(), labels.clone());
            loss.into_mean().into_scalar::<f32>()
        };
        // torch.nn.functional.cross_entropy(scores, labels, label_smoothing=…)
        for (share, expected) in [(0.0, 0.621_627_1), (0.1, 0.701_627_1), (0.5, 1.021_627_2)] {
            assert!((loss(share) - expected).abs() < 1e-6, "{share}: {} {expected}", loss(share));
        }
        // Without smoothing the loss is the plain one to the bit.
        let plain = cross_entropy(scores.clone(), labels.clone()).into_mean().into_scalar::<f32>();
        assert_eq!(loss(0.0).to_bits(), plain.to_bits());
    }

    #[test]
    fn samples_are_counted_by_label_and_guess() {
        let device = Device::flex();
        let values = vec![2.0f32, -1.0, 0.5, 0.1, 0.2, 0.3, 0.0, 0.2, 0.1];
        let scores = Tensor::<2>::from_data(TensorData::new(values, [3, 3]), &device);
        let labels = Tensor::<1, Int>::from_data(TensorData::new(vec![0i32, 1, 1], [3]), &device);
        let expected = Confusion::of([0, 1, 1], [0, 2, 1]);
        assert_eq!(confusion(scores.clone(), labels.clone()), expected);
        assert_eq!(classification(scores, labels).confusion, expected);
    }

    /// The loss by soft labels, Σ −p log softmax, in plain lines.
    #[test]
    fn mixed_images_have_the_loss_of_mixed_labels() {
        let device = Device::flex();
        let values = [[2.0f32, -1.0, 0.5], [0.1, 0.2, 0.3], [-0.7, 0.4, 1.1]];
        let scores = Tensor::<2>::from_data(TensorData::new(values.concat(), [3, 3]), &device);
        let classes = [0usize, 2, 1];
        let labels = TensorData::new(classes.map(|class| class as i32).to_vec(), [3]);
        let labels = Tensor::<1, Int>::from_data(labels, &device);
        let mixing = Mixing { partners: vec![2, 0, 1], own_share: 0.7, cut: None };
        let dropout = &DropoutKey { seed: 0, epoch: 0, step: 0, shard: 0 };
        for label_smoothing in [0.0, 0.1] {
            let mixing = Some(&mixing);
            let context =
                TrainingContext { dropout, cross_shard: None, device: &device, label_smoothing, mixing };
            let loss = context.cross_entropy(scores.clone(), labels.clone()).into_mean().into_scalar::<f32>();
            let mut expected = 0.0;
            for (image, row) in values.iter().enumerate() {
                let sum: f64 = row.iter().map(|score| f64::from(*score).exp()).sum();
                for (class, score) in row.iter().enumerate() {
                    let is = |image: usize| f64::from(u8::from(classes[image] == class));
                    let hard = 0.7 * is(image) + 0.3 * is([2, 0, 1][image]);
                    let soft = (1.0 - label_smoothing) * hard + label_smoothing / 3.0;
                    expected -= soft * (f64::from(*score) - sum.ln()) / 3.0;
                }
            }
            assert!((f64::from(loss) - expected).abs() < 1e-6, "{loss} {expected}");
        }
    }
}
