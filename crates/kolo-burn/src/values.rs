//! Values from elsewhere into a module, before it is trained.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Bool, Int, Tensor};
use kolo_ddp::{Element, Kind, ParamSpec};

use crate::hook::order_of;
use crate::tensor_list::{TensorList, Ties};
use crate::tensors;

/// The module with other values. `values` is asked, tensor by tensor in the module's order, for those of the
/// tensor at a path (`layer1.0.conv1.weight`) with a shape and a type of elements, in row-major order, each
/// element as flat memory has it ([`Element`]); for `None` a tensor stays as it is. Memory orders, devices
/// and what is trained stay, too. A parameter that stands at several places ([`tied`]) is asked for once, at
/// the first of them.
///
/// # Errors
///
/// The first one of `values`.
///
/// # Panics
///
/// If `values` gives another number of elements than the shape has.
pub fn with_values<M: Module, E>(
    module: M,
    values: impl FnMut(&str, &[usize], Element) -> Result<Option<Vec<f32>>, E>,
) -> Result<M, E> {
    let list = TensorList::of(&module);
    let mut mapper =
        Replace { list: &list, next: 0, next_other: 0, ties: Ties::default(), values, error: None };
    let module = module.map(&mut mapper);
    mapper.error.map_or(Ok(module), Err)
}

/// The places of a module whose parameter stands at another one, too, as with
/// `b.weight = a.weight.clone()`: the path of each, and that of the first place.
pub fn tied<M: Module>(module: &M) -> Vec<(String, String)> {
    let list = TensorList::of(module);
    list.ties().map(|(path, first)| (path.to_owned(), first.to_owned())).collect()
}

struct Replace<'a, F, E> {
    list: &'a TensorList,
    next: usize,
    next_other: usize,
    ties: Ties,
    values: F,
    error: Option<E>,
}

impl<F, E> Replace<'_, F, E>
where
    F: FnMut(&str, &[usize], Element) -> Result<Option<Vec<f32>>, E>,
{
    /// The values of a tensor, if it gets others.
    fn ask(&mut self, name: &str, shape: &[usize], element: Element) -> Option<Vec<f32>> {
        if self.error.is_some() {
            return None;
        }
        let values = (self.values)(name, shape, element).unwrap_or_else(|error| {
            self.error = Some(error);
            None
        })?;
        let needed = shape.iter().product::<usize>() * element.values();
        assert_eq!(values.len(), needed, "values of `{name}`, {shape:?}");
        Some(values)
    }

    /// The values of the next tensor of integers or truth values, if it gets others.
    fn ask_next_other(&mut self, shape: &[usize], element: Element) -> Option<Vec<f32>> {
        let name = self.list.other(self.next_other).0;
        self.next_other += 1;
        self.ask(name, shape, element)
    }

    fn replace<const D: usize>(&mut self, name: &str, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let old = param.val();
        let shape = old.dims().to_vec();
        let Some(values) = self.ask(name, &shape, Element::F32) else { return param };
        let order = order_of(old);
        let values = order.row_major_indices(&shape).map(|index| values[index]).collect();
        let spec = ParamSpec { order, ..ParamSpec::new(name, shape, Kind::Frozen) };
        param.map(|old| tensors::tensor(values, &spec, &old.device()).set_require_grad(old.is_require_grad()))
    }
}

impl<F, E> ModuleMapper for Replace<'_, F, E>
where
    F: FnMut(&str, &[usize], Element) -> Result<Option<Vec<f32>>, E>,
{
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let listed = &self.list.listed()[self.next];
        self.next += 1;
        if let Some(first) = self.ties.first(listed) {
            return first;
        }
        let param = self.replace(&listed.name, param);
        self.ties.keep(listed, self.list, &param);
        param
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        match self.ask_next_other(&param.val().dims(), Element::I64) {
            Some(values) => param.map(|old| tensors::integers_like(&values, &old)),
            None => param,
        }
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        match self.ask_next_other(&param.val().dims(), Element::Bool) {
            Some(values) => param.map(|old| tensors::truths_like(&values, &old)),
            None => param,
        }
    }
}
