//! Lookup of a table's rows. Burn's keeps the table for the backward pass, which needs only its shape: a
//! table that is computed again would stay in memory.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::ops::{FloatTensorOps, ModuleOps};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, Backend, DType, Dispatch, Flex, TensorMetadata};
use burn::tensor::{Int, Shape, Tensor, module};

use crate::on_flex;

/// Returns the rows of a table, as `burn::nn::Embedding` does.
///
/// # Shapes
///
/// - `table`: `[rows, width]` - `indices`: `[batch, time]` - output: `[batch, time, width]`
pub fn embedding(table: Tensor<2>, indices: Tensor<2, Int>) -> Tensor<3> {
    if !on_flex(&table) {
        return module::embedding(table, indices);
    }
    let (table, indices) = (table.into_dispatch(), indices.into_dispatch());
    Tensor::from_dispatch(<Dispatch as Lookup>::look_up(table, indices))
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait Lookup: Backend {
    fn look_up(table: FloatTensor<Self>, indices: IntTensor<Self>) -> FloatTensor<Self>;
}

impl Lookup for Flex {
    fn look_up(table: FlexTensor, indices: FlexTensor) -> FlexTensor {
        Flex::embedding(table, indices)
    }
}

impl<C: CheckpointStrategy> Lookup for Autodiff<Flex, C> {
    fn look_up(table: FloatTensor<Self>, indices: IntTensor<Self>) -> FloatTensor<Self> {
        let (table, node) = table.into_parts();
        let shape = table.shape();
        let output = Flex::embedding(table, indices.clone());
        match Backward::<Flex, 1>::prepare::<C>(LookupOp, [node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish((shape, indices), output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

#[derive(Debug)]
struct LookupOp;

impl Backward<Flex, 1> for LookupOp {
    /// Shape of the table, and the indices.
    type State = (Shape, FlexTensor);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node);
        let (shape, indices) = ops.state;
        if let Some(table) = &ops.parents[0] {
            let zero = FlexTensor::zeros(Shape::from(vec![1, 1]), DType::F32);
            let like = Flex::float_expand(zero, shape);
            gradients.register::<Flex>(table.id, Flex::embedding_backward(like, gradient, indices));
        }
    }
}
