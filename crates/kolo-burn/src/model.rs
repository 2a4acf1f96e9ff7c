//! Burn module in the form that [`kolo_ddp::Ddp`] trains.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use burn::module::Module;
use kolo_ddp::binding::{Binding, BindingError, GradientSink, Inventory, TakeValues, Values, Which};

use crate::frozen::FrozenTensors;
use crate::gather::{self, Uses};
use crate::loss::Loss;
use crate::outline::outline;
use crate::tensor_list::TensorList;
use crate::{device, hook, tensors};

/// Burn module in training. It dereferences to the module, and keeps what new values must not change.
pub struct BurnModel<M> {
    /// Module; `None` only inside `write`.
    module: Option<M>,
    list: Arc<TensorList>,
    /// Uses of divided parameters.
    uses: Uses,
    /// Frozen tensors as last written.
    frozen: Arc<FrozenTensors>,
}

kolo_comm::opaque_debug!([M: fmt::Debug] BurnModel<M> { module });

impl<M: Module> BurnModel<M> {
    /// Returns the module.
    pub fn into_module(mut self) -> M {
        self.module.take().expect(HERE)
    }
}

impl<M: Module> BurnModel<M> {
    /// Replaces the parameters that are divided among the ranks, or takes their values if none is any more.
    fn divide_as(&mut self, values: &Values) {
        match (self.uses.divide(), gather::any_divided(&self.list, values)) {
            (false, true) => {
                let divided = self.module.take().map(|module| gather::divided(module, &self.list, values));
                (self.module, self.uses) = divided.map_or_else(Default::default, |(m, uses)| (Some(m), uses));
            }
            (true, false) => self.take_values(),
            _ => {}
        }
    }
}

const HERE: &str = "the module is away only inside `write`";

impl<M: Module> From<M> for BurnModel<M> {
    fn from(module: M) -> Self {
        let list = Arc::new(TensorList::of(&outline(&module)));
        BurnModel { list, uses: Uses::default(), frozen: Arc::default(), module: Some(module) }
    }
}

impl<M> Deref for BurnModel<M> {
    type Target = M;

    fn deref(&self) -> &M {
        self.module.as_ref().expect(HERE)
    }
}

/// Clones the module with new leaves for its parameters and its own running statistics; values are shared.
/// The backward passes of two clones can thus run at the same time.
impl<M: Module> Clone for BurnModel<M> {
    fn clone(&self) -> Self {
        let module = tensors::copy_with_own_leaves::<M>(self, &self.list);
        let (list, uses, frozen) = (self.list.clone(), self.uses.clone(), self.frozen.clone());
        BurnModel { module: Some(module), list, uses, frozen }
    }
}

impl<M: Module> Binding for BurnModel<M> {
    type Loss = Loss;

    fn inventory(&self, which: Which) -> Result<Inventory, BindingError> {
        let warnings = match which {
            Which::All => [device::check_model::<M>(self)?, self.list.check()?].concat(),
            Which::Changing | Which::Statistics => Vec::new(),
        };
        Ok(Inventory { warnings, ..tensors::inventory::<M>(self, which, &self.list)? })
    }

    fn count(&self) -> Option<usize> {
        Some(self.num_params())
    }

    fn hand_over(&mut self, taker: &mut dyn TakeValues) -> Result<Inventory, BindingError> {
        let outline = outline::<M>(self);
        let warnings = [device::check_model(&outline)?, self.list.check()?].concat();
        // Running statistics hold their newest value back until a validation copy is made, also of a copy.
        drop(outline.valid());
        drop(outline);
        let (module, inventory) = gather::hand_over(self.module.take().expect(HERE), &self.list, taker);
        self.module = Some(module);
        Ok(Inventory { warnings, ..inventory? })
    }

    fn write(&mut self, which: Which, values: &Values) {
        if which != Which::Statistics {
            self.uses.clear();
        }
        if which == Which::All {
            // Statistics that a failed forward pass has left would replace those that are written now.
            self.module.iter().for_each(|module| drop(module.valid()));
            self.divide_as(values);
        }
        let module = self.module.take();
        self.module = module.map(|module| tensors::write(module, which, &self.list, values));
        if which == Which::All {
            self.frozen = Arc::new(FrozenTensors::of::<M>(self, &self.list));
        }
    }

    fn release(&mut self, values: &Values) {
        let module = self.module.take();
        self.module = module.map(|module| tensors::release(module, &self.list, values));
    }

    fn backward(&self, loss: Loss, sink: Arc<dyn GradientSink>) -> Result<(), BindingError> {
        let mut nodes = tensors::nodes::<M>(self, &self.list);
        self.uses.add_to(&mut nodes);
        Ok(hook::backward(loss.sum, nodes, sink)?)
    }

    fn expect_frozen_unchanged(&self) -> Result<(), BindingError> {
        Ok(self.frozen.expect_in::<M>(self, &self.list)?)
    }

    fn take_values(&mut self) {
        if self.uses.divide() {
            self.module = self.module.take().map(|module| gather::whole(module, &self.list));
            self.uses = Uses::default();
        }
    }

    fn wait_for_values(&self) {
        tensors::initialize::<M>(self);
    }
}
