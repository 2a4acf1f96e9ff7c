//! A module's tensors as one flat run of `f32`, and back.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor, TensorData};

use kolo_ddp::{Kind, Layout, ParamSpec, SpanId};

use crate::Error;
use crate::hook::{Nodes, node_of};

/// What a module consists of, in the order in which Burn visits it.
pub(crate) struct Inventory {
    pub(crate) specs: Vec<ParamSpec>,
    pub(crate) values: Vec<f32>,
}

/// Which tensors to read or write.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Which {
    All,
    Statistics,
}

/// Names, shapes and values of float tensors. Those that do not require gradients are statistics: they are what the
/// forward pass changes, such as running means, or frozen, and then they do not change at all.
pub(crate) fn inventory<M: Module>(module: &M, which: Which) -> Result<Inventory, Error> {
    let found = Inventory { specs: Vec::new(), values: Vec::new() };
    let mut visitor = Take { path: Vec::new(), which, found, error: None };
    // Running statistics keep their newest value aside until they are synchronised, which making a validation copy does.
    drop(module.valid());
    module.visit(&mut visitor);
    match visitor.error {
        Some(error) => Err(error),
        None => Ok(visitor.found),
    }
}

struct Take {
    path: Vec<String>,
    which: Which,
    found: Inventory,
    error: Option<Error>,
}

impl ModuleVisitor for Take {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        let kind = if tensor.is_require_grad() { Kind::Parameter { decay: true } } else { Kind::Statistic };
        if self.which == Which::Statistics && kind != Kind::Statistic {
            return;
        }
        let name = self.path.join(".");
        let data = tensor.into_data();
        if data.dtype() != DType::F32 {
            let problem = format!("parameter `{name}` is {:?}; Kolo trains f32", data.dtype());
            self.error.get_or_insert(Error::Backend(problem));
            return;
        }
        let shape = data.shape().iter().copied().collect();
        match data.as_slice::<f32>() {
            Ok(values) => self.found.values.extend_from_slice(values),
            Err(cause) => {
                self.error
                    .get_or_insert(Error::Backend(format!("parameter `{name}` cannot be read: {cause:?}")));
            }
        }
        self.found.specs.push(ParamSpec { name, shape, kind });
    }
}

/// The graph nodes of all trained parameters. They are new after every write.
pub(crate) fn nodes<M: Module>(module: &M) -> Result<Nodes, Error> {
    let mut visitor = Find { next: 0, nodes: Nodes::new(), error: None };
    module.visit(&mut visitor);
    match visitor.error {
        Some(error) => Err(error),
        None => Ok(visitor.nodes),
    }
}

struct Find {
    next: usize,
    nodes: Nodes,
    error: Option<Error>,
}

impl ModuleVisitor for Find {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        match node_of(param.val()) {
            Ok(Some(node)) => drop(self.nodes.insert(node, SpanId(self.next))),
            Ok(None) => {}
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
        self.next += 1;
    }
}

/// Writes values of the layout into the module.
pub(crate) fn write<M: Module>(module: M, layout: &Layout, values: &[f32], which: Which) -> M {
    module.map(&mut Write { layout, values, which, next: 0 })
}

struct Write<'a> {
    layout: &'a Layout,
    values: &'a [f32],
    which: Which,
    next: usize,
}

impl ModuleMapper for Write<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let span = &self.layout.spans()[self.next];
        self.next += 1;
        if self.which == Which::Statistics && span.spec.kind != Kind::Statistic {
            return param;
        }
        let values = self.values[span.range()].to_vec();
        let data = TensorData::new(values, span.spec.shape.clone());
        param.map(|old| {
            let trained = old.is_require_grad();
            Tensor::from_data(data, &old.device()).set_require_grad(trained)
        })
    }
}
