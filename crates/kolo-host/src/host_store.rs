//! The store of an optimizer's state that is in the memory of a host.

use std::any::Any;
use std::sync::Arc;

use kolo_optim::{Layout, MOST_ARRAYS, Scope, StateStore, StatelessRule, StoreFailure, Update, VisitRun};

use crate::memory::HostMemory;

/// State of an optimizer in a [`HostMemory`], which it receives by [`StateStore::attach`]. A new beginning
/// does not change that state, which other workers use. Before it has a memory, there is no state, and
/// updates do nothing.
#[derive(Debug, Default)]
pub struct HostStore {
    names: Vec<&'static str>,
    memory: Option<Arc<HostMemory>>,
}

impl StateStore for HostStore {
    fn names(&self) -> &[&'static str] {
        &self.names
    }

    fn init(&mut self, _: &Layout, _: Scope, arrays: Vec<&'static str>) {
        self.names = arrays;
    }

    fn update(&mut self, rule: &mut dyn StatelessRule, update: Update<'_>) {
        let Some(memory) = &self.memory else { return };
        let mut state: [&mut [f32]; MOST_ARRAYS] = Default::default();
        for (array, state) in state.iter_mut().enumerate().take(memory.arrays()) {
            // SAFETY: an update is of elements of a block that this worker owns, and arrays do not overlap.
            *state = unsafe { memory.state(array, update.range.clone()) };
        }
        rule.update_with(update, &mut state[..memory.arrays()]);
    }

    fn visit(&mut self, visit: &mut VisitRun<'_>) {
        for (array, name) in self.names.iter().enumerate() {
            match &self.memory {
                // SAFETY: between steps workers only read the state, or all write the same bits.
                Some(memory) => visit(name, 0, unsafe { memory.state(array, 0..memory.len()) }),
                None => visit(name, 0, &mut []),
            }
        }
    }

    fn check(&mut self) -> Result<(), StoreFailure> {
        Ok(())
    }

    fn attach(&mut self, memory: Box<dyn Any>) {
        self.memory = memory.downcast().ok().map(|memory| *memory);
    }
}
