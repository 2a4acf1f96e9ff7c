//! Group of each tensor of a model.

use super::error::GroupError;
use super::group_settings::GroupSettings;
use super::param_group::ParamGroup;
use super::selector::Selector;
use crate::layout::{Layout, SpanId};

/// Index of the group of each tensor. Tensors with the same differences share a group; group 0 has no
/// differences.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanGroups {
    of_span: Vec<usize>,
    groups: Vec<GroupSettings>,
}

impl SpanGroups {
    /// Merges a configuration's groups for each trained tensor of a model.
    ///
    /// # Errors
    ///
    /// Returns an error if a pattern, or a group as a whole, selects no trained tensor, with names of
    /// existing ones; or if the factor of a learning rate is negative or not finite.
    pub fn new(groups: &[ParamGroup], model: &Layout) -> Result<Self, GroupError> {
        groups.iter().try_for_each(|group| check(group, model))?;
        let mut found = SpanGroups { of_span: Vec::new(), groups: vec![GroupSettings::default()] };
        for span in model.spans() {
            let selecting = groups.iter().filter(|group| group.selects(&span.spec, model));
            let settings = selecting.fold(GroupSettings::default(), merged);
            let same = |other: &GroupSettings| {
                other.lr_scale == settings.lr_scale && other.settings == settings.settings
            };
            let index = found.groups.iter().position(same).unwrap_or(found.groups.len());
            if index == found.groups.len() {
                found.groups.push(settings);
            }
            found.of_span.push(index);
        }
        Ok(found)
    }

    /// Returns the differences of each group.
    pub fn settings(&self) -> &[GroupSettings] {
        &self.groups
    }

    /// Returns the group of a tensor, an index of [`SpanGroups::settings`].
    pub fn of(&self, id: SpanId) -> usize {
        self.of_span[id.0]
    }

    /// Returns true if the tensor is never changed.
    pub fn is_frozen(&self, id: SpanId) -> bool {
        self.groups[self.of(id)].is_frozen()
    }
}

/// Merges one more group that selects the same tensor.
fn merged(before: GroupSettings, group: &ParamGroup) -> GroupSettings {
    let GroupSettings { mut tensors, lr_scale, settings } = before;
    if !tensors.is_empty() {
        tensors += " and ";
    }
    GroupSettings {
        tensors: tensors + &group.selected_by(),
        lr_scale: group.lr_scale.unwrap_or(lr_scale),
        settings: settings.into_iter().chain(group.settings.clone()).collect(),
    }
}

/// Checks a group. A pattern that selects nothing is an error. A class may be absent from this model if
/// another selector of the group matches.
pub(super) fn check(group: &ParamGroup, model: &Layout) -> Result<(), GroupError> {
    group.check_scale()?;
    let trained = || model.spans().iter().map(|span| &span.spec).filter(|spec| spec.kind.is_trained());
    let none = |tensors| {
        let names = trained().map(|spec| spec.name.clone()).collect();
        Err(GroupError::NoMatch { tensors, names })
    };
    let patterns = group.tensors.iter().filter(|selector| matches!(selector, Selector::Pattern(_)));
    for pattern in patterns {
        if !trained().any(|spec| pattern.selects(spec, model)) {
            return none(pattern.to_string());
        }
    }
    match trained().any(|spec| group.selects(spec, model)) {
        true => Ok(()),
        false => none(group.selected_by()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::TensorClass;
    use crate::layout::{Kind, ParamSpec};
    use crate::table::Settings;

    fn model() -> Layout {
        let kind = Kind::Parameter { decay: true };
        let spec = |(name, shape): (&str, &[usize])| ParamSpec::new(name, shape.to_vec(), kind);
        let specs: [(&str, &[usize]); 5] = [
            ("stem.weight", &[4, 3]),
            ("stem.norm.gamma", &[4]),
            ("stem.norm.beta", &[4]),
            ("head.weight", &[2, 4]),
            ("head.bias", &[2]),
        ];
        let mean = ParamSpec::new("stem.norm.running_mean", vec![4], Kind::Statistic);
        Layout::new(specs.map(spec).into_iter().chain([mean]).collect())
    }

    #[test]
    fn a_later_group_overrides_setting_by_setting() {
        let groups = [
            ParamGroup::of(["head.*"]).with_lr_scale(10.0).with("weight_decay", 0.5).with("momentum", 0.1),
            ParamGroup::of(["*.weight"]).with("weight_decay", 0.25),
            ParamGroup::without_decay([TensorClass::Norm, TensorClass::Bias]),
            ParamGroup::of(["stem.norm.beta"]).frozen(),
        ];
        let found = SpanGroups::new(&groups, &model()).unwrap();
        let of = |n: usize| found.settings()[found.of(SpanId(n))].clone();
        let decay = |decay: f64| Settings::default().with("weight_decay", decay);
        let momentum = |settings: Settings| settings.with("momentum", 0.1);
        for (n, tensors, lr_scale, settings) in [
            (0, "*.weight", 1.0, decay(0.25)),
            (1, "norm,bias", 1.0, decay(0.0)),
            (2, "norm,bias and stem.norm.beta", 0.0, decay(0.0)),
            (3, "head.* and *.weight", 10.0, momentum(decay(0.25))),
            (4, "head.* and norm,bias", 10.0, momentum(decay(0.0))),
            // A statistic is in no group.
            (5, "", 1.0, Settings::default()),
        ] {
            assert_eq!(of(n), GroupSettings { tensors: tensors.into(), lr_scale, settings }, "tensor {n}");
            assert_eq!(found.is_frozen(SpanId(n)), n == 2);
        }
    }

    #[test]
    fn tensors_with_the_same_differences_share_a_group() {
        let all = ParamGroup::of(["*"]).with_lr_scale(1.0);
        let found = SpanGroups::new(&[all], &model()).unwrap();
        assert_eq!(found.settings(), [GroupSettings::default()]);
        let found = SpanGroups::new(&[ParamGroup::without_decay(["1d"])], &model()).unwrap();
        assert_eq!((0..6).map(|n| found.of(SpanId(n))).collect::<Vec<_>>(), [0, 1, 1, 0, 1, 0]);
        assert_eq!(SpanGroups::new(&[], &model()).unwrap().settings(), [GroupSettings::default()]);
    }

    #[test]
    fn a_selector_without_a_match_is_named_with_the_existing_names() {
        let error = |group| SpanGroups::new(&[group], &model()).unwrap_err().to_string();
        let names = "there are stem.weight, stem.norm.gamma, stem.norm.beta, head.weight, head.bias";
        for (group, tensors) in [
            (ParamGroup::without_decay(["heda.*"]), "heda.*"),
            (ParamGroup::without_decay(["bias", "heda.*"]), "heda.*"),
            (ParamGroup::without_decay(["stem.norm.running_mean"]), "stem.norm.running_mean"),
            (ParamGroup::without_decay(["embedding"]), "embedding"),
            (ParamGroup::without_decay(Vec::<Selector>::new()), "(nothing)"),
        ] {
            let message = format!("{tensors}: this selects no trained parameter; {names}");
            assert_eq!(error(group), message);
        }
        // A model without embeddings accepts a switch that is the same for all models.
        assert!(SpanGroups::new(&[ParamGroup::without_decay(["norm", "embedding"])], &model()).is_ok());
        let error = error(ParamGroup::of(["*"]).with_lr_scale(-1.0));
        assert_eq!(error, "*: lr_scale is -1; it must be a finite number from 0 (frozen)");
    }

    #[test]
    fn only_some_of_many_names_are_listed() {
        let kind = Kind::Parameter { decay: true };
        let specs = (0..100).map(|n| ParamSpec::new(format!("layer{n}.weight"), vec![1], kind));
        let model = Layout::new(specs.collect());
        let error = SpanGroups::new(&[ParamGroup::of(["head"])], &model).unwrap_err().to_string();
        assert!(error.contains("there are 100, such as layer0.weight, layer14.weight, "), "{error}");
        assert!(error.ends_with(", layer99.weight"), "{error}");
    }
}
