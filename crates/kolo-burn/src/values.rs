//! Initialization of a module with given values.

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use kolo_ddp::{Element, Kind, ParamSpec};

use crate::hook::order_of;
use crate::tensor_list::{TensorList, Ties};
use crate::{flat_tensor, tensors};

/// Makes a trained parameter whose elements get their values at its first use, each by its row-major index.
/// With values that are divided among ranks ([`Sharding::Parameters`](kolo_ddp::Sharding)), no rank then has
/// more than one such parameter at the start.
///
/// ```
/// use burn::tensor::Device;
///
/// let weight = kolo_burn::lazy_param([2, 2], &Device::flex(), |index| index as f32);
/// assert_eq!(weight.val().into_data().to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0]);
/// ```
pub fn lazy_param<const D: usize>(
    shape: [usize; D],
    device: &Device,
    value: impl Fn(u64) -> f32 + Send + Sync + 'static,
) -> Param<Tensor<D>> {
    let make = move |device: &Device, is_trained: bool| {
        let values: Vec<f32> = (0..shape.iter().product::<usize>() as u64).map(value).collect();
        let values = TensorData::new(values, shape);
        let tensor = device.memory_persistent_allocations(values, |values| Tensor::from_data(values, device));
        tensor.set_require_grad(is_trained)
    };
    Param::uninitialized(ParamId::new(), make, device.clone(), true, shape.into())
}

/// Replaces the values of a module before it is trained. For each tensor, in the module's order, calls
/// `values` with path (such as `layer1.0.conv1.weight`), shape and element type. The result is in row-major
/// order, with each element in the form of flat memory ([`Element`]); `None` keeps the tensor. Memory orders,
/// devices and trainability stay the same. A parameter in several places ([`tied`]) causes one call, for the
/// first place.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::Device;
///
/// let layer = LinearConfig::new(2, 1).init(&Device::flex());
/// let layer = kolo_burn::with_values(layer, |path, _, _| {
///     Ok::<_, std::convert::Infallible>((path == "weight").then(|| vec![3.0, 4.0]))
/// })?;
/// assert_eq!(layer.weight.val().into_data().to_vec::<f32>().unwrap(), [3.0, 4.0]);
/// # Ok::<(), std::convert::Infallible>(())
/// ```
///
/// # Errors
///
/// Returns the first error of `values`.
///
/// # Panics
///
/// Panics if `values` returns another number of elements than the shape has.
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

/// Returns the places of a module whose parameter is also in an earlier place, as after `b.weight =
/// a.weight.clone()`: the path of each, and of the first place.
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
    /// Returns the new values of a tensor, if it gets any.
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

    /// Returns the new values of the next tensor of integers or truth values, if it gets any.
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
        param.map(|old| {
            flat_tensor::copied(values, &spec, &old.device()).set_require_grad(old.is_require_grad())
        })
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
