//! The variables of a model, in the order in which the model asks for them: names, kinds, values.

use std::collections::HashMap;

use candle_core::{DType, Tensor, TensorId, Var};
use candle_nn::VarMap;
use kolo_ddp::binding::{Inventory, Values, Which};
use kolo_ddp::optimizer::GroupError;
use kolo_ddp::{Kind, Layout, ParamSpec, SpanId};

use crate::Error;
use crate::hook::{Destination, hooked};
use crate::memory::{with_floats, write};
use crate::options::Options;

/// Names of candle-nn's batch normalization for what a forward pass changes.
const STATISTICS: [&str; 2] = ["*running_mean", "*running_var"];

/// One variable.
pub(crate) struct Listed {
    /// Its names in the map; more than one if the map has it several times.
    names: Vec<String>,
    var: Var,
    kind: Kind,
    /// The tensor that the model computes with, where it is not the variable itself.
    hooked: Option<Tensor>,
}

impl Listed {
    fn name(&self) -> &str {
        &self.names[0]
    }

    fn spec(&self) -> ParamSpec {
        ParamSpec::new(self.name(), self.var.dims().to_vec(), self.kind)
    }

    /// Returns the tensor for the model.
    fn tensor(&self) -> Tensor {
        match (&self.hooked, self.kind) {
            (Some(hooked), _) => hooked.clone(),
            // Nothing leads from it to a variable, so no gradient is computed for it.
            (None, Kind::Frozen) => self.var.as_detached_tensor(),
            (None, _) => self.var.as_tensor().clone(),
        }
    }

    fn is(&self, which: Which) -> bool {
        match which {
            Which::All => true,
            Which::Changing => self.kind != Kind::Frozen,
            Which::Statistics => self.kind == Kind::Statistic,
        }
    }

    fn is_trained(&self) -> bool {
        matches!(self.kind, Kind::Parameter { .. })
    }
}

/// All variables of a model.
pub(crate) struct Variables {
    listed: Vec<Listed>,
    pub(crate) destination: Destination,
}

impl Variables {
    /// Lists the variables of `map`: those of `asked` first, in that order. Trained ones get a hook.
    pub(crate) fn of(map: &VarMap, asked: &[String], options: &Options) -> Result<Self, Error> {
        let mut listed = list(map, asked);
        check(&listed)?;
        set_kinds(&mut listed, options)?;
        Variables::hooked(listed)
    }

    fn hooked(mut listed: Vec<Listed>) -> Result<Self, Error> {
        let destination = Destination::default();
        let anchor = Var::zeros((), DType::F32, &candle_core::Device::Cpu).map_err(Error::Build)?;
        for (span, listed) in listed.iter_mut().enumerate().filter(|(_, listed)| listed.is_trained()) {
            let tensor = hooked(&listed.var, SpanId(span), &anchor, destination.clone());
            listed.hooked = Some(tensor.map_err(Error::Build)?);
        }
        Ok(Variables { listed, destination })
    }

    /// Returns the tensors for the model, by name.
    pub(crate) fn tensors(&self) -> HashMap<String, Tensor> {
        let named = |listed: &Listed| {
            let tensor = listed.tensor();
            listed.names.clone().into_iter().map(move |name| (name, tensor.clone())).collect::<Vec<_>>()
        };
        self.listed.iter().flat_map(named).collect()
    }

    /// Returns variables of their own with the same values, and their map. Frozen ones, which nothing
    /// changes, are shared.
    pub(crate) fn copied(&self) -> Result<(Self, VarMap), Error> {
        let map = VarMap::new();
        let copy = |listed: &Listed| {
            let var = match listed.kind {
                Kind::Frozen => Ok(listed.var.clone()),
                _ => with_floats(&listed.var, |values| {
                    Var::from_slice(values, listed.var.shape(), listed.var.device())
                })
                .and_then(|var| var),
            };
            let var = var.map_err(Error::Build)?;
            let mut entries = map.data().lock().expect("the map is new");
            entries.extend(listed.names.iter().map(|name| (name.clone(), var.clone())));
            Ok(Listed { names: listed.names.clone(), var, kind: listed.kind, hooked: None })
        };
        let listed = self.listed.iter().map(copy).collect::<Result<Vec<_>, Error>>()?;
        Ok((Variables::hooked(listed)?, map))
    }

    /// Trained variables, the last one first.
    pub(crate) fn trained(&self) -> impl Iterator<Item = (SpanId, &Var)> {
        let all = self.listed.iter().enumerate().rev();
        all.filter(|(_, listed)| listed.is_trained()).map(|(span, listed)| (SpanId(span), &listed.var))
    }

    pub(crate) fn inventory(&self, which: Which) -> Result<Inventory, Error> {
        let mut inventory = Inventory::default();
        for listed in self.listed.iter().filter(|listed| listed.is(which)) {
            inventory.specs.push(listed.spec());
            with_floats(&listed.var, |values| inventory.values.extend_from_slice(values))
                .map_err(|cause| Error::Read { parameter: listed.name().into(), cause })?;
            if which == Which::All {
                inventory.warnings.extend(listed.names[1..].iter().map(|name| {
                    format!("`{name}` is the same variable as `{}`, and is trained as one", listed.name())
                }));
            }
        }
        Ok(inventory)
    }

    pub(crate) fn write(&self, which: Which, values: &Values) {
        for (span, listed) in self.listed.iter().enumerate().filter(|(_, listed)| listed.is(which)) {
            let values = values.of(SpanId(span)).wait();
            for tensor in [Some(listed.var.as_tensor()), listed.hooked.as_ref()].into_iter().flatten() {
                write(tensor, &values).expect("`Variables::of` has checked type, device and length");
            }
        }
    }
}

/// Lists each variable once, under its first name.
fn list(map: &VarMap, asked: &[String]) -> Vec<Listed> {
    let entries = map.data().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut others: Vec<&String> = entries.keys().filter(|name| !asked.contains(name)).collect();
    others.sort();
    let mut listed: Vec<Listed> = Vec::new();
    let mut places = HashMap::<TensorId, usize>::new();
    for name in asked.iter().chain(others) {
        let Some(var) = entries.get(name) else { continue };
        let place = *places.entry(var.id()).or_insert(listed.len());
        match listed.get_mut(place) {
            Some(first) => first.names.push(name.clone()),
            None => {
                let kind = Kind::Parameter { decay: true };
                listed.push(Listed { names: vec![name.clone()], var: var.clone(), kind, hooked: None });
            }
        }
    }
    listed
}

fn check(listed: &[Listed]) -> Result<(), Error> {
    for listed in listed {
        let parameter = || listed.name().to_owned();
        if !listed.var.device().is_cpu() {
            let device = format!("{:?}", listed.var.device().location());
            return Err(Error::Device { parameter: parameter(), device });
        }
        if listed.var.dtype() != DType::F32 {
            return Err(Error::DType { parameter: parameter(), dtype: listed.var.dtype() });
        }
    }
    Ok(())
}

/// Finds out which variables are statistics, and which are frozen.
fn set_kinds(listed: &mut [Listed], options: &Options) -> Result<(), Error> {
    let layout = Layout::new(listed.iter().map(Listed::spec).collect());
    let usual = STATISTICS.map(Into::into);
    for (selector, is_usual) in
        usual.iter().map(|usual| (usual, true)).chain(options.statistics.iter().map(|own| (own, false)))
    {
        let mut found = false;
        for listed in listed.iter_mut().filter(|listed| selector.selects(&listed.spec(), &layout)) {
            (listed.kind, found) = (Kind::Statistic, true);
        }
        if !found && !is_usual {
            return Err(Error::NoStatistic { pattern: selector.to_string() });
        }
    }
    if !listed.iter().any(Listed::is_trained) {
        return Err(Error::NothingTrained);
    }
    let layout = Layout::new(listed.iter().map(Listed::spec).collect());
    let trained: Vec<String> =
        listed.iter().filter(|listed| listed.is_trained()).map(|listed| listed.name().to_owned()).collect();
    for selector in &options.freeze {
        let mut found = false;
        for listed in listed.iter_mut().filter(|listed| listed.kind != Kind::Statistic) {
            if selector
                .selects(&ParamSpec { kind: Kind::Parameter { decay: true }, ..listed.spec() }, &layout)
            {
                (listed.kind, found) = (Kind::Frozen, true);
            }
        }
        if !found {
            return Err(GroupError::NoMatch { tensors: selector.to_string(), names: trained }.into());
        }
    }
    if !listed.iter().any(Listed::is_trained) {
        let words: Vec<String> = options.freeze.iter().map(ToString::to_string).collect();
        return Err(GroupError::All { tensors: words.join(",") }.into());
    }
    Ok(())
}
