//! The node of one use of a parameter, on every backend of the table.

use std::marker::PhantomData;
use std::sync::Arc;

#[cfg(feature = "cubecl")]
use burn::backend::Cube;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::retro_forward::RetroForward;
use burn::backend::autodiff::checkpoint::state::BackwardStates;
use burn::backend::autodiff::checkpoint::strategy::{BalancedCheckpointing, CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, DispatchTensor, Flex};

use crate::backend::{HostMemory, on_backends};

/// Function that gathers a parameter, on a device without autodiff.
pub(super) type Fetch = Arc<dyn Fn() -> DispatchTensor + Send + Sync>;

on_backends! {
    /// Operation of a backend.
    pub(super) trait Gather: Backend {
        /// Returns a parameter as the result of its leaf.
        fn gather(leaf: FloatTensor<Self>, fetch: Fetch) -> FloatTensor<Self>;
    }
}

impl Gather for Flex {
    fn gather(_: FloatTensor<Self>, fetch: Fetch) -> FloatTensor<Self> {
        Self::of_dispatch(fetch())
    }
}

#[cfg(feature = "cubecl")]
impl Gather for Cube {
    fn gather(_: FloatTensor<Self>, fetch: Fetch) -> FloatTensor<Self> {
        Self::of_dispatch(fetch())
    }
}

impl<B: HostMemory, C: CheckpointStrategy> Gather for Autodiff<B, C> {
    fn gather(leaf: FloatTensor<Self>, fetch: Fetch) -> FloatTensor<Self> {
        let values = B::of_dispatch(fetch());
        let again = Again::<B> { leaf: leaf.id(), fetch, backend: PhantomData };
        // Whatever the strategy of the graph is, these values are not kept.
        Backward::<B, 1>::prepare::<BalancedCheckpointing>(Use, [leaf.node()])
            .memory_bound()
            .retro_forward(again)
            .parents([&leaf])
            .stateless(values)
    }
}

/// Gathers a parameter again, when a step of the backward pass needs it.
struct Again<B> {
    leaf: NodeId,
    fetch: Fetch,
    backend: PhantomData<fn() -> B>,
}

kolo_comm::opaque_debug!([B] Again<B> { leaf });

impl<B: HostMemory> RetroForward for Again<B> {
    fn forward(&self, states: &mut BackwardStates, node: NodeId) {
        // Counts this use of the leaf.
        let _: FloatTensor<B> = states.get_state(&self.leaf);
        states.save(node, B::of_dispatch((self.fetch)()));
    }
}

#[derive(Debug)]
struct Use;

impl<B: Backend> Backward<B, 1> for Use {
    type State = ();

    /// Does nothing: the hook took the gradient when it was registered.
    fn backward(self, _: Ops<(), 1>, _: &mut Gradients, _: &mut Checkpointer) {}
}
