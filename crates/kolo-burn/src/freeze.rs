//! Freezing of some of a module's parameters, for fine-tuning.

use std::collections::HashSet;

use burn::module::{Flag, Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;
use kolo_ddp::optimizer::GroupError;
use kolo_ddp::{Kind, Layout, ParamSpec, Selector, SpanId};

use crate::outline::outline;
use crate::tensor_list::{TensorList, Ties};

/// Freezes the parameters that `selectors` select by their paths (such as `layer1.0.conv1.weight`): they
/// require no gradient. A parameter in several places is frozen if one of them is selected.
///
/// A layer whose own parameters are all frozen by this has its training flag turned off. A batch
/// normalization then computes with its running statistics, in training too, and they stay as they are.
///
/// ```
/// use burn::module::Module;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::Device;
///
/// #[derive(Module, Debug)]
/// struct Net {
///     body: Linear,
///     head: Linear,
/// }
///
/// let device = Device::flex().autodiff();
/// let linear = || LinearConfig::new(2, 2).init(&device);
/// let net = kolo_burn::freeze(Net { body: linear(), head: linear() }, &["body.*".into()])?;
/// assert!(!net.body.weight.is_require_grad() && net.head.weight.is_require_grad());
/// # Ok::<(), kolo_ddp::optimizer::GroupError>(())
/// ```
///
/// # Errors
///
/// A selector selects no parameter that is trained, or no trained parameter is left.
pub fn freeze<M: Module>(module: M, selectors: &[Selector]) -> Result<M, GroupError> {
    if selectors.is_empty() {
        return Ok(module);
    }
    let outline = outline(&module);
    let list = TensorList::of(&outline);
    let mut shapes = Shapes(Vec::new());
    outline.visit(&mut shapes);
    let (mut spans, mut specs) = (Vec::new(), Vec::new());
    for (listed, shape) in list.listed().iter().zip(shapes.0) {
        if let Kind::Parameter { .. } = listed.kind {
            spans.push(listed.span);
            specs.push(ParamSpec::new(&*listed.name, shape, listed.kind));
        }
    }
    let model = Layout::new(specs);
    let mut frozen = HashSet::new();
    for selector in selectors {
        let places =
            model.spans().iter().zip(&spans).filter(|(place, _)| selector.selects(&place.spec, &model));
        let selected: Vec<SpanId> = places.map(|(_, span)| *span).collect();
        if selected.is_empty() {
            let names = model.spans().iter().map(|place| place.spec.name.clone()).collect();
            return Err(GroupError::NoMatch { tensors: selector.to_string(), names });
        }
        frozen.extend(selected);
    }
    if spans.iter().all(|span| frozen.contains(span)) {
        let words: Vec<String> = selectors.iter().map(Selector::to_string).collect();
        return Err(GroupError::All { tensors: words.join(",") });
    }
    let layers = |is_frozen: bool| -> HashSet<String> {
        let places = model.spans().iter().zip(&spans);
        let places = places.filter(|(_, span)| frozen.contains(span) == is_frozen);
        places.map(|(place, _)| layer(&place.spec.name).to_owned()).collect()
    };
    let layers = &layers(true) - &layers(false);
    let mut mapper = Freeze { list: &list, next: 0, ties: Ties::default(), frozen, layers, path: Vec::new() };
    Ok(module.map(&mut mapper))
}

/// Returns the path of the layer that has a parameter.
fn layer(parameter: &str) -> &str {
    parameter.rsplit_once('.').map_or("", |(layer, _)| layer)
}

/// Shapes of a module's tensors of floats.
struct Shapes(Vec<Vec<usize>>);

impl ModuleVisitor for Shapes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.val().dims().to_vec());
    }
}

struct Freeze<'a> {
    list: &'a TensorList,
    next: usize,
    ties: Ties,
    frozen: HashSet<SpanId>,
    /// Paths of the layers of which all parameters are frozen.
    layers: HashSet<String>,
    path: Vec<String>,
}

impl ModuleMapper for Freeze<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let listed = &self.list.listed()[self.next];
        self.next += 1;
        if let Some(first) = self.ties.first(listed) {
            return first;
        }
        let param = match self.frozen.contains(&listed.span) {
            true => param.set_require_grad(false),
            false => param,
        };
        self.ties.keep(listed, self.list, &param);
        param
    }

    fn map_flag(&mut self, flag: Param<Flag>) -> Param<Flag> {
        match self.layers.contains(layer(&self.path.join("."))) {
            true => flag.with_value(false),
            false => flag,
        }
    }
}
