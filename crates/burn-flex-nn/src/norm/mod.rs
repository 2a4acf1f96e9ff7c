//! Batch normalization (Ioffe and Szegedy, [arXiv:1502.03167](https://arxiv.org/abs/1502.03167)), in one pass
//! with the operations that usually follow.
//!
//! Let x̂ = (x − mean) / σ over the n elements of a channel, and g the gradient of the loss with respect to
//! the normalized values. The gradient with respect to x is γ/σ · (g − Σg/n − x̂ · Σ(g·x̂)/n).

mod kernel;
mod rows;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
use burn::nn::BatchNorm;
use burn::tensor::activation::relu;
use burn::tensor::{Tensor, TensorData};

use self::kernel::{Affine, Epilogue, Moments};
use crate::memory::{self, Values, dims};
use crate::on_flex;

/// Computes `layer.forward(x)`.
///
/// In training it normalizes by the batch and updates the running statistics; otherwise it normalizes by the
/// running statistics. On other backends, and for types other than `f32`, it calls `layer.forward(x)`.
///
/// # Shapes
///
/// - `x`, output: `[samples, channels, height, width]`
///
/// # Panics
///
/// Panics if `x` has another number of channels than the layer.
pub fn batch_norm(layer: &BatchNorm, x: Tensor<4>) -> Tensor<4> {
    if !here(layer, &x) {
        return layer.forward(x);
    }
    normalize(layer, x, None, Epilogue::Nothing)
}

/// Computes `relu(layer.forward(x))`; shapes and panics as in [`batch_norm`].
pub fn batch_norm_relu(layer: &BatchNorm, x: Tensor<4>) -> Tensor<4> {
    if !here(layer, &x) {
        return relu(layer.forward(x));
    }
    normalize(layer, x, None, Epilogue::Relu)
}

/// Computes `relu(layer.forward(x) + shortcut)`, the end of a residual block. Panics as [`batch_norm`] does,
/// and if the shapes of `x` and `shortcut` differ.
pub fn batch_norm_add_relu(layer: &BatchNorm, x: Tensor<4>, shortcut: Tensor<4>) -> Tensor<4> {
    if !here(layer, &x) || !here(layer, &shortcut) {
        return relu(layer.forward(x) + shortcut);
    }
    assert_eq!(x.dims(), shortcut.dims(), "a shortcut of the same shape");
    normalize(layer, x, Some(shortcut), Epilogue::AddRelu)
}

fn here(layer: &BatchNorm, x: &Tensor<4>) -> bool {
    on_flex(x) && x.dims()[1] == layer.gamma.dims()[0] && !x.dims().contains(&0)
}

fn normalize(layer: &BatchNorm, x: Tensor<4>, shortcut: Option<Tensor<4>>, epilogue: Epilogue) -> Tensor<4> {
    let device = x.device();
    let training = device.is_autodiff() && layer.training.is_enabled();
    let [mean, variance] = [&layer.running_mean, &layer.running_var]
        .map(|running| if training { running.value_sync() } else { running.value() });
    let values = |tensor: &Tensor<1>| tensor.to_data().iter::<f32>().map(f64::from).collect::<Vec<f64>>();
    let moments = if training {
        let moments = <Dispatch as Normalization>::moments(x.clone().into_dispatch());
        for (running, old, new) in
            [(&layer.running_mean, &mean, &moments.mean), (&layer.running_var, &variance, &moments.variance)]
        {
            let [keep, learn] = [1.0 - layer.momentum, layer.momentum].map(|share| share as f32);
            let old = values(old);
            let pairs = old.iter().zip(new);
            let learned: Vec<f32> =
                pairs.map(|(old, new)| *old as f32 * keep + *new as f32 * learn).collect();
            let learned = TensorData::new(learned, [old.len()]);
            running.update(Tensor::from_data(learned, &device));
        }
        moments
    } else {
        Moments { mean: values(&mean), variance: values(&variance) }
    };
    let kind = Kind { epsilon: layer.epsilon, by_batch: training, epilogue };
    let [gamma, beta] = [layer.gamma.val(), layer.beta.val()].map(Tensor::into_dispatch);
    let x = x.into_dispatch();
    Tensor::from_dispatch(match shortcut {
        Some(shortcut) => <Dispatch as Normalization>::normalize_and_add(
            x,
            shortcut.into_dispatch(),
            gamma,
            beta,
            moments,
            kind,
        ),
        None => <Dispatch as Normalization>::normalize(x, gamma, beta, moments, kind),
    })
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    epsilon: f64,
    /// True if mean and variance are those of `x`, so that gradients flow through them as well.
    by_batch: bool,
    epilogue: Epilogue,
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait Normalization: Backend {
    fn moments(x: FloatTensor<Self>) -> Moments;

    fn normalize(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        moments: Moments,
        kind: Kind,
    ) -> FloatTensor<Self>;

    fn normalize_and_add(
        x: FloatTensor<Self>,
        shortcut: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        moments: Moments,
        kind: Kind,
    ) -> FloatTensor<Self>;
}

impl Normalization for Flex {
    fn moments(x: FlexTensor) -> Moments {
        kernel::moments(&Values::of_activations(&x), dims(&x)[1])
    }

    fn normalize(
        x: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        moments: Moments,
        kind: Kind,
    ) -> FlexTensor {
        Normalized::new(&x, None, &gamma, &beta, &moments, kind).output
    }

    fn normalize_and_add(
        x: FlexTensor,
        shortcut: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        moments: Moments,
        kind: Kind,
    ) -> FlexTensor {
        Normalized::new(&x, Some(&shortcut), &gamma, &beta, &moments, kind).output
    }
}

impl<C: CheckpointStrategy> Normalization for Autodiff<Flex, C> {
    fn moments(x: FloatTensor<Self>) -> Moments {
        <Flex as Normalization>::moments(x.into_parts().0)
    }

    fn normalize(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        moments: Moments,
        kind: Kind,
    ) -> FloatTensor<Self> {
        let [(x, x_node), (gamma, gamma_node), (beta, beta_node)] =
            [x, gamma, beta].map(FloatTensor::<Self>::into_parts);
        let Normalized { saved, output } = Normalized::new(&x, None, &gamma, &beta, &moments, kind);
        let nodes = [x_node, gamma_node, beta_node];
        match Backward::<Flex, 3>::prepare::<C>(Normalize, nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(saved, output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }

    fn normalize_and_add(
        x: FloatTensor<Self>,
        shortcut: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        moments: Moments,
        kind: Kind,
    ) -> FloatTensor<Self> {
        let [(x, x_node), (gamma, gamma_node), (beta, beta_node), (shortcut, shortcut_node)] =
            [x, gamma, beta, shortcut].map(FloatTensor::<Self>::into_parts);
        let Normalized { saved, output } =
            Normalized::new(&x, Some(&shortcut), &gamma, &beta, &moments, kind);
        let nodes = [x_node, gamma_node, beta_node, shortcut_node];
        match Backward::<Flex, 4>::prepare::<C>(Normalize, nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(saved, output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

struct Normalized {
    saved: Saved,
    output: FlexTensor,
}

impl Normalized {
    fn new(
        x: &FlexTensor,
        shortcut: Option<&FlexTensor>,
        gamma: &FlexTensor,
        beta: &FlexTensor,
        moments: &Moments,
        kind: Kind,
    ) -> Self {
        let shape = dims(x);
        let (x, gamma, beta) = (Values::of_activations(x), Values::row_major(gamma), Values::row_major(beta));
        let inverse: Vec<f64> =
            moments.variance.iter().map(|variance| 1.0 / (variance + kind.epsilon).sqrt()).collect();
        let affine = Affine {
            mean: moments.mean.iter().map(|mean| *mean as f32).collect(),
            scale: inverse
                .iter()
                .zip(&*gamma)
                .map(|(inverse, gamma)| (inverse * f64::from(*gamma)) as f32)
                .collect(),
            shift: beta.to_vec(),
        };
        let shortcut = shortcut.map(Values::of_activations);
        let values = affine.apply(&x, shortcut.as_deref().unwrap_or_default(), kind.epilogue);
        let output = memory::activations(values, shape);
        let saved = Saved { x, output: Values::of_activations(&output), affine, inverse, shape, kind };
        Normalized { saved, output }
    }
}

#[derive(Clone, Debug)]
struct Saved {
    x: Values,
    output: Values,
    affine: Affine,
    /// 1/σ.
    inverse: Vec<f64>,
    shape: [usize; 4],
    kind: Kind,
}

struct InputGradients {
    x: Vec<f32>,
    gamma: Vec<f32>,
    beta: Vec<f32>,
}

impl Saved {
    /// Returns the gradients; `gradient` is with respect to the normalized values.
    fn gradients(&self, gradient: &[f32]) -> InputGradients {
        let [sums, products] = kernel::gradient_sums(gradient, &self.x, &self.affine.mean);
        let count = (self.x.len() / sums.len()) as f64;
        let products: Vec<f64> =
            products.iter().zip(&self.inverse).map(|(sum, inverse)| sum * inverse).collect();
        let x = if self.kind.by_batch {
            let first: Vec<f32> = sums.iter().map(|sum| (sum / count) as f32).collect();
            let second = products.iter().zip(&self.inverse);
            let second: Vec<f32> = second.map(|(sum, inverse)| (sum * inverse / count) as f32).collect();
            self.affine.gradient(gradient, &self.x, &first, &second)
        } else {
            self.affine.gradient_by_scale(gradient)
        };
        let rounded = |sums: &[f64]| sums.iter().map(|sum| *sum as f32).collect();
        InputGradients { x, gamma: rounded(&products), beta: rounded(&sums) }
    }
}

#[derive(Debug)]
struct Normalize;

impl Backward<Flex, 3> for Normalize {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let saved = ops.state;
        let gradient = Values::of_activations(&gradients.consume::<Flex>(&ops.node));
        let through = (saved.kind.epilogue == Epilogue::Relu)
            .then(|| kernel::through_relu(&gradient, &saved.output, saved.shape[1]));
        let InputGradients { x, gamma, beta } = saved.gradients(through.as_deref().unwrap_or(&gradient));
        let values = [memory::activations(x, saved.shape), memory::vector(gamma), memory::vector(beta)];
        for (node, gradient) in ops.parents.into_iter().zip(values) {
            node.into_iter().for_each(|node| gradients.register::<Flex>(node.id, gradient.clone()));
        }
    }
}

impl Backward<Flex, 4> for Normalize {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 4>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let saved = ops.state;
        let gradient = Values::of_activations(&gradients.consume::<Flex>(&ops.node));
        let through = kernel::through_relu(&gradient, &saved.output, saved.shape[1]);
        let InputGradients { x, gamma, beta } = saved.gradients(&through);
        let shortcut = memory::activations(through, saved.shape);
        let values =
            [memory::activations(x, saved.shape), memory::vector(gamma), memory::vector(beta), shortcut];
        for (node, gradient) in ops.parents.into_iter().zip(values) {
            node.into_iter().for_each(|node| gradients.register::<Flex>(node.id, gradient.clone()));
        }
    }
}
