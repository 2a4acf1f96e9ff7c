//! Seeing each gradient at the moment it is computed.
//!
//! Burn runs the backward pass level by level of graph depth, so an operation at a leaf would fire only at the very end.
//! What works on an unmodified model is one identity operation at the *root*: it is the first step of the pass, when the
//! container of gradients holds nothing but the root's own. There it replaces the container with one that tells us of
//! every registration (Burn's hook for its own distributed training). Both types are public but young: Burn's version is
//! pinned, all of it is in this file, and a test fails when the news comes late.

use std::collections::HashMap;
use std::sync::Arc;

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::{
    BalancedCheckpointing, CheckpointStrategy, NoCheckpointing,
};
use burn::backend::autodiff::grads::{DistributedRegistration, GradID, Gradients};
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Flex, TensorPrimitive};
use burn::tensor::Tensor;
use burn_std::tensor::container::TensorContainer;

use kolo_ddp::SpanId;

use crate::Error;

/// Takes gradients as they are computed, on the thread that runs the backward pass.
pub(crate) trait Sink: Send + Sync {
    /// A contribution to the gradient of a parameter.
    fn ready(&self, span: SpanId, gradient: &[f32]);
}

/// Which node of the graph is which parameter.
pub(crate) type Nodes = HashMap<NodeId, SpanId>;

/// The graph node of a parameter; `None` if it is not trained.
pub(crate) fn node_of<const D: usize>(tensor: Tensor<D>) -> Result<Option<NodeId>, Error> {
    if !tensor.is_require_grad() {
        return Ok(None);
    }
    // A tensor knows its checkpointing strategy only by its type.
    let plain =
        tensor.clone().try_into_primitive::<Autodiff<Flex, NoCheckpointing>>().map(|tensor| tensor.id());
    let node = plain.or_else(|_| {
        tensor.try_into_primitive::<Autodiff<Flex, BalancedCheckpointing>>().map(|tensor| tensor.id())
    });
    node.map(Some).map_err(|_| unsupported())
}

/// Why a model on another backend cannot be trained, and what to do.
pub(crate) const UNSUPPORTED: &str = "Kolo sees the gradients of Burn's `flex` backend with autodiff; put the model on `Device::flex().autodiff()`";

fn unsupported() -> Error {
    Error::Backend(UNSUPPORTED.into())
}

/// Runs the backward pass of `loss` and hands every parameter's gradient to `sink` as soon as it is there.
///
/// The gradients do not outlive the pass: what has been handed over is taken out of the container.
pub(crate) fn backward(loss: Tensor<1>, nodes: Nodes, sink: Arc<dyn Sink>) -> Result<(), Error> {
    let watch = Watch { nodes: Arc::new(nodes), sink };
    let watched = match loss.clone().try_into_primitive::<Autodiff<Flex, NoCheckpointing>>() {
        Ok(primitive) => Tensor::<1>::from_primitive::<Autodiff<Flex, NoCheckpointing>>(
            watch.at_root::<NoCheckpointing>(primitive),
        ),
        Err(_) => {
            let primitive = loss
                .try_into_primitive::<Autodiff<Flex, BalancedCheckpointing>>()
                .map_err(|_| unsupported())?;
            let watched = watch.at_root::<BalancedCheckpointing>(primitive);
            Tensor::<1>::from_primitive::<Autodiff<Flex, BalancedCheckpointing>>(watched)
        }
    };
    watched.backward();
    Ok(())
}

#[derive(Clone)]
struct Watch {
    nodes: Arc<Nodes>,
    sink: Arc<dyn Sink>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({} nodes)", self.nodes.len())
    }
}

impl Watch {
    fn at_root<C: CheckpointStrategy>(
        self,
        loss: FloatTensor<Autodiff<Flex, C>>,
    ) -> FloatTensor<Autodiff<Flex, C>> {
        let (primitive, node) = loss.into_parts();
        match Root.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(self, primitive),
            OpsKind::UnTracked(prepared) => prepared.finish(primitive),
        }
    }
}

/// The identity operation at the root.
#[derive(Debug)]
struct Root;

impl Backward<Flex, 1> for Root {
    type State = Watch;

    fn backward(self, ops: Ops<Watch, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let seed = gradients.consume::<Flex>(&ops.node);
        let registration = Box::new(Registration(ops.state));
        *gradients = Gradients::new_distributed::<Flex>(ops.node.clone(), seed.clone(), registration);
        if let Some(parent) = &ops.parents[0] {
            gradients.register::<Flex>(parent.id, seed);
        }
    }
}

struct Registration(Watch);

impl DistributedRegistration for Registration {
    fn on_register(&mut self, node: &NodeId, container: &mut TensorContainer<GradID>) {
        let Some(&span) = self.0.nodes.get(node) else { return };
        let Some(gradient) = container.remove::<TensorPrimitive<Flex>>(&node.value) else { return };
        let gradient = gradient.tensor();
        match gradient.as_slice::<f32>() {
            Some(values) => self.0.sink.ready(span, values),
            None => {
                let contiguous = gradient.to_contiguous();
                let values = contiguous.as_slice::<f32>();
                self.0.sink.ready(span, values.expect("a contiguous f32 tensor is a slice"));
            }
        }
    }
}
