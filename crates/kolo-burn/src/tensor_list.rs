//! Roles of a module's tensors in training: trained or not, and which of them are one parameter.

use std::any::Any;
use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use kolo_ddp::{Kind, SpanId};

use crate::Error;
use crate::hook::node_of;

/// Tensors of a module, in the order in which Burn visits them.
pub(crate) struct TensorList {
    listed: Vec<Listed>,
    /// Paths of the tensors of integers and truth values, which come after all others.
    others: Vec<String>,
    /// Number of tensors of floats; one that is in several places counts once.
    floats: usize,
}

pub(crate) struct Listed {
    /// Path in the module.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Index among Kolo's tensors.
    pub(crate) span: SpanId,
    /// True if an earlier tensor is the same parameter; this one takes its values.
    pub(crate) is_tied: bool,
    /// Transformation to and from files, for example a transposed `Linear`: a `ParamMapper<Tensor<D>>`. A
    /// lazy parameter starts without one.
    pub(crate) mapper: Box<dyn Any + Send + Sync>,
    /// Device, if the module means to train the tensor but nothing records its gradient.
    untracked: Option<Device>,
}

impl TensorList {
    /// Lists the tensors of a module before training.
    ///
    /// A parameter in several places of a module (`b.weight = a.weight.clone()`) is one. Its copies have one
    /// [`ParamId`] and one leaf of the graph, or, after loading a record, leaves with the same values.
    /// Tensors with one id but different values, such as a copy that was trained separately, are several
    /// parameters.
    pub(crate) fn of<M: Module>(module: &M) -> Self {
        // A copy in training mode shows which tensors the module means to train.
        let mut meant = Trained(Vec::new());
        let copy = module.valid().train();
        copy.visit(&mut meant);
        // Parameters can be switched to training; running statistics cannot.
        let mut could_be = Trained(Vec::new());
        copy.map(&mut Train).visit(&mut could_be);
        let mut list = List {
            path: Vec::new(),
            meant: meant.0,
            could_be: could_be.0,
            others: Vec::new(),
            found: Vec::new(),
            firsts: HashMap::new(),
            spans: 0,
        };
        module.visit(&mut list);
        TensorList { listed: list.found, others: list.others, floats: list.spans }
    }

    /// Returns the tensors of floats, one for each that Burn visits.
    pub(crate) fn listed(&self) -> &[Listed] {
        &self.listed
    }

    /// Returns path and id of a tensor of integers or truth values, by its index among them.
    pub(crate) fn other(&self, number: usize) -> (&str, SpanId) {
        (&self.others[number], SpanId(self.floats + number))
    }

    /// Returns true if any tensor is in several places.
    pub(crate) fn has_ties(&self) -> bool {
        self.listed.iter().any(|tensor| tensor.is_tied)
    }

    /// Returns each place of a repeated tensor, with the tensor's first place.
    pub(crate) fn ties(&self) -> impl Iterator<Item = (&str, &str)> {
        self.listed.iter().filter(|tensor| tensor.is_tied).filter_map(|tensor| {
            let first = self.listed.iter().find(|other| other.span == tensor.span)?;
            Some((tensor.name.as_str(), first.name.as_str()))
        })
    }

    /// Warns about tied parameters: a cloned layer may have been meant as a separate one.
    fn warnings(&self) -> Vec<String> {
        let mut ties = self.ties();
        let Some((name, first)) = ties.next() else { return Vec::new() };
        let others = match ties.count() {
            0 => String::new(),
            more => format!(", and {more} more like it"),
        };
        vec![format!(
            "`{name}` is the same parameter as `{first}` (they have one `ParamId`){others}: trained as one; where \
             it is to be another one, build the layer anew in place of cloning it"
        )]
    }

    /// Returns warnings for the user before training.
    /// Returns an error if a parameter would not be trained although others are and it is not frozen.
    pub(crate) fn check(&self) -> Result<Vec<String>, Error> {
        let untracked = |tensor: &Listed| {
            let device = format!("{:?}", tensor.untracked.as_ref()?.as_dispatch());
            Some(Error::Untracked { parameter: tensor.name.clone(), device })
        };
        self.listed.iter().find_map(untracked).map_or_else(|| Ok(self.warnings()), Err)
    }
}

/// For each float tensor of a module, true if it requires a gradient.
struct Trained(Vec<bool>);

impl ModuleVisitor for Trained {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.val().is_require_grad());
    }
}

/// Makes all parameters of a module require gradients.
struct Train;

impl ModuleMapper for Train {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.set_require_grad(true)
    }
}

/// Tensor that is not a copy of another: its kind, its span, and the `Tensor<D>` itself.
type First = (Kind, SpanId, Box<dyn Any>);

struct List {
    path: Vec<String>,
    /// True for tensors that the module means to train, and for those that it could.
    meant: Vec<bool>,
    could_be: Vec<bool>,
    others: Vec<String>,
    found: Vec<Listed>,
    /// Tensors of each id that are not copies.
    firsts: HashMap<ParamId, Vec<First>>,
    spans: usize,
}

impl List {
    /// Returns an earlier tensor that is the same parameter.
    fn first<const D: usize>(&self, id: ParamId, kind: Kind, tensor: &Tensor<D>) -> Option<SpanId> {
        let mut same = self.firsts.get(&id)?.iter().filter(|(other, ..)| *other == kind);
        let is_same = |other: &Tensor<D>| {
            let node = node_of(tensor.clone());
            (node.is_some() && node == node_of(other.clone())) || are_equal(tensor, other)
        };
        same.find(|(.., other)| other.downcast_ref().is_some_and(is_same)).map(|(_, span, _)| *span)
    }
}

/// Returns true if two tensors have the same shape and bits.
pub(crate) fn are_equal<const D: usize, K: Basic>(one: &Tensor<D, K>, other: &Tensor<D, K>) -> bool {
    let data = |tensor: &Tensor<D, K>| -> Option<TensorData> { tensor.clone().try_into_data().ok() };
    one.dims() == other.dims() && data(one).is_some_and(|one| data(other).is_some_and(|other| one == other))
}

impl ModuleVisitor for List {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let (id, tensor, mapper) = param.clone().consume();
        let is_trained = tensor.is_require_grad();
        let number = self.found.len();
        let is_meant = self.meant.get(number) == Some(&true);
        let kind = match (is_trained, self.could_be.get(number)) {
            (true, _) => Kind::Parameter { decay: true },
            (false, Some(true)) => Kind::Frozen,
            (false, _) => Kind::Statistic,
        };
        // Running statistics are never tied: each is what its own forward pass computes.
        let first = (kind != Kind::Statistic).then(|| self.first(id, kind, &tensor)).flatten();
        let span = first.unwrap_or(SpanId(self.spans));
        if first.is_none() {
            self.spans += 1;
            let untied: Box<dyn Any> = Box::new(tensor.clone());
            self.firsts.entry(id).or_default().push((kind, span, untied));
        }
        self.found.push(Listed {
            name: self.path.join("."),
            kind,
            span,
            is_tied: first.is_some(),
            mapper: Box::new(mapper),
            untracked: (is_meant && !is_trained).then(|| tensor.device()),
        });
    }

    fn visit_int<const D: usize>(&mut self, _: &Param<Tensor<D, Int>>) {
        self.others.push(self.path.join("."));
    }

    fn visit_bool<const D: usize>(&mut self, _: &Param<Tensor<D, Bool>>) {
        self.others.push(self.path.join("."));
    }
}

/// Keeps tied tensors tied in a pass over a module.
#[derive(Default)]
pub(crate) struct Ties {
    /// First parameter of each span: a `Param<Tensor<D>>`.
    firsts: HashMap<SpanId, Box<dyn Any>>,
}

impl Ties {
    /// Returns the parameter that replaces a tensor of the list, if an earlier one is the same.
    pub(crate) fn first<const D: usize>(&self, listed: &Listed) -> Option<Param<Tensor<D>>> {
        let first = self.firsts.get(&listed.span).filter(|_| listed.is_tied)?;
        first.downcast_ref().cloned()
    }

    /// Records the parameter that replaced a tensor of the list.
    pub(crate) fn keep<const D: usize>(
        &mut self,
        listed: &Listed,
        list: &TensorList,
        param: &Param<Tensor<D>>,
    ) {
        if list.has_ties() {
            self.firsts.insert(listed.span, Box::new(param.clone()));
        }
    }
}

/// Restores the ties of a module in its copy.
pub(crate) struct Retie<'a> {
    pub(crate) list: &'a TensorList,
    pub(crate) next: usize,
    pub(crate) ties: Ties,
}

impl ModuleMapper for Retie<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let listed = &self.list.listed[self.next];
        self.next += 1;
        if let Some(first) = self.ties.first(listed) {
            return first;
        }
        self.ties.keep(listed, self.list, &param);
        param
    }
}
