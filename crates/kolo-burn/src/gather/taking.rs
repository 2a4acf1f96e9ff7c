//! Values of a module that are read and freed one by one: they are never in memory twice.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Bool, Int, Tensor};
use kolo_ddp::BLOCK;
use kolo_ddp::binding::{Inventory, Which};

use super::leaf_without_memory;
use crate::Error;
use crate::tensor_list::TensorList;
use crate::tensors::Read;

/// Does the same as an inventory of all tensors; each trained one of at least a block then holds no values.
pub(crate) fn take_inventory<M: Module>(module: M, list: &TensorList) -> (M, Result<Inventory, Error>) {
    let mut take = Take { read: Read::new(Which::All, list), list, next: 0 };
    take.read.begin(&module);
    let module = module.map(&mut take);
    (module, take.read.end())
}

struct Take<'a> {
    read: Read<'a>,
    list: &'a TensorList,
    next: usize,
}

impl ModuleMapper for Take<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let is_trained = self.list.listed()[self.next].kind.is_trained();
        self.next += 1;
        self.read.visit_float(&param);
        let is_large = param.shape().num_elements() >= BLOCK;
        if is_trained && is_large { param.map(|old| leaf_without_memory(&old)) } else { param }
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        self.read.visit_int(&param);
        param
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        self.read.visit_bool(&param);
        param
    }
}
