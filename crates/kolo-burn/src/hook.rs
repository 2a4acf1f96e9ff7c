//! Gradient hook: sees each gradient as soon as it is computed, on every backend of the table.
//!
//! Burn runs the backward pass level by level of graph depth, so an operation at a leaf would run only at the
//! very end. The hook is instead one identity operation at the *root*, which works with an unmodified model.
//! It is the first step of the pass, when the container of gradients holds only the root's own. It replaces
//! that container with one that reports every registration (Burn's hook for its own distributed training).
//! Both types are public but young. Burn's version is therefore pinned, this file has all the code that uses
//! them, and a test fails if a report comes late.
//!
//! On `flex` a gradient is passed on in place. On a device it is first copied to the host, which waits until
//! the device has computed it. A second thread does that, so that the pass goes on: it launches the device's
//! work far ahead of what the device has done.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::resume_unwind;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

#[cfg(feature = "cubecl")]
use burn::backend::Cube;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::{DistributedRegistration, GradID, Gradients};
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorPrimitive};
use burn::tensor::Tensor;
use burn_std::tensor::container::TensorContainer;

use kolo_ddp::binding::GradientSink;
use kolo_ddp::{MemoryOrder, SpanId};

use crate::Error;
use crate::backend::{HostMemory, ReadError, on_backends};
use crate::device;

/// Parameter and memory order of each graph node.
pub(crate) type Nodes = HashMap<NodeId, (SpanId, MemoryOrder)>;

on_backends! {
    /// Operations that the hook needs of a backend. Without autodiff there is no graph.
    trait Graph: Backend {
        fn node(_tensor: FloatTensor<Self>) -> Option<NodeId> {
            None
        }

        fn memory_order(tensor: FloatTensor<Self>) -> MemoryOrder;

        /// Returns the loss behind an identity operation, which is the first step of its backward pass.
        fn watch(loss: FloatTensor<Self>, _watch: Watch) -> FloatTensor<Self> {
            loss
        }
    }
}

impl Graph for Flex {
    fn memory_order(tensor: FloatTensor<Self>) -> MemoryOrder {
        Self::order(&tensor)
    }
}

#[cfg(feature = "cubecl")]
impl Graph for Cube {
    fn memory_order(tensor: FloatTensor<Self>) -> MemoryOrder {
        Self::order(&tensor)
    }
}

impl<B: HostMemory, C: CheckpointStrategy> Graph for Autodiff<B, C> {
    fn node(tensor: FloatTensor<Self>) -> Option<NodeId> {
        Some(tensor.id())
    }

    fn memory_order(tensor: FloatTensor<Self>) -> MemoryOrder {
        B::order(&tensor.into_parts().0)
    }

    fn watch(loss: FloatTensor<Self>, watch: Watch) -> FloatTensor<Self> {
        let (primitive, node) = loss.into_parts();
        match Backward::<B, 1>::prepare::<C>(Root, [node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(watch, primitive),
            OpsKind::UnTracked(prepared) => prepared.finish(primitive),
        }
    }
}

/// Returns the graph node of a parameter, or `None` if it is not trained.
pub(crate) fn node_of<const D: usize>(tensor: Tensor<D>) -> Option<NodeId> {
    if tensor.is_require_grad() { id_of(tensor) } else { None }
}

/// Returns the graph node of a tensor, or `None` if it needs no gradient.
pub(crate) fn id_of<const D: usize>(tensor: Tensor<D>) -> Option<NodeId> {
    if tensor.is_tracked() { <Dispatch as Graph>::node(tensor.into_dispatch()) } else { None }
}

pub(crate) fn order_of<const D: usize>(tensor: Tensor<D>) -> MemoryOrder {
    <Dispatch as Graph>::memory_order(tensor.into_dispatch())
}

/// Runs the backward pass of `loss` and passes each parameter's gradient to `sink` as soon as it is computed.
///
/// Gradients do not outlive the pass: the hook takes them out of the container.
/// Returns an error if the loss is on a device without autodiff, or if a gradient cannot be read.
pub(crate) fn backward(loss: Tensor<1>, nodes: Nodes, sink: Arc<dyn GradientSink>) -> Result<(), Error> {
    let reading = match device::is_on_host(&loss.device())? {
        true => None,
        false => Some(ReadingThread::start(sink.clone())),
    };
    let reader = reading.as_ref().map(|thread| thread.reader.clone());
    let watch = Watch { nodes: Arc::new(nodes), sink, reader, failure: Arc::default() };
    let failure = watch.failure.clone();
    let watched = <Dispatch as Graph>::watch(loss.into_dispatch(), watch);
    Tensor::<1>::from_dispatch(watched).backward();
    if let Some(thread) = reading {
        thread.finish();
    }
    let failure = failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    failure.map_or(Ok(()), |cause| Err(Error::Gradient(cause)))
}

/// A gradient that the device may not have computed yet: the first look at its elements waits.
type Reading = (SpanId, Box<dyn Deref<Target = [f32]> + Send>);

/// Thread that passes gradients to the sink in the order in which they were registered.
struct ReadingThread {
    /// `None` is the end of the pass.
    reader: Sender<Option<Reading>>,
    thread: JoinHandle<()>,
}

impl ReadingThread {
    fn start(sink: Arc<dyn GradientSink>) -> Self {
        let (reader, readings) = channel::<Option<Reading>>();
        let thread = thread::spawn(move || {
            for (span, values) in readings.iter().map_while(|reading| reading) {
                sink.ready(span, &values);
            }
        });
        ReadingThread { reader, thread }
    }

    /// Waits until all gradients have been read. Panics if the thread has.
    fn finish(self) {
        // A thread that no longer receives has panicked.
        let _ = self.reader.send(None);
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    }
}

/// Destination of the gradients of one backward pass.
#[derive(Clone)]
pub(crate) struct Watch {
    nodes: Arc<Nodes>,
    sink: Arc<dyn GradientSink>,
    /// Takes the gradients of a device; `None` if they are in host memory already.
    reader: Option<Sender<Option<Reading>>>,
    /// First error in reading a gradient; the pass itself cannot return errors.
    failure: Arc<Mutex<Option<ReadError>>>,
}

kolo_comm::opaque_debug!(Watch);

/// Identity operation at the root.
#[derive(Debug)]
struct Root;

impl<B: HostMemory> Backward<B, 1> for Root {
    type State = Watch;

    fn backward(self, ops: Ops<Watch, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let seed = gradients.consume::<B>(&ops.node);
        let Watch { nodes, sink, reader, failure } = ops.state.clone();
        report::<B, _, _, 1>(
            gradients,
            &ops,
            seed.clone(),
            nodes,
            move |(span, order), gradient: FloatTensor<B>| {
                match B::floats_in(order, gradient) {
                    Ok(values) => match &reader {
                        // If nobody receives, the thread has panicked, which `finish` reports.
                        Some(reader) => drop(reader.send(Some((*span, Box::new(values))))),
                        None => sink.ready(*span, &values),
                    },
                    Err(cause) => {
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(cause);
                    }
                }
            },
        );
        if let Some(parent) = &ops.parents[0] {
            gradients.register::<B>(parent.id, seed);
        }
    }
}

/// Replaces the container of gradients in the first step of a backward pass, that of the root `ops`. Each
/// gradient that is registered for one of `nodes` is taken out of the new container, and goes to `take`.
pub(crate) fn report<B: HostMemory, S, V: Send + Sync + 'static, const N: usize>(
    gradients: &mut Gradients,
    ops: &Ops<S, N>,
    seed: FloatTensor<B>,
    nodes: Arc<HashMap<NodeId, V>>,
    take: impl FnMut(&V, FloatTensor<B>) + Send + Sync + 'static,
) {
    let registration = Box::new(Registration::<B, V, _> { nodes, take, backend: PhantomData });
    *gradients = Gradients::new_distributed::<B>(ops.node.clone(), seed, registration);
}

struct Registration<B, V, F> {
    nodes: Arc<HashMap<NodeId, V>>,
    take: F,
    backend: PhantomData<fn() -> B>,
}

impl<B: HostMemory, V: Send + Sync, F> DistributedRegistration for Registration<B, V, F>
where
    F: FnMut(&V, FloatTensor<B>) + Send + Sync,
{
    fn on_register(&mut self, node: &NodeId, container: &mut TensorContainer<GradID>) {
        let Some(value) = self.nodes.get(node) else { return };
        let Some(gradient) = container.remove::<TensorPrimitive<B>>(&node.value) else { return };
        (self.take)(value, gradient.tensor());
    }
}
