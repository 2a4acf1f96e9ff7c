//! Activation checkpointing by block (Chen et al. 2016,
//! [arXiv:1604.06174](https://arxiv.org/abs/1604.06174)): the forward pass keeps only the input of a block,
//! and the backward pass computes the block once more.
//!
//! The first pass has no graph. The second one runs inside the block's step of the backward pass, on leaves
//! of its own: Burn holds one lock for all graphs with a common leaf, and the outer graph is locked
//! meanwhile. Each gradient of such a leaf goes to the outer leaf, in the order and number of a model without
//! checkpointing. So Kolo's hook sees the gradients of a block at the block's place.

mod graph;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::NodeId;
use burn::backend::{Dispatch, DispatchTensor};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Bool, GradientCheckpointingStrategy, Int, Tensor};
use burn_flex_nn::precision::precision;
use burn_flex_nn::{Precision, with_precision};

use self::graph::{Contributions, Graph, Recomputation, Repeat, Seed};
use crate::device;
use crate::gather::in_block;
use crate::hook::{id_of, node_of};
use crate::tensor_list::are_equal;

/// Computes `forward(block, x)` without keeping its activations: the backward pass calls `forward` a second
/// time. PyTorch calls it `torch.utils.checkpoint`. The results have the same bits as without, and so have
/// the gradients, except where a tensor has three or more uses of which some are outside the block or
/// through a view.
///
/// `forward` must be a function of its two arguments: no random numbers ([`Dropout`](crate::Dropout) has
/// keys; Burn's `Dropout` has not) and no counters. It may use other tensors that need no gradient, such as
/// masks. Running statistics change once. Where nothing records gradients, as in evaluation, this is only a
/// call of `forward`.
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::activation::relu;
/// use burn::tensor::{Device, Tensor};
/// use kolo_burn::checkpointed;
///
/// let device = Device::flex().autodiff();
/// let block: Linear = LinearConfig::new(4, 4).init(&device);
/// let x = Tensor::<2>::ones([8, 4], &device);
/// let y = checkpointed(&block, x, |block, x| relu(block.forward(x)));
/// let gradients = y.sum().backward();
/// assert!(block.weight.val().grad(&gradients).is_some());
/// ```
///
/// # Panics
///
/// Panics if `forward` uses a parameter or an activation that is neither in `block` nor `x`, or if a
/// parameter of `block` is the result of an operation. On `flex`, the backward pass panics if the second call
/// of `forward` returns other values.
pub fn checkpointed<M: Module + 'static, const D: usize, const E: usize>(
    block: &M,
    x: Tensor<D>,
    forward: impl Fn(&M, Tensor<D>) -> Tensor<E> + Send + 'static,
) -> Tensor<E> {
    let mut leaves = Leaves(Vec::new());
    block.visit(&mut leaves);
    let (Leaves(leaves), is_tracked) = (leaves, x.is_tracked());
    let is_trained = leaves.iter().any(Option::is_some);
    let strategy = x.gradient_checkpointing_strategy().filter(|_| is_tracked || is_trained);
    let Some(strategy) = strategy else { return forward(block, x) };
    let kept = block.valid();
    let y = forward(&block.clone().set_require_grad(false), untracked(x.clone().inner(), strategy));
    assert!(!y.is_tracked(), "{USES_OTHERS}");
    let is_compared = device::is_on_host(&x.device()).unwrap_or(false);
    let block = Block {
        module: kept,
        leaves,
        forward,
        x: x.clone().inner(),
        input: id_of(x.clone()).map(|node| Input { node, is_leaf: x.is_require_grad() }),
        y: is_compared.then(|| y.clone().inner()),
        precision: precision(),
        strategy,
    };
    let anchor = Tensor::<1>::zeros([1], &x.device()).with_gradient_checkpointing_strategy(strategy);
    let anchor = anchor.set_require_grad(is_trained).into_dispatch();
    let block = Recomputation(Arc::new(Mutex::new(Some(Box::new(block)))));
    Tensor::from_dispatch(<Dispatch as Graph>::record(y.into_dispatch(), x.into_dispatch(), anchor, block))
}

const USES_OTHERS: &str = "the function of an activation-checkpointed block uses a parameter or an activation \
that is neither in the block nor its input; make it part of the block or of the input";

const NOT_REPEATED: &str = "an activation-checkpointed block computed other values the second time; it must \
draw no random numbers (take `kolo_burn::Dropout`, which has keys, in place of Burn's) and count nothing";

/// All that the second pass of a block needs.
struct Block<M, F, const D: usize, const E: usize> {
    /// Without a graph, with running statistics of its own.
    module: M,
    /// For each tensor of floats in the module, its leaf in the outer graph if it is trained.
    leaves: Vec<Option<NodeId>>,
    forward: F,
    x: Tensor<D>,
    /// `None` if the input needs no gradient.
    input: Option<Input>,
    /// Output of the first pass, on devices that compute the same bits again.
    y: Option<Tensor<E>>,
    precision: Precision,
    strategy: GradientCheckpointingStrategy,
}

/// Input of a block in the outer graph.
struct Input {
    node: NodeId,
    is_leaf: bool,
}

impl<M, F, const D: usize, const E: usize> Repeat for Block<M, F, D, E>
where
    M: Module,
    F: Fn(&M, Tensor<D>) -> Tensor<E> + Send,
{
    fn nothing(&self) -> Option<DispatchTensor> {
        let is_result = self.input.as_ref().is_some_and(|input| !input.is_leaf);
        is_result.then(|| Tensor::zeros_like(&self.x).neg().into_dispatch())
    }

    fn gradients(
        self: Box<Self>,
        gradient: DispatchTensor,
        so_far: Option<DispatchTensor>,
        depth: usize,
    ) -> Contributions {
        let Block { module, leaves, forward, x, input, y: expected, precision, strategy } = *self;
        let mut fresh = Fresh { outer: leaves.into_iter(), strategy, nodes: HashMap::new() };
        let module = module.train().map(&mut fresh);
        let mut x = untracked(x, strategy);
        if let Some(Input { node, is_leaf }) = &input {
            x = fresh.join(x.require_grad(), *node);
            if !is_leaf {
                // A layer may treat leaves differently, and the order of steps follows from the depth.
                x = Tensor::from_dispatch(<Dispatch as Graph>::deepen(x.into_dispatch(), depth));
            }
        }
        let inner_input = id_of(x.clone()).zip(so_far.clone());
        let (y, uses) = in_block(|| with_precision(precision, || forward(&module, x)));
        fresh.join_uses(uses);
        let repeated = y.clone().inner();
        assert!(expected.is_none_or(|expected| are_equal(&repeated, &expected)), "{NOT_REPEATED}");
        let found = Arc::new(Mutex::new(Vec::new()));
        if y.is_tracked() {
            let seed = Seed { nodes: Arc::new(fresh.nodes), found: found.clone(), input: inner_input };
            let root = <Dispatch as Graph>::seed(y.into_dispatch(), gradient, seed);
            drop(Tensor::<1>::from_dispatch(root).backward());
        }
        let mut found = take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
        // If the output does not depend on the input, nothing has come back.
        let unused = input.zip(so_far).map(|(input, so_far)| (input.node, so_far));
        found.extend(unused.filter(|(input, _)| found.iter().all(|(node, _)| node != input)));
        found
    }
}

/// Returns a tensor of autodiff that needs no gradient.
fn untracked<const D: usize>(inner: Tensor<D>, strategy: GradientCheckpointingStrategy) -> Tensor<D> {
    Tensor::from_inner(inner).with_gradient_checkpointing_strategy(strategy)
}

/// Leaf of each tensor of floats, if it is trained.
struct Leaves(Vec<Option<NodeId>>);

impl ModuleVisitor for Leaves {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        let is_result = tensor.is_tracked() && !tensor.is_require_grad();
        assert!(!is_result, "a parameter of an activation-checkpointed block is the result of an operation");
        self.0.push(node_of(tensor));
    }
}

/// Gives each trained parameter a leaf.
struct Fresh<I> {
    /// Leaves of the outer graph.
    outer: I,
    strategy: GradientCheckpointingStrategy,
    /// Node of the outer graph for each leaf.
    nodes: HashMap<NodeId, NodeId>,
}

impl<I> Fresh<I> {
    /// Lets the gradients of divided parameters belong to their leaves of the outer graph.
    fn join_uses(&mut self, uses: Vec<(NodeId, NodeId)>) {
        let outer = uses.iter().filter_map(|(used, leaf)| Some((*used, *self.nodes.get(leaf)?)));
        let outer: Vec<_> = outer.collect();
        self.nodes.extend(outer);
    }

    /// Returns a leaf, whose gradients belong to a node of the outer graph.
    fn join<const D: usize>(&mut self, leaf: Tensor<D>, outer: NodeId) -> Tensor<D> {
        self.nodes.extend(node_of(leaf.clone()).map(|leaf| (leaf, outer)));
        leaf
    }
}

impl<I: Iterator<Item = Option<NodeId>>> ModuleMapper for Fresh<I> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (outer, strategy) = (self.outer.next().flatten(), self.strategy);
        let param = param.map(|tensor| tensor.with_gradient_checkpointing_strategy(strategy));
        match outer {
            Some(outer) => param.map(|tensor| self.join(tensor.require_grad(), outer)),
            None => param.set_require_grad(false),
        }
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        param.map(|tensor| tensor.with_gradient_checkpointing_strategy(self.strategy))
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        param.map(|tensor| tensor.with_gradient_checkpointing_strategy(self.strategy))
    }
}
