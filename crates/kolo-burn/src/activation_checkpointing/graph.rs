//! Operations of the graph that a checkpointed block needs, on every backend of the table.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(feature = "cubecl")]
use burn::backend::Cube;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, DispatchTensor, Flex, TensorMetadata};
use burn::tensor::TensorData;

use crate::backend::{HostMemory, on_backends};
use crate::hook::report;

/// Most identities before a block. A layer's parameters rarely go through as many operations of their own.
const DEEPEST: usize = 8;

on_backends! {
    /// Operations of a backend. Without autodiff there is no graph.
    pub(super) trait Graph: Backend {
        /// Returns `y` as the result of `x`, whose gradients a block computes anew. The anchor requires a
        /// gradient if a parameter of the block does.
        fn record(
            y: FloatTensor<Self>,
            _x: FloatTensor<Self>,
            _anchor: FloatTensor<Self>,
            _block: Recomputation,
        ) -> FloatTensor<Self> {
            y
        }

        /// Returns the tensor behind as many identities as it was deep in another graph, or [`DEEPEST`].
        fn deepen(x: FloatTensor<Self>, _levels: usize) -> FloatTensor<Self> {
            x
        }

        /// Returns the root of a graph whose backward pass begins with this gradient of `y`.
        fn seed(y: FloatTensor<Self>, _gradient: FloatTensor<Self>, _seed: Seed) -> FloatTensor<Self> {
            y
        }
    }
}

impl Graph for Flex {}
#[cfg(feature = "cubecl")]
impl Graph for Cube {}

impl<B: HostMemory, C: CheckpointStrategy> Graph for Autodiff<B, C> {
    fn record(
        y: FloatTensor<Self>,
        x: FloatTensor<Self>,
        anchor: FloatTensor<Self>,
        block: Recomputation,
    ) -> FloatTensor<Self> {
        finished::<B, C, _, 2>(Recompute, [x.node(), anchor.node()], block, y.into_primitive())
    }

    fn deepen(x: FloatTensor<Self>, levels: usize) -> FloatTensor<Self> {
        (0..levels.min(DEEPEST)).fold(x, |x, _| {
            let (x, node) = x.into_parts();
            finished::<B, C, _, 1>(Identity, [node], (), x)
        })
    }

    fn seed(y: FloatTensor<Self>, gradient: FloatTensor<Self>, seed: Seed) -> FloatTensor<Self> {
        // The root itself is never read, and a gradient of its size is made.
        let root = B::float_from_data(TensorData::from([0.0f32]), &y.device());
        let state = (gradient.into_primitive(), seed);
        finished::<B, C, _, 1>(Root, [y.node()], state, root)
    }
}

/// Adds an operation to the graph; no strategy computes it anew.
fn finished<B: Backend, C: CheckpointStrategy, O: Backward<B, N>, const N: usize>(
    operation: O,
    parents: [NodeGuard; N],
    state: O::State,
    output: FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    match operation.prepare::<C>(parents).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(state, output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    }
}

/// Contributions to gradients, each with its node of the outer graph.
pub(super) type Contributions = Vec<(NodeId, DispatchTensor)>;

/// A block that can be computed once more.
pub(super) trait Repeat: Send {
    /// Returns negative zeros like the input, which change no sum; `None` for a leaf or an input that needs
    /// no gradient.
    fn nothing(&self) -> Option<DispatchTensor>;

    /// Runs both passes, from the gradient of the output. `so_far` is what other steps have added to the
    /// gradient of the input, which is at a depth of the outer graph.
    fn gradients(
        self: Box<Self>,
        gradient: DispatchTensor,
        so_far: Option<DispatchTensor>,
        depth: usize,
    ) -> Contributions;
}

/// The second pass of a block, which runs once.
#[derive(Clone)]
pub(super) struct Recomputation(pub(super) Arc<Mutex<Option<Box<dyn Repeat>>>>);

kolo_comm::opaque_debug!(Recomputation);

#[derive(Debug)]
struct Recompute;

impl<B: HostMemory> Backward<B, 2> for Recompute {
    type State = Recomputation;

    fn backward(self, ops: Ops<Recomputation, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = B::to_dispatch(gradients.consume::<B>(&ops.node));
        let block = ops.state.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let block = block.expect("a step of the backward pass runs once");
        // A sum is rounded in the order of its terms, so the block continues the one of its input.
        let so_far = block.nothing().zip(ops.parents[0].as_ref()).map(|(nothing, input)| {
            gradients.register::<B>(input.id, B::of_dispatch(nothing));
            B::to_dispatch(gradients.consume::<B>(input))
        });
        // The anchor is a leaf, so the input is directly above.
        for (node, gradient) in block.gradients(gradient, so_far, ops.node.order - 1) {
            gradients.register::<B>(node, B::of_dispatch(gradient));
        }
    }
}

#[derive(Debug)]
struct Identity;

impl<B: HostMemory> Backward<B, 1> for Identity {
    type State = ();

    fn backward(self, ops: Ops<(), 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        if let Some(parent) = &ops.parents[0] {
            gradients.register::<B>(parent.id, gradient);
        }
    }
}

/// Receiver of the gradients of a block's second pass.
#[derive(Clone)]
pub(super) struct Seed {
    /// Node of the outer graph for each leaf.
    pub(super) nodes: Arc<HashMap<NodeId, NodeId>>,
    /// Contributions in the order in which they came.
    pub(super) found: Arc<Mutex<Contributions>>,
    /// Input that is no leaf, with its gradient so far.
    pub(super) input: Option<(NodeId, DispatchTensor)>,
}

kolo_comm::opaque_debug!(Seed);

#[derive(Debug)]
struct Root;

impl<B: HostMemory> Backward<B, 1> for Root {
    type State = (FloatTensor<B>, Seed);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let of_root = gradients.consume::<B>(&ops.node);
        let (gradient, Seed { nodes, found, input }) = ops.state.clone();
        report::<B, _, _, 1>(gradients, &ops, of_root, nodes, move |outer, gradient| {
            let gradient = B::to_dispatch(gradient);
            found.lock().unwrap_or_else(PoisonError::into_inner).push((*outer, gradient));
        });
        if let Some((node, so_far)) = input {
            gradients.register::<B>(node, B::of_dispatch(so_far));
        }
        if let Some(parent) = &ops.parents[0] {
            gradients.register::<B>(parent.id, gradient);
        }
    }
}
