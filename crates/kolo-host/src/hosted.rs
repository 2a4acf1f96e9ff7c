//! An optimizer whose state is in the memory of a host.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use kolo_optim::{
    GroupError, GroupSettings, Layout, Optimizer, Scope, Settings, StateStore, StatelessRule, StoreFailure,
    Update, UsualRates, VisitRun,
};

use crate::memory::HostMemory;

/// Most arrays of state.
const MOST_ARRAYS: usize = 8;

/// Reason why an optimizer's state cannot be shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostedError {
    /// Name of the optimizer.
    pub optimizer: String,
}

impl fmt::Display for HostedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the optimizer `{}` keeps its state in memory of its own, so workers cannot share it; implement `Optimizer::rule`, \
             or take an optimizer of Kolo's table",
            self.optimizer
        )
    }
}

impl std::error::Error for HostedError {}

/// An optimizer with its state in a [`HostMemory`], which it receives by [`StateStore::attach`]. Its
/// [`init`](Optimizer::init) does not change that state, which other workers use. Before it has a memory,
/// there is no state, and updates do nothing.
pub struct Hosted<O> {
    optimizer: O,
    store: MemoryStore,
}

struct MemoryStore {
    names: Vec<&'static str>,
    memory: Option<Arc<HostMemory>>,
}

impl<O: Optimizer> fmt::Debug for Hosted<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosted").field("optimizer", &self.optimizer.name()).finish_non_exhaustive()
    }
}

impl<O: Optimizer> Hosted<O> {
    /// Makes an optimizer hold its state in the memory of a host.
    ///
    /// # Errors
    ///
    /// The optimizer can only hold its state itself.
    pub fn new(mut optimizer: O) -> Result<Self, HostedError> {
        let arrays = optimizer.rule().map(|rule| rule.arrays().len());
        if arrays.is_none_or(|arrays| arrays > MOST_ARRAYS) {
            return Err(HostedError { optimizer: optimizer.name().into() });
        }
        Ok(Hosted { optimizer, store: MemoryStore { names: Vec::new(), memory: None } })
    }

    fn rule(&mut self) -> &mut dyn StatelessRule {
        self.optimizer.rule().unwrap_or_else(|| unreachable!("`Hosted::new` has seen the rule"))
    }
}

impl<O: Optimizer> Optimizer for Hosted<O> {
    fn name(&self) -> &str {
        self.optimizer.name()
    }

    fn settings(&self) -> Settings {
        self.optimizer.settings()
    }

    fn another(&self) -> Option<Box<dyn Optimizer>> {
        self.optimizer.another()
    }

    fn usual_rates(&self) -> Option<UsualRates> {
        self.optimizer.usual_rates()
    }

    fn scope(&self) -> Scope {
        self.optimizer.scope()
    }

    fn set_groups(&mut self, groups: &[GroupSettings]) -> Result<(), GroupError> {
        self.optimizer.set_groups(groups)?;
        let arrays = self.rule().arrays();
        // The memory has the arrays with which it began.
        match self.store.memory.is_some() && self.store.names != arrays {
            true => Err(GroupError::Unsupported { optimizer: "Hosted" }),
            false => Ok(()),
        }
    }

    fn init(&mut self, layout: &Layout) {
        self.store.names = self.rule().arrays();
        self.rule().init_stateless(layout);
    }

    fn begin(&mut self, step: u64, learning_rate: f64) {
        self.optimizer.begin(step, learning_rate);
    }

    fn update(&mut self, update: Update<'_>) {
        let (Some(memory), Some(rule)) = (&self.store.memory, self.optimizer.rule()) else { return };
        let mut state: [&mut [f32]; MOST_ARRAYS] = Default::default();
        for (array, state) in state.iter_mut().enumerate().take(memory.arrays()) {
            // SAFETY: an update is of elements of a block that this worker owns, and arrays do not overlap.
            *state = unsafe { memory.state(array, update.range.clone()) };
        }
        rule.update_with(update, &mut state[..memory.arrays()]);
    }

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        Vec::new()
    }

    fn store(&mut self) -> Option<&mut dyn StateStore> {
        Some(&mut self.store)
    }
}

impl StateStore for MemoryStore {
    fn names(&self) -> &[&'static str] {
        &self.names
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
