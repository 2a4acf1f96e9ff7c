//! Values from elsewhere into a module, before it is trained.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use kolo_ddp::{Kind, ParamSpec};

use crate::hook::order_of;
use crate::tensors;

/// The module with other values. `values` is asked, tensor by tensor in the module's order, for those of the
/// float tensor at a path (`layer1.0.conv1.weight`) with a shape, in row-major order; for `None` a tensor
/// stays as it is. Memory orders, devices and what is trained stay, too.
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
    let mut mapper = Replace { path: Vec::new(), values, error: None };
    let module = module.map(&mut mapper);
    mapper.error.map_or(Ok(module), Err)
}

struct Replace<F, E> {
    path: Vec<String>,
    values: F,
    error: Option<E>,
}

impl<F, E> ModuleMapper for Replace<F, E>
where
    F: FnMut(&str, &[usize]) -> Result<Option<Vec<f32>>, E>,
{
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.error.is_some() {
            return param;
        }
        let (name, old) = (self.path.join("."), param.val());
        let shape = old.dims().to_vec();
        let values = match (self.values)(&name, &shape) {
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
        let spec = ParamSpec { name, shape, kind: Kind::Statistic, order };
        param.map(|old| tensors::tensor(values, &spec, &old.device()).set_require_grad(old.is_require_grad()))
    }
}
