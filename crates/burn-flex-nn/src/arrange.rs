//! Weights in the order in which convolutions read them.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Tensor, TensorData};

use crate::memory::{WEIGHTS, inverse};

/// Lays out the weights of all `Conv2d` layers of a module in the order in which [`conv2d`](crate::conv2d)
/// reads them. Shapes, names and values stay the same: each weight becomes a permuted view. Without this,
/// `conv2d` copies the weights in every call.
pub fn arrange<M: Module>(module: M) -> M {
    module.map(&mut Arrange { containers: Vec::new() })
}

struct Arrange {
    containers: Vec<String>,
}

impl ModuleMapper for Arrange {
    fn enter_module(&mut self, _: &str, container: &str) {
        self.containers.push(container.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.containers.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if D != WEIGHTS.len() || self.containers.last().is_none_or(|container| container != "Struct:Conv2d") {
            return param;
        }
        param.map(|tensor| {
            let (device, trained, dims) = (tensor.device(), tensor.is_require_grad(), tensor.dims());
            let order: [usize; D] = WEIGHTS.as_slice().try_into().expect("four dimensions");
            let back: [usize; D] = inverse(&WEIGHTS).as_slice().try_into().expect("four dimensions");
            let values: Vec<f32> = tensor.detach().permute(order).into_data().iter().collect();
            let data = TensorData::new(values, order.map(|axis| dims[axis]));
            Tensor::from_data(data, &device).permute(back).set_require_grad(trained)
        })
    }
}
