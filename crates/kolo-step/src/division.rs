//! Division of a step's work among the owners of flat memory.

use std::sync::Arc;

use crate::gradient_memory::GradientMemory;
use kolo_reduction::Owners;

/// Owners of flat memory, who step their parts of it for the others.
#[derive(Clone, Debug)]
pub struct Division {
    pub(crate) owners: Arc<Owners>,
    /// Memory of gradients, where a rank keeps only its own parts of their sum; `None` where it has buffers
    /// for all of them.
    pub(crate) memory: Option<Arc<GradientMemory>>,
}

impl Division {
    /// Divides the updates (stage 1 of Rajbhandari et al. 2020, "ZeRO").
    pub fn of_updates(owners: Arc<Owners>) -> Self {
        Division { owners, memory: None }
    }

    /// Divides also the sums of gradients among `world` ranks (stage 2). Where each rank owns everything,
    /// there is nothing to divide.
    pub fn of_gradients(owners: Arc<Owners>, world: usize) -> Self {
        let memory = (owners.of(0).len() < world).then(Arc::default);
        Division { owners, memory }
    }
}
