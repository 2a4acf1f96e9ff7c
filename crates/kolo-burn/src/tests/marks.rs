//! Order in which gradients reach the hook among the steps of the backward pass.

use std::sync::{Arc, Mutex};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Flex};
use burn::module::Module;
use burn::tensor::Tensor;
use kolo_ddp::SpanId;
use kolo_ddp::binding::GradientSink;

use crate::tensor_list::TensorList;
use crate::{hook, tensors};

/// Event of a backward pass.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// The hook got a contribution to the gradient of a parameter, with these bits.
    Gradient(SpanId, Vec<u32>),
    /// The pass went through a mark.
    Mark(usize),
}

/// Events in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(Arc<Mutex<Vec<Event>>>);

impl Events {
    pub(crate) fn all(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    fn push(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }

    /// Returns the tensor behind an identity whose backward pass is an event.
    pub(crate) fn mark<const D: usize>(&self, x: Tensor<D>, number: usize) -> Tensor<D> {
        type Backend = Autodiff<Flex, NoCheckpointing>;
        let (primitive, node) = x.try_into_primitive::<Backend>().unwrap().into_parts();
        let marked = match Mark.prepare::<NoCheckpointing>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish((self.clone(), number), primitive),
            OpsKind::UnTracked(prepared) => prepared.finish(primitive),
        };
        Tensor::from_primitive::<Backend>(marked)
    }

    /// Number of holders of these events, of which each mark with a graph is one.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Runs a backward pass under Kolo's hook.
    pub(crate) fn backward<M: Module>(&self, module: &M, loss: Tensor<1>) {
        let nodes = tensors::nodes(module, &TensorList::of(module));
        hook::backward(loss, nodes, Arc::new(self.clone())).unwrap();
    }

    /// Returns the spans of the gradients, and `None` for each mark.
    pub(crate) fn spans(&self) -> Vec<Option<usize>> {
        let span = |event| match event {
            Event::Gradient(span, _) => Some(span.0),
            Event::Mark(_) => None,
        };
        self.all().into_iter().map(span).collect()
    }
}

impl GradientSink for Events {
    fn ready(&self, span: SpanId, gradient: &[f32]) {
        self.push(Event::Gradient(span, gradient.iter().map(|value| value.to_bits()).collect()));
    }
}

#[derive(Debug)]
struct Mark;

impl Backward<Flex, 1> for Mark {
    type State = (Events, usize);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node);
        let (events, number) = ops.state;
        events.push(Event::Mark(number));
        if let Some(parent) = &ops.parents[0] {
            gradients.register::<Flex>(parent.id, gradient);
        }
    }
}
