//! Tensor that is used twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata};
use burn::tensor::Tensor;

use crate::memory::add_activations;
use crate::on_flex;

/// Returns `[x.clone(), x]`, for the two branches of a residual block, with a cheaper backward pass.
///
/// It adds the two gradients in the memory order of this crate's layers. Burn would traverse them in another
/// order, and copy the sum.
///
/// # Shapes
///
/// - `x`, outputs: `[samples, channels, height, width]`
pub fn fork(x: Tensor<4>) -> [Tensor<4>; 2] {
    let Some(branch) = Branch::of(&x) else { return [x.clone(), x] };
    [x.clone(), x].map(|x| branch.follow(x))
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait Fork: Backend {
    /// Returns the tensor itself, as an operation of the graph.
    fn branch(x: FloatTensor<Self>, _branch: Branch) -> FloatTensor<Self> {
        x
    }
}

impl Fork for Flex {}

impl<C: CheckpointStrategy> Fork for Autodiff<Flex, C> {
    fn branch(x: FloatTensor<Self>, branch: Branch) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        match Backward::<Flex, 1>::prepare::<C>(Identity, [node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(branch, x),
            OpsKind::UnTracked(prepared) => prepared.finish(x),
        }
    }
}

/// Either of the two branches of a tensor.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    /// True once the first branch has registered its gradient with the parent.
    registered: Arc<AtomicBool>,
}

impl Branch {
    /// Returns the branches of a tensor, if their gradients can be added here.
    pub(crate) fn of<const D: usize>(x: &Tensor<D>) -> Option<Self> {
        // The gradient of a leaf belongs to the user, so nothing may be taken out of it.
        let is_ours = on_flex(x) && x.device().is_autodiff() && !x.is_require_grad();
        is_ours.then(|| Branch { registered: Arc::new(AtomicBool::new(false)) })
    }

    /// Returns the tensor as a branch that computes nothing.
    pub(crate) fn follow<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        Tensor::from_dispatch(<Dispatch as Fork>::branch(x.into_dispatch(), self.clone()))
    }

    /// Returns true in the backward pass of the second branch. It takes back what the first one registered
    /// with the parent, which cannot have used that yet, because it is further from the end of the graph than
    /// both branches.
    pub(crate) fn is_second(&self) -> bool {
        self.registered.swap(true, Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Identity;

impl Backward<Flex, 1> for Identity {
    type State = Branch;

    /// Registers the gradient, or in the second branch the sum.
    fn backward(self, ops: Ops<Branch, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let mut gradient = gradients.consume::<Flex>(&ops.node);
        let [Some(parent)] = ops.parents else { return };
        if ops.state.is_second() {
            let other = gradients.consume::<Flex>(&parent);
            gradient = match gradient.shape().num_dims() {
                4 => add_activations(gradient, other),
                _ => Flex::float_add(gradient, other),
            };
        }
        gradients.register::<Flex>(parent.id, gradient);
    }
}
