//! Tensors that operations do not keep for the backward pass, because the graph computes them again.
//!
//! Kolo declares each use of a parameter that it gathers from other workers. A tensor is known by its node of
//! the graph, on the thread of the forward pass.

use std::cell::RefCell;
use std::collections::HashSet;

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Flex};

thread_local! {
    static NODES: RefCell<HashSet<NodeId>> = RefCell::default();
}

/// Declares that the tensor of a node, which the graph can compute again, is not to be kept. Its node must
/// have been made with a retro-forward (memory-bound). The operations of this crate then hold it in the
/// forward pass only, and treat it as a parameter.
pub fn declare_recomputed(node: NodeId) {
    NODES.with_borrow_mut(|nodes| nodes.extend([node]));
}

/// Forgets all tensors that this thread has declared.
pub fn forget_recomputed() {
    NODES.with_borrow_mut(HashSet::clear);
}

/// Returns true if a tensor was declared.
pub(crate) fn is_recomputed(node: NodeId) -> bool {
    NODES.with_borrow(|nodes| nodes.contains(&node))
}

/// Returns a tensor that was declared, for its checkpoint.
pub(crate) fn if_recomputed(tensor: &FloatTensor<Autodiff<Flex>>) -> Option<FloatTensor<Autodiff<Flex>>> {
    is_recomputed(tensor.id()).then(|| tensor.clone())
}

/// A tensor in the form in which a step of the backward pass needs it.
#[derive(Clone, Debug)]
pub(crate) enum Factor<T> {
    Kept(T),
    /// Tensor of a node, which is computed again.
    Recomputed(NodeId),
}

impl<T> Factor<T> {
    /// Keeps a tensor, or only its node.
    pub(crate) fn new(kept: T, node: Option<NodeId>) -> Self {
        node.map_or(Factor::Kept(kept), Factor::Recomputed)
    }

    /// Returns the tensor. Must be called once, in the backward pass.
    pub(crate) fn get(self, checkpointer: &mut Checkpointer, of: impl FnOnce(&FlexTensor) -> T) -> T {
        match self {
            Factor::Kept(kept) => kept,
            Factor::Recomputed(node) => of(&checkpointer.retrieve_node_output(node)),
        }
    }
}
