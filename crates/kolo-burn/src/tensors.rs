//! A module's tensors as one flat run of `f32`, and back.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamMapper};
use burn::tensor::{DType, Device, GradientCheckpointingStrategy, Tensor, TensorData};

use kolo_ddp::binding::{Inventory, Values, Which};
use kolo_ddp::{Kind, MemoryOrder, ParamSpec};

use crate::Error;
use crate::hook::{Nodes, node_of, order_of};
use crate::tensor_list::{Retie, TensorList, Ties};

/// Names, shapes and values of float tensors. Those that do not require gradients are statistics: they are
/// what the forward pass changes, such as running means, or frozen, and then they do not change at all.
pub(crate) fn inventory<M: Module>(module: &M, which: Which, list: &TensorList) -> Result<Inventory, Error> {
    let mut visitor = Read { which, list, next: 0, found: Inventory::default(), error: None };
    // Running statistics keep their newest value aside until they are synchronised, which making a validation
    // copy does.
    drop(module.valid());
    module.visit(&mut visitor);
    match visitor.error {
        Some(error) => Err(error),
        None => Ok(visitor.found),
    }
}

struct Read<'a> {
    which: Which,
    list: &'a TensorList,
    next: usize,
    found: Inventory,
    error: Option<Error>,
}

impl Read<'_> {
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

impl ModuleVisitor for Read<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let listed = &self.list.listed()[self.next];
        self.next += 1;
        let kind = listed.kind;
        if listed.is_tied || (self.which == Which::Statistics && kind != Kind::Statistic) {
            return;
        }
        let (name, tensor) = (listed.name.clone(), param.val());
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
pub(crate) fn nodes<M: Module>(module: &M, list: &TensorList) -> Nodes {
    struct Find<'a> {
        list: &'a TensorList,
        next: usize,
        nodes: Nodes,
    }
    impl ModuleVisitor for Find<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let span = self.list.listed()[self.next].span;
            self.next += 1;
            let tensor = param.val();
            let node = node_of(tensor.clone());
            self.nodes.extend(node.map(|node| (node, (span, order_of(tensor)))));
        }
    }
    let mut visitor = Find { list, next: 0, nodes: Nodes::new() };
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
pub(crate) fn copy_with_own_leaves<M: Module>(module: &M, list: &TensorList) -> M {
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
    // Going to validation and back loses the strategy, and makes one leaf that stands at several places many.
    let copy = module.valid().train().map(&mut strategy);
    match list.has_ties() {
        true => copy.map(&mut Retie { list, next: 0, ties: Ties::default() }),
        false => copy,
    }
}

/// Writes new values into the module: trained parameters take theirs when they are first used, statistics at
/// once.
pub(crate) fn write<M: Module>(module: M, which: Which, list: &TensorList, values: &Values) -> M {
    module.map(&mut Write { which, list, values, next: 0, ties: Ties::default() })
}

struct Write<'a> {
    which: Which,
    list: &'a TensorList,
    values: &'a Values,
    next: usize,
    ties: Ties,
}

impl ModuleMapper for Write<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let listed = &self.list.listed()[self.next];
        self.next += 1;
        let (id, statistic) = (listed.span, listed.kind == Kind::Statistic);
        if self.which == Which::Statistics && !statistic {
            return param;
        }
        let (spec, newest) = (self.values.layout().span(id).spec.clone(), self.values.of(id));
        let tensor = move |device: &Device| tensor::<D>(newest.wait(), &spec, device);
        if statistic {
            return param.map(|old| tensor(&old.device()));
        }
        if let Some(first) = self.ties.first(listed) {
            return first;
        }
        let (in_memory, device) = (param.lazy_shape(), param.lazy_device());
        let new = Param::uninitialized(
            param.id,
            move |device, trained| tensor(device).set_require_grad(trained),
            device,
            true,
            in_memory,
        );
        let new = match listed.mapper.downcast_ref::<ParamMapper<Tensor<D>>>() {
            Some(mapper) => {
                let (load, save) = (mapper.clone(), mapper.clone());
                new.load_mapper(move |x| load.on_load(x)).save_mapper(move |x| save.on_save(x))
            }
            None => new,
        };
        self.ties.keep(listed, self.list, &new);
        new
    }
}
