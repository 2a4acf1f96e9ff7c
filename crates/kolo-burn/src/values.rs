//! Values from elsewhere into a module, before it is trained.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use kolo_ddp::{Kind, ParamSpec};

use crate::hook::order_of;
use crate::tensor_list::{TensorList, Ties};
use crate::tensors;

/// The module with other values. `values` is asked, tensor by tensor in the module's order, for those of the
/// float tensor at a path (`layer1.0.conv1.weight`) with a shape, in row-major order; for `None` a tensor
/// stays as it is. Memory orders, devices and what is trained stay, too. A parameter that stands at several
/// places ([`tied`]) is asked for once, at the first of them.
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
    values: impl FnMut(&str, &[usize]) -> Result<Option<Vec<f32>>, E>,
) -> Result<M, E> {
    let list = TensorList::of(&module);
    let mut mapper = Replace { list: &list, next: 0, ties: Ties::default(), values, error: None };
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
    ties: Ties,
    values: F,
    error: Option<E>,
}

impl<F, E> Replace<'_, F, E>
where
    F: FnMut(&str, &[usize]) -> Result<Option<Vec<f32>>, E>,
{
    fn replace<const D: usize>(&mut self, name: &str, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let old = param.val();
        let shape = old.dims().to_vec();
        let values = match (self.values)(name, &shape) {
            Ok(Some(values)) => values,
            Ok(None) => return param,
            Err(error) => {
                self.error = Some(error);
                return param;
            }
        };
        assert_eq!(values.len(), shape.iter().product::<usize>(), "values of `{name}`, {shape:?}");
        let order = order_of(old);
        let values = order.row_major_indices(&shape).map(|index| values[index]).collect();
        let spec = ParamSpec { name: name.into(), shape, kind: Kind::Statistic, order };
        param.map(|old| tensors::tensor(values, &spec, &old.device()).set_require_grad(old.is_require_grad()))
    }
}

impl<F, E> ModuleMapper for Replace<'_, F, E>
where
    F: FnMut(&str, &[usize]) -> Result<Option<Vec<f32>>, E>,
{
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.error.is_some() {
            return param;
        }
        let listed = &self.list.listed()[self.next];
        self.next += 1;
        if let Some(first) = self.ties.first(listed) {
            return first;
        }
        let param = self.replace(&listed.name, param);
        self.ties.keep(listed, self.list, &param);
        param
    }
}
