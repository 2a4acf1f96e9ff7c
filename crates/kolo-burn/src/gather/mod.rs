//! Parameters that hold no memory until a pass uses them: each is gathered from the ranks that have its parts
//! at every use, and freed after it (stage 3 of Rajbhandari et al. 2020, "ZeRO").
//!
//! Burn calls a [`Reparameterization`] whenever a layer fetches a parameter. What is stored in its place is a
//! leaf of the parameter's shape whose elements take no memory. A use is a node of the graph behind that
//! leaf, which Burn computes again where the backward pass needs the values. So operations that save no
//! values of their own hold none between the passes.
//!
//! The hook watches the node of each use. The leaf itself is the end of the graph, at which every gradient
//! would come late, so nothing is passed on to it.

mod block;
mod graph;
mod taking;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::Dispatch;
use burn::module::{Module, Param, Reparameterization, Reparameterizer};
use burn::tensor::{Device, GradientCheckpointingStrategy, Shape, Tensor};
use burn_flex_nn::{declare_recomputed, forget_recomputed};
use kolo_ddp::binding::{DividedSpan, Values};
use kolo_ddp::{MemoryOrder, ParamSpec, SpanId};

pub(crate) use self::block::in_block;
use self::graph::Gather;
pub(crate) use self::taking::hand_over;
use crate::flat_tensor;
use crate::hook::{Nodes, id_of};
use crate::tensor_list::{Retie, TensorList, Ties};

/// Nodes of all uses since the last step.
#[derive(Clone, Default)]
pub(crate) struct Uses {
    nodes: Arc<Mutex<Nodes>>,
    /// Memory order of each divided parameter.
    orders: HashMap<SpanId, MemoryOrder>,
}

impl Uses {
    /// Returns true if any parameter is divided.
    pub(crate) fn divide(&self) -> bool {
        !self.orders.is_empty()
    }

    /// Adds the nodes of all uses to those of a module's leaves.
    pub(crate) fn add_to(&self, nodes: &mut Nodes) {
        for (span, order) in nodes.values_mut() {
            // A leaf without memory has no order of its own.
            if let Some(known) = self.orders.get(span) {
                order.clone_from(known);
            }
        }
        nodes.extend(self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone());
    }

    /// Forgets the nodes of a step.
    pub(crate) fn clear(&self) {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clear();
        forget_recomputed();
    }
}

/// Returns true if any parameter is divided.
pub(crate) fn any_divided(list: &TensorList, values: &Values) -> bool {
    list.listed().iter().any(|listed| values.divided(listed.span).is_some())
}

/// Replaces the divided parameters of a module, whose values are elsewhere from then on.
pub(crate) fn divided<M: Module>(module: M, list: &TensorList, values: &Values) -> (M, Uses) {
    let mut uses = Uses::default();
    for listed in list.listed() {
        if values.divided(listed.span).is_some() {
            let order = values.layout().span(listed.span).spec.order.clone();
            uses.orders.insert(listed.span, order);
        }
    }
    let nodes = uses.nodes.clone();
    (module.apply_reparameterization(Divide { list, values, nodes, next: 0 }), uses)
}

/// Gathers all divided parameters of a module for good.
pub(crate) fn whole<M: Module>(module: M, list: &TensorList) -> M {
    let module = module.materialize();
    match list.has_ties() {
        true => module.map(&mut Retie { list, next: 0, ties: Ties::default() }),
        false => module,
    }
}

struct Divide<'a> {
    list: &'a TensorList,
    values: &'a Values,
    nodes: Arc<Mutex<Nodes>>,
    next: usize,
}

impl Reparameterizer for Divide<'_> {
    type Reparam = Gathered;

    fn reparameterize<const D: usize>(
        &mut self,
        _: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<Gathered>) {
        let span = self.list.listed()[self.next].span;
        self.next += 1;
        let Some(values) = self.values.divided(span) else { return (param, None) };
        let (id, old, mapper) = param.consume();
        let leaf = leaf_without_memory(&old);
        let spec = self.values.layout().span(span).spec.clone();
        let source = Source(Arc::new(Parameter { span, values, spec }));
        (
            Param::from_mapped_value(id, leaf, mapper),
            Some(Gathered { source, nodes: Mine(self.nodes.clone()) }),
        )
    }
}

/// Returns a leaf of the same shape that takes no memory.
fn leaf_without_memory<const D: usize>(old: &Tensor<D>) -> Tensor<D> {
    let (shape, strategy) = (Shape::from(old.dims().to_vec()), old.gradient_checkpointing_strategy());
    zeros_without_memory(shape, &old.device(), strategy).set_require_grad(old.is_require_grad())
}

/// Returns one zero, seen everywhere.
pub(crate) fn zeros_without_memory<const D: usize>(
    shape: Shape,
    device: &Device,
    strategy: Option<GradientCheckpointingStrategy>,
) -> Tensor<D> {
    let zero = Tensor::<1>::zeros([1], device);
    let zero = match strategy {
        Some(strategy) => zero.with_gradient_checkpointing_strategy(strategy),
        None => zero,
    };
    zero.reshape([1; D]).expand(shape).detach()
}

/// A divided parameter.
struct Parameter {
    span: SpanId,
    values: DividedSpan,
    spec: ParamSpec,
}

/// Source of a parameter's values.
#[derive(Clone)]
pub(crate) struct Source(Arc<Parameter>);

kolo_comm::opaque_debug!(Source);

impl Source {
    /// Gathers the values on a device without autodiff.
    fn gather<const D: usize>(&self, device: &Device) -> Tensor<D> {
        flat_tensor::copied(self.0.values.gather(), &self.0.spec, device)
    }
}

/// Nodes of uses, which say little.
#[derive(Clone)]
struct Mine(Arc<Mutex<Nodes>>);

kolo_comm::opaque_debug!(Mine);

/// Gathers a parameter when a layer fetches it.
#[derive(Module, Debug)]
struct Gathered {
    #[module(skip)]
    source: Source,
    #[module(skip)]
    nodes: Mine,
}

impl Reparameterization for Gathered {
    const NAME: &'static str = "gathered";

    fn apply<const D: usize>(&self, leaf: Tensor<D>) -> Tensor<D> {
        let Some(strategy) = leaf.gradient_checkpointing_strategy() else {
            return self.source.gather(&leaf.device());
        };
        let device = leaf.clone().inner().device();
        let kept = || {
            Tensor::from_inner(self.source.gather::<D>(&device))
                .with_gradient_checkpointing_strategy(strategy)
        };
        if !leaf.is_tracked() {
            return kept();
        }
        if block::is_inside() {
            // The graph of a block is short, so its operations may hold the values.
            let kept = kept().require_grad();
            block::note(id_of(kept.clone()), id_of(leaf));
            return kept;
        }
        let source = self.source.clone();
        let gather = Arc::new(move || source.gather::<D>(&device).into_dispatch());
        let used = <Dispatch as Gather>::gather(leaf.into_dispatch(), gather);
        let used = Tensor::from_dispatch(used);
        let Parameter { span, spec, .. } = &*self.source.0;
        let mut nodes = self.nodes.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = id_of(used.clone()) {
            declare_recomputed(node);
            nodes.insert(node, (*span, spec.order.clone()));
        }
        used
    }
}
