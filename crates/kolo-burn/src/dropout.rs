//! Dropout with masks that depend on no worker.
//!
//! Burn's dropout draws from one generator per process, so masks change with the number of workers and of
//! shards per worker. Here a mask is a pure function of the [`DropoutKey`], the layer and the element's
//! index. Every forward pass takes a key, so there is no state that could get out of step.

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use burn_flex_nn::DropoutMask;

use kolo_ddp::key::Key;

/// Position of a forward pass in the training. A sample is keyed by its index in the shard's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropoutKey {
    /// Seed of the job.
    pub seed: u64,
    /// Epoch, from 0.
    pub epoch: usize,
    /// Step of the epoch, from 0.
    pub step: usize,
    /// Shard of the step, from 0.
    pub shard: usize,
}

impl DropoutKey {
    fn root(&self) -> Key {
        let key = Key::new(self.seed).with_str("dropout").with(self.epoch as u64);
        key.with(self.step as u64).with(self.shard as u64)
    }
}

/// Dropout layer. It sets elements to zero with a probability p and divides the others by 1 − p, which keeps
/// the expectation (Srivastava et al. 2014, [JMLR 15](https://jmlr.org/papers/v15/srivastava14a.html),
/// section 10, "inverted").
#[derive(Module, Debug)]
pub struct Dropout {
    probability: f64,
}

impl Dropout {
    /// Creates a layer that drops an element with `probability`.
    ///
    /// # Panics
    ///
    /// Panics if `probability` is not at least 0 and below 1.
    pub fn new(probability: f64) -> Self {
        assert!(
            (0.0..1.0).contains(&probability),
            "a probability to drop of {probability}: 0 or more, below 1"
        );
        Dropout { probability }
    }

    /// Runs the forward pass of training; evaluation skips the layer. `layer` must be unique among the
    /// dropouts of a model.
    ///
    /// # Shapes
    ///
    /// - `x`, output: `[samples, …]`
    pub fn forward<const D: usize>(&self, x: Tensor<D>, layer: &str, key: &DropoutKey) -> Tensor<D> {
        let shape = x.dims();
        let elements = shape[1..].iter().product();
        let Some(mask) = self.mask([shape[0], 1, elements], |_| elements, layer, key) else { return x };
        let factors = Tensor::from_data(TensorData::new(mask.factors(), shape), &x.device());
        x * factors
    }

    /// Drops elements of the output of the layer of this name, if there is a key.
    pub(crate) fn of_output(&self, x: Tensor<3>, name: &str, key: Option<&DropoutKey>) -> Tensor<3> {
        match key {
            Some(key) => self.forward(x, &output(name), key),
            None => x,
        }
    }

    /// Returns the mask of the output of the layer of this name, if there is a key: `[samples, rows,
    /// columns]`.
    pub(crate) fn output_mask(
        &self,
        shape: [usize; 3],
        name: &str,
        key: Option<&DropoutKey>,
    ) -> Option<DropoutMask> {
        self.mask(shape, |_| shape[2], &output(name), key?)
    }

    /// Returns the mask of `[samples, rows, columns]`, or `None` if nothing is dropped. In each row of a
    /// sample, only the first `seen(row)` columns are drawn. The others are dropped, which is cheaper.
    pub(crate) fn mask(
        &self,
        [samples, rows, columns]: [usize; 3],
        seen: impl Fn(usize) -> usize,
        layer: &str,
        key: &DropoutKey,
    ) -> Option<DropoutMask> {
        let Dropout { probability } = *self;
        let layer = key.root().with_str(layer);
        let row = |index: usize| {
            let (sample, row) = (layer.with((index / rows) as u64), index % rows);
            let is_kept =
                move |column| !sample.with((row * columns + column) as u64).below_probability(probability);
            (seen(row), is_kept)
        };
        let kept = (1.0 / (1.0 - probability)) as f32;
        (probability > 0.0).then(|| DropoutMask::draw(samples * rows, columns, kept, row))
    }
}

/// Returns the name of the dropout of a layer's output.
fn output(layer: &str) -> String {
    format!("{layer}.output")
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    const KEY: DropoutKey = DropoutKey { seed: 1, epoch: 2, step: 3, shard: 4 };

    fn factors(
        probability: f64,
        shape: [usize; 3],
        seen: impl Fn(usize) -> usize,
        layer: &str,
        key: &DropoutKey,
    ) -> Vec<f32> {
        Dropout::new(probability).mask(shape, seen, layer, key).expect("something is dropped").factors()
    }

    #[test]
    fn a_mask_depends_on_its_place_and_on_nothing_else() {
        let mask = factors(0.5, [4, 1, 100], |_| 100, "fc", &KEY);
        // A sample's mask does not depend on the number of samples.
        assert_eq!(mask[..200], factors(0.5, [2, 1, 100], |_| 100, "fc", &KEY));
        assert_ne!(mask[..100], mask[100..200]);
        assert_ne!(mask, factors(0.5, [4, 1, 100], |_| 100, "other", &KEY));
        for key in [
            DropoutKey { seed: 2, ..KEY },
            DropoutKey { epoch: 0, ..KEY },
            DropoutKey { step: 0, ..KEY },
            DropoutKey { shard: 0, ..KEY },
        ] {
            assert_ne!(mask, factors(0.5, [4, 1, 100], |_| 100, "fc", &key), "{key:?}");
        }
    }

    #[test]
    fn an_element_is_dropped_if_its_key_is_below_the_probability() {
        let mask = factors(0.3, [3, 4, 21], |row| 6 * row, "fc", &KEY);
        for (index, factor) in mask.iter().enumerate() {
            let ((sample, element), (row, column)) = ((index / 84, index % 84), (index / 21 % 4, index % 21));
            let key = KEY.root().with_str("fc").with(sample as u64).with(element as u64);
            let is_kept = column < 6 * row && key.unit() >= 0.3;
            assert_eq!(
                *factor,
                if is_kept { (1.0 / 0.7) as f32 } else { 0.0 },
                "{row}, {column} of {sample}"
            );
        }
    }

    #[test]
    fn what_is_not_seen_changes_nothing_else() {
        let whole = factors(0.5, [2, 9, 9], |_| 9, "fc", &KEY);
        assert_eq!(whole, factors(0.5, [2, 1, 81], |_| 81, "fc", &KEY));
        let seen = factors(0.5, [2, 9, 9], |row| row + 1, "fc", &KEY);
        for (index, (seen, whole)) in seen.iter().zip(&whole).enumerate() {
            let visible = index % 9 <= index / 9 % 9;
            assert_eq!(*seen, if visible { *whole } else { 0.0 }, "element {index}");
        }
    }

    #[test]
    fn the_right_share_is_dropped_and_the_expectation_stays() {
        for probability in [0.1, 0.5, 0.9] {
            let mask = factors(probability, [100, 1, 1000], |_| 1000, "fc", &KEY);
            let dropped = mask.iter().filter(|value| **value == 0.0).count() as f64 / mask.len() as f64;
            assert!((dropped - probability).abs() < 0.01, "{dropped} of {probability}");
            let mean = mask.iter().map(|value| f64::from(*value)).sum::<f64>() / mask.len() as f64;
            assert!((mean - 1.0).abs() < 0.05, "{mean} with {probability}");
        }
    }

    #[test]
    fn what_is_dropped_has_no_gradient_and_the_rest_the_scaled_one() {
        let device = Device::flex().autodiff();
        let x = Tensor::<2>::ones([3, 50], &device).require_grad();
        let dropout = Dropout::new(0.25);
        let out = dropout.forward(x.clone(), "fc", &KEY);
        let gradients = out.clone().powi_scalar(2).sum().backward();
        let gradient: Vec<f32> = x.grad(&gradients).unwrap().into_data().iter().collect();
        let mask = factors(0.25, [3, 1, 50], |_| 50, "fc", &KEY);
        assert_eq!(out.into_data().iter::<f32>().collect::<Vec<_>>(), mask);
        let expected: Vec<f32> = mask.iter().map(|value| 2.0 * value * value).collect();
        assert!(gradient.contains(&0.0) && gradient.iter().any(|g| *g > 0.0));
        assert_eq!(gradient, expected);
    }

    #[test]
    fn nothing_dropped_is_nothing_done() {
        let x = Tensor::<1>::from_floats([1.5, -2.0], &Device::flex());
        let out = Dropout::new(0.0).forward(x, "fc", &KEY);
        assert_eq!(out.into_data().iter::<f32>().collect::<Vec<_>>(), [1.5, -2.0]);
    }
}
