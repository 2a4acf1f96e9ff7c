//! Values of a module that are read and freed one by one: they are never in memory twice.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Bool, Int, Tensor};
use kolo_ddp::BLOCK;
use kolo_ddp::binding::{Inventory, Which, give_back};

use super::leaf_without_memory;
use crate::Error;
use crate::tensor_list::TensorList;
use crate::tensors::Read;

/// Does the same as an inventory of all tensors; each trained one of at least a block then holds no values.
pub(crate) fn take_inventory<M: Module>(module: M, list: &TensorList) -> (M, Result<Inventory, Error>) {
    if let Some(parameter) = reparameterized(&module, list) {
        return (module, Err(Error::Reparameterized { parameter }));
    }
    let mut take = Take { read: Read::new(Which::All, list), list, next: 0 };
    take.read.begin(&module);
    let module = module.map(&mut take);
    (module, take.read.end())
}

/// Returns the first parameter to be divided that has a reparameterization already: Burn keeps one only.
fn reparameterized<M: Module>(module: &M, list: &TensorList) -> Option<String> {
    struct Find<'a> {
        list: &'a TensorList,
        next: usize,
        /// True if the last tensor is to be divided.
        is_divided: bool,
        found: Option<String>,
    }
    impl ModuleVisitor for Find<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let is_trained = self.list.listed()[self.next].kind.is_trained();
            self.next += 1;
            self.is_divided = is_trained && param.lazy_shape().num_elements() >= BLOCK;
        }

        fn enter_module(&mut self, _: &str, container_type: &str) {
            // Burn visits a parameter and then its reparameterization.
            if container_type == "Reparameterization" && self.is_divided {
                self.found.get_or_insert_with(|| self.list.listed()[self.next - 1].name.clone());
            }
        }
    }
    let mut find = Find { list, next: 0, is_divided: false, found: None };
    module.visit(&mut find);
    find.found
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
        if !is_trained || !is_large {
            return param;
        }
        let param = param.map(|old| leaf_without_memory(&old));
        give_back();
        param
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
