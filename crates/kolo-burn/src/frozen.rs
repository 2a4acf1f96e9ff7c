//! Check that frozen tensors never change.
//!
//! After the first step, ranks no longer exchange frozen tensors, so a change in a forward pass would make
//! them diverge. The memory of a tensor is shared and never changes under its holder. Comparing addresses is
//! therefore enough and costs nothing; only a tensor at another address is compared by value. On a device
//! whose memory Kolo cannot see, nothing is checked.

use std::any::Any;

#[cfg(feature = "cubecl")]
use burn::backend::Cube;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Bool, Int, Tensor};

use kolo_ddp::Kind;

use crate::Error;
use crate::backend::{HostMemory, on_backends};
use crate::tensor_list::{TensorList, are_equal};

on_backends! {
    /// Address of a tensor, on backends where it is visible.
    trait Address: Backend {
        fn of_floats(_tensor: FloatTensor<Self>) -> Option<usize> {
            None
        }

        fn of_integers(_tensor: IntTensor<Self>) -> Option<usize> {
            None
        }

        fn of_truths(_tensor: BoolTensor<Self>) -> Option<usize> {
            None
        }
    }
}

impl Address for Flex {
    fn of_floats(tensor: FloatTensor<Self>) -> Option<usize> {
        Some(tensor.bytes().as_ptr().addr())
    }

    fn of_integers(tensor: IntTensor<Self>) -> Option<usize> {
        Some(tensor.bytes().as_ptr().addr())
    }

    fn of_truths(tensor: BoolTensor<Self>) -> Option<usize> {
        Some(tensor.bytes().as_ptr().addr())
    }
}

#[cfg(feature = "cubecl")]
impl Address for Cube {}

impl<B: HostMemory + Address, C: CheckpointStrategy> Address for Autodiff<B, C> {
    fn of_floats(tensor: FloatTensor<Self>) -> Option<usize> {
        B::of_floats(tensor.into_parts().0)
    }

    fn of_integers(tensor: IntTensor<Self>) -> Option<usize> {
        B::of_integers(tensor)
    }

    fn of_truths(tensor: BoolTensor<Self>) -> Option<usize> {
        B::of_truths(tensor)
    }
}

/// Returns the address of a tensor of floats, if it is visible.
pub(crate) fn address<const D: usize>(tensor: &Tensor<D>) -> Option<usize> {
    <Dispatch as Address>::of_floats(tensor.clone().into_dispatch())
}

/// Frozen tensors of a module as last written: `Tensor`s of floats, integers and truth values.
#[derive(Default)]
pub(crate) struct FrozenTensors(Vec<Box<dyn Any + Send + Sync>>);

impl FrozenTensors {
    pub(crate) fn of<M: Module>(module: &M, list: &TensorList) -> Self {
        let mut visitor = Visit { list, next: 0, next_other: 0, see: Keep(Vec::new()) };
        module.visit(&mut visitor);
        FrozenTensors(visitor.see.0)
    }

    /// Compares a module with the frozen tensors.
    /// Returns an error with the name of the first frozen tensor that changed.
    pub(crate) fn expect_in<M: Module>(&self, module: &M, list: &TensorList) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        let see = Compare { kept: &self.0, next: 0, changed: None };
        let mut visitor = Visit { list, next: 0, next_other: 0, see };
        module.visit(&mut visitor);
        match visitor.see.changed {
            None => Ok(()),
            Some(parameter) => Err(Error::FrozenChanged { parameter }),
        }
    }
}

/// Operation on each frozen tensor; `same` compares two of them.
trait See {
    fn see<T: Send + Sync + 'static>(&mut self, name: &str, tensor: T, same: fn(&T, &T) -> bool);
}

struct Keep(Vec<Box<dyn Any + Send + Sync>>);

impl See for Keep {
    fn see<T: Send + Sync + 'static>(&mut self, _: &str, tensor: T, _: fn(&T, &T) -> bool) {
        self.0.push(Box::new(tensor));
    }
}

struct Compare<'a> {
    kept: &'a [Box<dyn Any + Send + Sync>],
    next: usize,
    changed: Option<String>,
}

impl See for Compare<'_> {
    fn see<T: Send + Sync + 'static>(&mut self, name: &str, tensor: T, same: fn(&T, &T) -> bool) {
        let kept = self.kept.get(self.next).and_then(|kept| kept.downcast_ref::<T>());
        self.next += 1;
        if !kept.is_some_and(|kept| same(kept, &tensor)) {
            self.changed.get_or_insert_with(|| name.to_owned());
        }
    }
}

struct Visit<'a, S> {
    list: &'a TensorList,
    next: usize,
    next_other: usize,
    see: S,
}

impl<S> Visit<'_, S> {
    fn name_of_other(&mut self) -> &str {
        self.next_other += 1;
        self.list.other(self.next_other - 1).0
    }
}

impl<S: See> ModuleVisitor for Visit<'_, S> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let listed = &self.list.listed()[self.next];
        self.next += 1;
        if listed.kind == Kind::Frozen {
            self.see.see(&listed.name, param.val(), |one: &Tensor<D>, other| {
                address(one) == address(other) || are_equal(one, other)
            });
        }
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        let name = self.name_of_other().to_owned();
        self.see.see(&name, param.val(), |one: &Tensor<D, Int>, other| {
            let address =
                |tensor: &Tensor<D, Int>| <Dispatch as Address>::of_integers(tensor.clone().into_dispatch());
            address(one) == address(other) || are_equal(one, other)
        });
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        let name = self.name_of_other().to_owned();
        self.see.see(&name, param.val(), |one: &Tensor<D, Bool>, other| {
            let address =
                |tensor: &Tensor<D, Bool>| <Dispatch as Address>::of_truths(tensor.clone().into_dispatch());
            address(one) == address(other) || are_equal(one, other)
        });
    }
}
