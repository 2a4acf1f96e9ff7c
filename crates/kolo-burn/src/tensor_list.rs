//! What each tensor of a module is to training: trained or not, and which of them are one parameter.

use std::any::Any;
use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use kolo_ddp::{Kind, SpanId};

use crate::Error;
use crate::hook::node_of;

/// The tensors of a module, in the order in which Burn visits them.
pub(crate) struct TensorList {
    listed: Vec<Listed>,
    /// Paths of the tensors of integers and of truth values, which stand behind all others.
    others: Vec<String>,
    /// Number of tensors of floats, of which one at several places counts once.
    floats: usize,
}

/// One tensor of floats of a module.
pub(crate) struct Listed {
    /// Path in the module.
    pub(crate) name: String,
    /// What it is for.
    pub(crate) kind: Kind,
    /// Which of Kolo's tensors it is.
    pub(crate) span: SpanId,
    /// Whether a tensor before it is the same parameter, whose values it takes.
    pub(crate) is_tied: bool,
    /// How it changes on its way to and from a file (a `Linear` may be transposed there): a
    /// `ParamMapper<Tensor<D>>`. A lazy parameter begins without.
    pub(crate) mapper: Box<dyn Any + Send + Sync>,
    /// Its device, where the module means to train it and nothing records its gradient.
    untracked: Option<Device>,
}

impl TensorList {
    /// Looks at a module before it is trained.
    ///
    /// A parameter that stands at several places of a module (`b.weight = a.weight.clone()`) is one: the
    /// copies have one [`ParamId`], and one leaf of the graph, or, as after loading a record, leaves with the
    /// same values. What has one id and other values, as a copy that was trained by itself, are several.
    pub(crate) fn of<M: Module>(module: &M) -> Self {
        // What the module means to train shows when a copy of it is put into training.
        let mut meant = Trained(Vec::new());
        let copy = module.valid().train();
        copy.visit(&mut meant);
        // Parameters can be trained; running statistics stay what they are.
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

    /// The tensors of floats, one for each that Burn visits.
    pub(crate) fn listed(&self) -> &[Listed] {
        &self.listed
    }

    /// The path of the tensor of integers or truth values of this number, and which of Kolo's it is.
    pub(crate) fn other(&self, number: usize) -> (&str, SpanId) {
        (&self.others[number], SpanId(self.floats + number))
    }

    /// Whether any tensor stands at several places.
    pub(crate) fn has_ties(&self) -> bool {
        self.listed.iter().any(|tensor| tensor.is_tied)
    }

    /// The places of tensors that stand at another place before: each with the first one.
    pub(crate) fn ties(&self) -> impl Iterator<Item = (&str, &str)> {
        self.listed.iter().filter(|tensor| tensor.is_tied).filter_map(|tensor| {
            let first = self.listed.iter().find(|other| other.span == tensor.span)?;
            Some((tensor.name.as_str(), first.name.as_str()))
        })
    }

    /// Tied parameters are told: a layer that was cloned may have been meant to be another one.
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

    /// What the user must know before the module is trained.
    ///
    /// # Errors
    ///
    /// A parameter would not be trained, though others are and nobody has frozen it.
    pub(crate) fn check(&self) -> Result<Vec<String>, Error> {
        let untracked = |tensor: &Listed| {
            let device = format!("{:?}", tensor.untracked.as_ref()?.as_dispatch());
            Some(Error::Untracked { parameter: tensor.name.clone(), device })
        };
        self.listed.iter().find_map(untracked).map_or_else(|| Ok(self.warnings()), Err)
    }
}

/// Whether each float tensor of a module requires a gradient.
struct Trained(Vec<bool>);

impl ModuleVisitor for Trained {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.val().is_require_grad());
    }
}

/// Has all parameters of a module trained.
struct Train;

impl ModuleMapper for Train {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.set_require_grad(true)
    }
}

/// A tensor that is no copy of another: its kind, its span, and itself, a `Tensor<D>`.
type First = (Kind, SpanId, Box<dyn Any>);

struct List {
    path: Vec<String>,
    /// Which tensors the module means to train, and which it could.
    meant: Vec<bool>,
    could_be: Vec<bool>,
    others: Vec<String>,
    found: Vec<Listed>,
    /// The tensors of each id that are no copies of others.
    firsts: HashMap<ParamId, Vec<First>>,
    spans: usize,
}

impl List {
    /// The tensor before this one that is the same parameter.
    fn first<const D: usize>(&self, id: ParamId, kind: Kind, tensor: &Tensor<D>) -> Option<SpanId> {
        let mut same = self.firsts.get(&id)?.iter().filter(|(other, ..)| *other == kind);
        let is_same = |other: &Tensor<D>| {
            let node = node_of(tensor.clone());
            (node.is_some() && node == node_of(other.clone())) || are_equal(tensor, other)
        };
        same.find(|(.., other)| other.downcast_ref().is_some_and(is_same)).map(|(_, span, _)| *span)
    }
}

/// Whether two tensors have the same shape and bits.
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
        // Running statistics that have one id are what the forward pass makes of them.
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

/// In a pass over a module, gives a tensor that stands at several places to all of them.
#[derive(Default)]
pub(crate) struct Ties {
    /// The first one of each: a `Param<Tensor<D>>`.
    firsts: HashMap<SpanId, Box<dyn Any>>,
}

impl Ties {
    /// What a tensor of the list becomes if one before it is the same parameter.
    pub(crate) fn first<const D: usize>(&self, listed: &Listed) -> Option<Param<Tensor<D>>> {
        let first = self.firsts.get(&listed.span).filter(|_| listed.is_tied)?;
        first.downcast_ref().cloned()
    }

    /// What a tensor of the list has become.
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

/// Makes the tensors of a copy of a module one again that are one in the module.
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
