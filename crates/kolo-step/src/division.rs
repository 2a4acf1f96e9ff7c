//! Division of a step's work among the owners of flat memory.

use std::sync::Arc;

use crate::gradient_memory::GradientMemory;
use kolo_optim::SpanId;
use kolo_reduction::Owners;

/// Owners of flat memory, who step their parts of it for the others.
#[derive(Clone, Debug)]
pub struct Division {
    pub(crate) owners: Arc<Owners>,
    /// Memory of gradients, where a rank keeps only its own parts of their sum; `None` where it has buffers
    /// for all of them.
    pub(crate) memory: Option<Arc<GradientMemory>>,
    /// True for each tensor whose new values stay with their owners.
    pub(crate) stay: Arc<[bool]>,
}

impl Division {
    /// Divides the updates (stage 1 of Rajbhandari et al. 2020, "ZeRO").
    pub fn of_updates(owners: Arc<Owners>) -> Self {
        Division { owners, memory: None, stay: [].into() }
    }

    /// Divides also the sums of gradients among `world` ranks (stage 2). Where each rank owns everything,
    /// there is nothing to divide.
    pub fn of_gradients(owners: Arc<Owners>, world: usize) -> Self {
        let memory = (owners.of(0).len() < world).then(Arc::default);
        Division { owners, memory, stay: [].into() }
    }

    /// Leaves new values of some tensors with their owners (stage 3): those for which `stay` is true.
    pub fn with_values_of(self, stay: Vec<bool>) -> Self {
        Division { stay: stay.into(), ..self }
    }

    /// Returns true if a tensor's new values go to all ranks.
    pub(crate) fn sends(&self, span: SpanId) -> bool {
        self.stay.get(span.0) != Some(&true)
    }
}
