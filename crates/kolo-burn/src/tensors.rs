//! A module's tensors as one flat run of `f32`, and back.

use std::any::Any;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamMapper};
use burn::tensor::{DType, Device, GradientCheckpointingStrategy, Tensor, TensorData};

use kolo_ddp::binding::{Inventory, Values, Which};
use kolo_ddp::{Kind, MemoryOrder, ParamSpec, SpanId};

use crate::Error;
use crate::hook::{Nodes, node_of, order_of};

/// Names, shapes and values of float tensors. Those that do not require gradients are statistics: they are
/// what the forward pass changes, such as running means, or frozen, and then they do not change at all.
pub(crate) fn inventory<M: Module>(module: &M, which: Which) -> Result<Inventory, Error> {
    let mut visitor = Read { path: Vec::new(), which, found: Inventory::default(), error: None };
    // Running statistics keep their newest value aside until they are synchronised, which making a validation
    // copy does.
    drop(module.valid());
    module.visit(&mut visitor);
    match visitor.error {
        Some(error) => Err(error),
        None => Ok(visitor.found),
    }
}

struct Read {
    path: Vec<String>,
    which: Which,
    found: Inventory,
    error: Option<Error>,
}

impl Read {
    /// Reads the elements as they lie in memory, and says in which order that is.
    fn read<const D: usize>(&mut self, name: &str, tensor: Tensor<D>) -> Result<MemoryOrder, Error> {
        let parameter = || name.to_owned();
        if tensor.dtype() != DType::F32 {
            return Err(Error::DType { parameter: parameter(), dtype: tensor.dtype() });
        }
        let unreadable = |cause: String| Error::Read { parameter: parameter(), cause };
        let order = order_of(tensor.clone());
        let data = tensor
            .permute(axes::<D>(&order))
            .try_into_data()
            .map_err(|cause| unreadable(cause.to_string()))?;
        let values = data.as_slice::<f32>().map_err(|cause| unreadable(format!("{cause:?}")))?;
        self.found.values.extend_from_slice(values);
        Ok(order)
    }
}

impl ModuleVisitor for Read {
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
        let shape = tensor.dims().to_vec();
        let order = self.read(&name, tensor).unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            MemoryOrder::row_major()
        });
        self.found.specs.push(ParamSpec { name, shape, kind, order });
    }
}

/// The axes of a tensor as they lie in memory, outermost first.
fn axes<const D: usize>(order: &MemoryOrder) -> [usize; D] {
    order.axes(D).try_into().expect("as many axes as the tensor has")
}

/// A tensor of this shape from its elements in memory order.
pub(crate) fn tensor<const D: usize>(values: Vec<f32>, spec: &ParamSpec, device: &Device) -> Tensor<D> {
    if spec.order.is_row_major() {
        return Tensor::from_data(TensorData::new(values, spec.shape.clone()), device);
    }
    let in_memory = axes::<D>(&spec.order).map(|axis| spec.shape[axis]);
    let back: [usize; D] = spec.order.inverse_axes(D).try_into().expect("as many axes as the tensor has");
    Tensor::from_data(TensorData::new(values, in_memory), device).permute(back)
}

/// The graph nodes of all trained parameters. They are new after every write.
pub(crate) fn nodes<M: Module>(module: &M) -> Nodes {
    struct Find {
        next: usize,
        nodes: Nodes,
    }
    impl ModuleVisitor for Find {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let tensor = param.val();
            let node = node_of(tensor.clone());
            self.nodes.extend(node.map(|node| (node, (SpanId(self.next), order_of(tensor)))));
            self.next += 1;
        }
    }
    let mut visitor = Find { next: 0, nodes: Nodes::new() };
    module.visit(&mut visitor);
    visitor.nodes
}

/// Gives every parameter that waits for its values these values.
pub(crate) fn initialise<M: Module>(module: &M) {
    struct Touch;
    impl ModuleVisitor for Touch {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            // To look at the value is to initialise it.
            let _: &Tensor<D> = param;
        }
    }
    module.visit(&mut Touch);
}

/// A copy whose parameters are leaves of its own and whose running statistics are its own; values are shared.
/// Burn keeps the graphs of all that comes from one leaf under one lock, also while it goes through one of
/// them.
pub(crate) fn copy_with_own_leaves<M: Module>(module: &M) -> M {
    struct Strategy(Option<GradientCheckpointingStrategy>);
    impl ModuleVisitor for Strategy {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0 = self.0.or_else(|| param.val().gradient_checkpointing_strategy());
        }
    }
    impl ModuleMapper for Strategy {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            match self.0 {
                Some(strategy) => param.map(|tensor| tensor.with_gradient_checkpointing_strategy(strategy)),
                None => param,
            }
        }
    }
    let mut strategy = Strategy(None);
    module.visit(&mut strategy);
    // Going to validation and back loses the strategy.
    module.valid().train().map(&mut strategy)
}

/// How each tensor of a module changes on its way to and from a file (a `Linear` may be transposed there). A
/// lazy parameter begins without; they are of the type `ParamMapper<Tensor<D>>` for its own `D`.
pub(crate) struct Mappers(Vec<Box<dyn Any + Send + Sync>>);

impl Mappers {
    pub(crate) fn of<M: Module>(module: &M) -> Self {
        let mut mappers = Mappers(Vec::new());
        module.visit(&mut mappers);
        mappers
    }
}

impl ModuleVisitor for Mappers {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let (_, _, mapper) = param.clone().consume();
        self.0.push(Box::new(mapper));
    }
}

/// Writes new values into the module: trained parameters take theirs when they are first used, statistics at
/// once.
pub(crate) fn write<M: Module>(module: M, which: Which, mappers: &Mappers, values: &Values) -> M {
    module.map(&mut Write { which, mappers, values, next: 0 })
}

struct Write<'a> {
    which: Which,
    mappers: &'a Mappers,
    values: &'a Values,
    next: usize,
}

impl ModuleMapper for Write<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let id = SpanId(self.next);
        self.next += 1;
        let spec = self.values.layout().span(id).spec.clone();
        let statistic = spec.kind == Kind::Statistic;
        if self.which == Which::Statistics && !statistic {
            return param;
        }
        let newest = self.values.of(id);
        let in_memory = param.lazy_shape();
        let tensor = move |device: &Device| tensor::<D>(newest.wait(), &spec, device);
        if statistic {
            return param.map(|old| tensor(&old.device()));
        }
        let device = param.lazy_device();
        let new = Param::uninitialized(
            param.id,
            move |device, trained| tensor(device).set_require_grad(trained),
            device,
            true,
            in_memory,
        );
        match self.mappers.0[id.0].downcast_ref::<ParamMapper<Tensor<D>>>() {
            Some(mapper) => {
                let (load, save) = (mapper.clone(), mapper.clone());
                new.load_mapper(move |x| load.on_load(x)).save_mapper(move |x| save.on_save(x))
            }
            None => new,
        }
    }
}
