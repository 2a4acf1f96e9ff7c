//! Outline of a module: a copy in which parameters that have no values yet get none.
//!
//! Burn makes the values of most parameters at their first use. A job that divides them makes one after
//! another and drops it, so nothing may use all of them before.

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Bool, Int, Tensor};

use crate::gather::zeros_without_memory;

/// Copies a module. Parameters that have no values yet are zeros in the copy, which take no memory; they have
/// the same ids, mappers, devices and roles in training.
///
/// Makes all values of a module in which several parameters with one id have none, because only values tell
/// whether they are one parameter; and of one with integers that have none, so that the order in which
/// values are made, and with it a random generator's numbers, is always that of the module.
pub(crate) fn outline<M: Module>(module: &M) -> M {
    let mut missing = Missing::default();
    module.visit(&mut missing);
    if missing.are_needed {
        drop(module.valid());
    }
    module.clone().map(&mut StandIn)
}

/// Parameters without values.
#[derive(Default)]
struct Missing {
    /// True for each id of a parameter without values.
    ids: HashMap<ParamId, bool>,
    are_needed: bool,
}

impl ModuleVisitor for Missing {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let is_missing = !param.is_initialized();
        let earlier = self.ids.insert(param.id, is_missing);
        self.are_needed |= earlier.is_some_and(|earlier| earlier || is_missing);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.are_needed |= !param.is_initialized();
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.are_needed |= !param.is_initialized();
    }
}

/// Replaces parameters without values.
struct StandIn;

impl ModuleMapper for StandIn {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if param.is_initialized() {
            return param;
        }
        let zeros = zeros_without_memory(param.lazy_shape(), &param.lazy_device(), None);
        let id = param.id;
        // Of all functions of a parameter this one alone takes over its role without making its values.
        param.transform_for_load(zeros, id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, LinearLayout};
    use burn::tensor::Device;

    use super::*;
    use crate::tensor_list::TensorList;

    #[derive(Module, Debug)]
    struct Net {
        first: Linear,
        frozen: Linear,
        norm: BatchNorm,
        transposed: Linear,
    }

    impl Net {
        fn new(device: &Device, made: &Arc<AtomicUsize>) -> Self {
            let config = LinearConfig::new(3, 5);
            let mut net = Net {
                first: config.clone().init(device),
                frozen: config.clone().init(device).no_grad(),
                norm: BatchNormConfig::new(5).init(device),
                transposed: config.with_layout(LinearLayout::Col).init(device),
            };
            let made = made.clone();
            net.first.weight = net.first.weight.init_mapper(move |values| {
                made.fetch_add(1, Ordering::Relaxed);
                values
            });
            net
        }
    }

    fn listed(list: &TensorList) -> Vec<(String, kolo_ddp::Kind, kolo_ddp::SpanId, bool)> {
        let of = |listed: &crate::tensor_list::Listed| {
            (listed.name.clone(), listed.kind, listed.span, listed.is_tied)
        };
        list.listed().iter().map(of).collect()
    }

    #[test]
    fn an_outline_lists_the_same_tensors_and_makes_no_values() {
        for device in [Device::flex().autodiff(), Device::flex()] {
            let made = Arc::new(AtomicUsize::new(0));
            let net = Net::new(&device, &made);
            let of_outline = listed(&TensorList::of(&outline(&net)));
            assert_eq!(made.load(Ordering::Relaxed), 0);
            assert_eq!(of_outline, listed(&TensorList::of(&net)), "{device:?}");
            assert_eq!(made.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn values_that_tell_what_is_tied_are_made() {
        let device = Device::flex().autodiff();
        let made = Arc::new(AtomicUsize::new(0));
        let mut net = Net::new(&device, &made);
        net.frozen.weight = net.first.weight.clone();
        let list = TensorList::of(&outline(&net));
        assert_eq!(made.load(Ordering::Relaxed), 1, "once for both");
        assert_eq!(list.ties().collect::<Vec<_>>(), [("frozen.weight", "first.weight")]);
        let other = net.first.weight.clone().init_mapper(|values| values + 1.0);
        net.frozen.weight = other;
        assert_eq!(TensorList::of(&outline(&net)).ties().count(), 0);
    }
}
