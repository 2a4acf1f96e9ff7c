//! Average over all positions of an image.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
use burn::tensor::{Shape, Tensor};

use super::kernel;
use crate::memory::{self, Values, dims, row_major};
use crate::on_flex;

/// Returns the mean of each channel of each image.
///
/// # Shapes
///
/// - `x`: `[samples, channels, height, width]` - output: `[samples, channels]`
pub fn global_average_pool(x: Tensor<4>) -> Tensor<2> {
    if on_flex(&x) && !x.dims().contains(&0) {
        return Tensor::from_dispatch(<Dispatch as Averages>::average(x.into_dispatch()));
    }
    let [samples, channels, height, width] = x.dims();
    x.reshape([samples, channels, height * width]).mean_dim(2).reshape([samples, channels])
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait Averages: Backend {
    fn average(x: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl Averages for Flex {
    fn average(x: FlexTensor) -> FlexTensor {
        let [samples, channels, ..] = dims(&x);
        let values = kernel::averages(&Values::of_activations(&x), samples * channels);
        row_major(values, Shape::new([samples, channels]))
    }
}

impl<C: CheckpointStrategy> Averages for Autodiff<Flex, C> {
    fn average(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        let (shape, output) = (dims(&x), Flex::average(x));
        match Backward::<Flex, 1>::prepare::<C>(Average, [node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(shape, output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

#[derive(Debug)]
struct Average;

impl Backward<Flex, 1> for Average {
    /// Shape of the images.
    type State = [usize; 4];

    fn backward(self, ops: Ops<[usize; 4], 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = Values::row_major(&gradients.consume::<Flex>(&ops.node));
        let [Some(node)] = ops.parents else { return };
        let [_, _, height, width] = ops.state;
        let positions = height * width;
        let of_position: Vec<f32> = gradient.iter().map(|gradient| gradient / positions as f32).collect();
        gradients.register::<Flex>(node.id, memory::activations(of_position.repeat(positions), ops.state));
    }
}
