//! Tensor that is used twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
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
    // The gradient of a leaf belongs to the user, so nothing may be taken out of it.
    if !on_flex(&x) || !x.device().is_autodiff() || x.is_require_grad() {
        return [x.clone(), x];
    }
    let registered = Arc::new(AtomicBool::new(false));
    [x.clone(), x].map(|x| {
        let branch = Branch { registered: registered.clone() };
        Tensor::from_dispatch(<Dispatch as Fork>::branch(x.into_dispatch(), branch))
    })
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

#[derive(Clone, Debug)]
struct Branch {
    /// True once the first branch has registered its gradient with the parent.
    registered: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Identity;

impl Backward<Flex, 1> for Identity {
    type State = Branch;

    /// Registers the gradient. The second branch takes back what the first one registered. The parent cannot
    /// have used that yet, because it is further from the end of the graph than both branches.
    fn backward(self, ops: Ops<Branch, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let mut gradient = gradients.consume::<Flex>(&ops.node);
        let [Some(parent)] = ops.parents else { return };
        if ops.state.registered.swap(true, Ordering::Relaxed) {
            gradient = add_activations(gradient, gradients.consume::<Flex>(&parent));
        }
        gradients.register::<Flex>(parent.id, gradient);
    }
}
