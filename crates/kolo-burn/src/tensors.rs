//! Conversion of a module's tensors to one flat run of `f32`, and back.

use burn::backend::ExecutionError;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamMapper};
use burn::tensor::{Bool, DType, GradientCheckpointingStrategy, Int, Tensor, TensorData};

use kolo_ddp::binding::{Inventory, Values, Which};
use kolo_ddp::element::{integers, of_integers};
use kolo_ddp::{Element, Kind, MemoryOrder, ParamSpec};

use crate::Error;
use crate::flat_tensor::{axes, copied, newest};
use crate::hook::{Nodes, node_of, order_of};
use crate::tensor_list::{Retie, TensorList, Ties};

/// Returns names, shapes and values of a module's tensors: first those of floats, in the module's order, then
/// those of integers and truth values.
pub(crate) fn inventory<M: Module>(module: &M, which: Which, list: &TensorList) -> Result<Inventory, Error> {
    // Running statistics hold their newest value back until they are synchronized; making a validation copy
    // does that.
    drop(module.valid());
    let mut values = Vec::with_capacity(if which == Which::All { module.num_params() } else { 0 });
    let mut take = |read: &[f32]| values.extend_from_slice(read);
    let mut visitor = Read::new(which, list, &mut take);
    module.visit(&mut visitor);
    let inventory = visitor.end()?;
    Ok(Inventory { values, ..inventory })
}

/// Reads tensors one after another, in the module's order.
pub(crate) struct Read<'a> {
    which: Which,
    list: &'a TensorList,
    /// Takes the values of each tensor.
    take: &'a mut dyn FnMut(&[f32]),
    next: usize,
    specs: Vec<ParamSpec>,
    /// Tensors of integers and truth values, and their values.
    others: Vec<(ParamSpec, Vec<f32>)>,
    error: Option<Error>,
}

impl<'a> Read<'a> {
    pub(crate) fn new(which: Which, list: &'a TensorList, take: &'a mut dyn FnMut(&[f32])) -> Self {
        Read { which, list, take, next: 0, specs: Vec::new(), others: Vec::new(), error: None }
    }

    /// Hands over what comes after all tensors of floats, and returns all tensors, without values.
    pub(crate) fn end(mut self) -> Result<Inventory, Error> {
        for (spec, values) in self.others {
            (self.take)(&values);
            self.specs.push(spec);
        }
        self.error.map_or(Ok(Inventory { specs: self.specs, ..Inventory::default() }), Err)
    }

    /// Reads the elements in memory order, and returns that order.
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
        (self.take)(values);
        Ok(order)
    }

    /// Reads a tensor of integers or truth values; `read` converts its data to values of flat memory.
    fn read_other(
        &mut self,
        element: Element,
        data: impl FnOnce() -> Result<TensorData, ExecutionError>,
        read: impl FnOnce(&TensorData) -> Vec<f32>,
    ) {
        let name = self.list.other(self.others.len()).0.to_owned();
        if self.which == Which::Statistics {
            return;
        }
        match data() {
            Ok(data) => {
                let spec = ParamSpec::new(name, data.shape().to_vec(), Kind::Frozen);
                self.others.push((ParamSpec { element, ..spec }, read(&data)));
            }
            Err(cause) => {
                self.error.get_or_insert(Error::Read { parameter: name, cause: cause.to_string() });
            }
        }
    }
}

impl ModuleVisitor for Read<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let listed = &self.list.listed()[self.next];
        self.next += 1;
        let kind = listed.kind;
        if listed.is_tied || !is_among(kind, self.which) {
            return;
        }
        let (name, tensor) = (listed.name.clone(), param.val());
        let shape = tensor.dims().to_vec();
        let order = self.read(&name, tensor).unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            MemoryOrder::row_major()
        });
        self.specs.push(ParamSpec { order, ..ParamSpec::new(name, shape, kind) });
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.read_other(Element::I64, || param.val().try_into_data(), |data| of_integers(data.iter::<i64>()));
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        let read = |data: &TensorData| data.iter::<bool>().map(|value| f32::from(u8::from(value))).collect();
        self.read_other(Element::Bool, || param.val().try_into_data(), read);
    }
}

fn is_among(kind: Kind, which: Which) -> bool {
    match which {
        Which::All => true,
        Which::Changing => kind != Kind::Frozen,
        Which::Statistics => kind == Kind::Statistic,
    }
}

/// Returns the graph nodes of all trained parameters, which are new after every write.
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

/// Initializes every parameter that still waits for its values.
pub(crate) fn initialize<M: Module>(module: &M) {
    struct Touch;
    impl ModuleVisitor for Touch {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            // Dereferencing initializes the value.
            let _: &Tensor<D> = param;
        }
    }
    module.visit(&mut Touch);
}

/// Copies a module. The copy has new leaves and its own running statistics; values are shared. Burn holds one
/// lock for all graphs that stem from a leaf, even while it traverses one of them.
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
    // The way to validation and back loses the strategy, and splits a leaf that is in several places.
    let copy = module.valid().train().map(&mut strategy);
    match list.has_ties() {
        true => copy.map(&mut Retie { list, next: 0, ties: Ties::default() }),
        false => copy,
    }
}

/// Writes new values into the module. Trained parameters take theirs on first use, all others at once.
pub(crate) fn write<M: Module>(module: M, which: Which, list: &TensorList, values: &Values) -> M {
    let is_written = move |kind| is_among(kind, which);
    module.map(&mut Write { is_written, list, values, next: 0, next_other: 0, ties: Ties::default() })
}

/// Drops the tensors of trained parameters; each takes new values on first use.
pub(crate) fn release<M: Module>(module: M, list: &TensorList, values: &Values) -> M {
    let is_written = Kind::is_trained;
    module.map(&mut Write { is_written, list, values, next: 0, next_other: 0, ties: Ties::default() })
}

struct Write<'a, F> {
    is_written: F,
    list: &'a TensorList,
    values: &'a Values,
    next: usize,
    next_other: usize,
    ties: Ties,
}

impl<F: Fn(Kind) -> bool> Write<'_, F> {
    /// Returns the new values of the next tensor of integers or truth values, if it is written.
    fn next_other(&mut self) -> Option<Vec<f32>> {
        let id = self.list.other(self.next_other).1;
        self.next_other += 1;
        (self.is_written)(Kind::Frozen).then(|| self.values.of(id).wait())
    }
}

impl<F: Fn(Kind) -> bool> ModuleMapper for Write<'_, F> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let listed = &self.list.listed()[self.next];
        self.next += 1;
        let id = listed.span;
        // A divided parameter is gathered when it is used.
        if !(self.is_written)(listed.kind) || self.values.divided(id).is_some() {
            return param;
        }
        let (spec, values) = (self.values.layout().span(id).spec.clone(), self.values.of(id));
        if let Some(first) = self.ties.first(listed) {
            return first;
        }
        if !listed.kind.is_trained() {
            let new = param.map(|old| copied(values.wait(), &spec, &old.device()));
            self.ties.keep(listed, self.list, &new);
            return new;
        }
        let (in_memory, device) = (param.lazy_shape(), param.lazy_device());
        let new = Param::uninitialized(
            param.id,
            move |device, trained| newest(values, &spec, device).set_require_grad(trained),
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

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        let Some(values) = self.next_other() else { return param };
        param.map(|old| integers_like(&values, &old))
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        let Some(values) = self.next_other() else { return param };
        param.map(|old| truths_like(&values, &old))
    }
}

/// Creates a tensor of integers like `old` from values of flat memory.
pub(crate) fn integers_like<const D: usize>(values: &[f32], old: &Tensor<D, Int>) -> Tensor<D, Int> {
    let data = TensorData::new(integers(values), old.dims());
    Tensor::from_data(data, (&old.device(), old.dtype()))
}

/// Creates a tensor of truth values like `old` from values of flat memory.
pub(crate) fn truths_like<const D: usize>(values: &[f32], old: &Tensor<D, Bool>) -> Tensor<D, Bool> {
    let data = TensorData::new(values.iter().map(|value| *value != 0.0).collect::<Vec<bool>>(), old.dims());
    Tensor::from_data(data, (&old.device(), old.dtype()))
}
