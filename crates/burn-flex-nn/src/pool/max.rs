//! Two-dimensional max pooling.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
use burn::nn::pool::MaxPool2d;
use burn::tensor::Tensor;

use super::kernel;
use crate::conv::{Axis, Window, padded_axes};
use crate::memory::{self, Values, dims};
use crate::on_flex;

/// Computes `layer.forward(x)`, taking the first of equal values. It calls `layer.forward(x)` for other
/// backends, for types other than `f32`, for windows of more than 256 positions, and for output sizes that
/// are rounded up.
///
/// # Shapes
///
/// - `x`: `[samples, channels, height, width]`
/// - output: `[samples, channels, output height, output width]`
pub fn max_pool2d(layer: &MaxPool2d, x: Tensor<4>) -> Tensor<4> {
    let [_, _, height, width] = x.dims();
    let window = Window {
        kernel: layer.kernel_size,
        stride: layer.stride,
        dilation: layer.dilation,
        padding: &layer.padding,
    };
    let taps = layer.kernel_size[0] * layer.kernel_size[1];
    let here = on_flex(&x) && !layer.ceil_mode && (1..=256).contains(&taps);
    match padded_axes(&window, [height, width]).filter(|_| here) {
        Some([rows, columns]) => {
            Tensor::from_dispatch(<Dispatch as Pooling>::max_pool(x.into_dispatch(), rows, columns))
        }
        None => layer.forward(x),
    }
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait Pooling: Backend {
    fn max_pool(x: FloatTensor<Self>, rows: Axis, columns: Axis) -> FloatTensor<Self>;
}

impl Pooling for Flex {
    fn max_pool(x: FlexTensor, rows: Axis, columns: Axis) -> FlexTensor {
        Pooled::new(&x, rows, columns).output
    }
}

impl<C: CheckpointStrategy> Pooling for Autodiff<Flex, C> {
    fn max_pool(x: FloatTensor<Self>, rows: Axis, columns: Axis) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        let Pooled { saved, output } = Pooled::new(&x, rows, columns);
        match Backward::<Flex, 1>::prepare::<C>(MaxPool, [node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(saved, output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

struct Pooled {
    saved: Saved,
    output: FlexTensor,
}

impl Pooled {
    fn new(x: &FlexTensor, rows: Axis, columns: Axis) -> Self {
        let [samples, channels, ..] = dims(x);
        let maxima = kernel::forward(rows, columns, samples * channels, &Values::of_activations(x));
        let output = memory::activations(maxima.values, [samples, channels, rows.output, columns.output]);
        Pooled { saved: Saved { taps: maxima.taps, rows, columns, samples, channels }, output }
    }
}

#[derive(Clone, Debug)]
struct Saved {
    taps: Vec<u8>,
    rows: Axis,
    columns: Axis,
    samples: usize,
    channels: usize,
}

#[derive(Debug)]
struct MaxPool;

impl Backward<Flex, 1> for MaxPool {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Saved { taps, rows, columns, samples, channels } = ops.state;
        let gradient = Values::of_activations(&gradients.consume::<Flex>(&ops.node));
        let [Some(node)] = ops.parents else { return };
        let values = kernel::backward(rows, columns, samples * channels, &gradient, &taps);
        let of_input = memory::activations(values, [samples, channels, rows.input, columns.input]);
        gradients.register::<Flex>(node.id, of_input);
    }
}
