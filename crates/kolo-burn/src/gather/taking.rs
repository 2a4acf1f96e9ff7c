//! Values of a module that are made, read and freed one by one: they are never in memory all at once.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Bool, Int, Tensor};
use kolo_ddp::binding::{Inventory, TakeValues, Which, give_back};
use kolo_ddp::{BLOCK, Element, Kind, ParamSpec};

use super::leaf_without_memory;
use crate::Error;
use crate::tensor_list::TensorList;
use crate::tensors::Read;

/// Hands over all tensors of a module; each trained one of at least a block then holds no values.
pub(crate) fn hand_over<M: Module>(
    module: M,
    list: &TensorList,
    taker: &mut dyn TakeValues,
) -> (M, Result<Inventory, Error>) {
    let mut find =
        Find { list, next: 0, is_divided: false, found: None, specs: Vec::new(), others: Vec::new() };
    module.visit(&mut find);
    if let Some(parameter) = find.found {
        return (module, Err(Error::Reparameterized { parameter }));
    }
    taker.begin(&[find.specs, find.others].concat());
    let mut take = |values: &[f32]| taker.take(values);
    let mut take = Take { read: Read::new(Which::All, list, &mut take), list, next: 0 };
    let module = module.map(&mut take);
    (module, take.read.end())
}

/// Finds the tensors of a module, and the first parameter to be divided that has a reparameterization
/// already: Burn keeps one only. Makes no values.
struct Find<'a> {
    list: &'a TensorList,
    next: usize,
    /// True if the last tensor is to be divided.
    is_divided: bool,
    found: Option<String>,
    specs: Vec<ParamSpec>,
    /// Tensors of integers and truth values.
    others: Vec<ParamSpec>,
}

impl Find<'_> {
    fn add_other(&mut self, shape: &[usize], element: Element) {
        let name = self.list.other(self.others.len()).0;
        self.others.push(ParamSpec { element, ..ParamSpec::new(name, shape.to_vec(), Kind::Frozen) });
    }
}

impl ModuleVisitor for Find<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let listed = &self.list.listed()[self.next];
        self.next += 1;
        let shape = param.lazy_shape();
        self.is_divided = listed.kind.is_trained() && shape.num_elements() >= BLOCK;
        if !listed.is_tied {
            self.specs.push(ParamSpec::new(listed.name.clone(), shape.to_vec(), listed.kind));
        }
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.add_other(&param.lazy_shape(), Element::I64);
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.add_other(&param.lazy_shape(), Element::Bool);
    }

    fn enter_module(&mut self, _: &str, container_type: &str) {
        // Burn visits a parameter and then its reparameterization.
        if container_type == "Reparameterization" && self.is_divided {
            self.found.get_or_insert_with(|| self.list.listed()[self.next - 1].name.clone());
        }
    }
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
