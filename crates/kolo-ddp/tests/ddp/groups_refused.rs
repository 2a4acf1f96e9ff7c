//! Invalid groups of parameters are refused at the start: a user's own optimizer without support for groups,
//! and wrong patterns or settings.

use crate::common::groups::{RATE, SHARDS, config, gradient, layout, replica_of, train};
use crate::common::own::Own;
use crate::common::sgd;
use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::{self, GroupError, GroupSettings, Optimizer, Settings, Update};
use kolo_ddp::{Error, Layout, ParamGroup, Replica};

/// Steps by the gradient alone, with the learning rates of groups.
#[derive(Default)]
struct Scaled {
    scales: Vec<f64>,
    rate: f64,
}

impl Optimizer for Scaled {
    fn set_groups(&mut self, groups: &[GroupSettings]) -> Result<(), GroupError> {
        self.scales = groups.iter().map(|group| group.lr_scale).collect();
        Ok(())
    }

    fn init(&mut self, _: &Layout) {}

    fn begin(&mut self, _: u64, learning_rate: f64) {
        self.rate = learning_rate;
    }

    fn update(&mut self, update: Update<'_>) {
        let rate = (self.rate * self.scales.get(update.group).unwrap_or(&1.0)) as f32;
        let pairs = update.parameters.iter_mut().zip(update.gradient);
        pairs.for_each(|(p, g)| *p -= rate * (g * update.scale));
    }

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        Vec::new()
    }
}

fn with_own(optimizer: impl Optimizer, groups: Vec<ParamGroup>) -> Result<Replica, Error> {
    replica_of(Group::alone(), |_| 1.0, &config(groups, 25.0), optimizer)
}

#[test]
fn an_optimizer_of_ones_own_takes_groups_or_refuses_them_at_the_start() {
    let scaled = || vec![ParamGroup::of(["head.*"]).with_lr_scale(0.5), ParamGroup::of(["embed.*"]).frozen()];
    let mut replica = with_own(Scaled::default(), scaled()).unwrap();
    train(&mut replica, 1);
    let weights = replica.values().unwrap().to_vec();
    for span in layout().spans() {
        let g: f32 = (0..SHARDS).map(|shard| gradient(1.0f32, span.offset, 0, shard)).sum::<f32>() / 4.0;
        let scale = match span.spec.name.split('.').next() {
            Some("head") => 0.5,
            Some("embed") => 0.0,
            _ => 1.0,
        };
        let expected = 1.0 - RATE as f32 * scale * g;
        assert!((weights[span.offset] - expected).abs() < 1e-6, "{}", span.spec.name);
    }

    let error = with_own(Own::default(), scaled()).err().unwrap().to_string();
    assert!(
        error.contains("::Own steps all parameters alike") && error.contains("Config::groups"),
        "{error}"
    );
    // Frozen tensors need no support.
    assert!(with_own(Own::default(), vec![ParamGroup::of(["embed.*"]).frozen()]).is_ok());
    assert!(with_own(Own::default(), Vec::new()).is_ok());
}

#[test]
fn groups_that_cannot_be_are_refused_at_the_start() {
    for (group, text) in [
        (
            ParamGroup::without_decay(["heda.*"]),
            "heda.*: this selects no trained parameter; there are embed.weight",
        ),
        (
            ParamGroup::of(["head.*", "bias"]).with("beta1", 0.5),
            "head.*,bias: sgd has no setting `beta1`; a group can have lr_scale, weight_decay, momentum, nesterov",
        ),
        (
            ParamGroup::of(["head.*"]).with("momentum", 1.0),
            "head.*: momentum of sgd is 1; it must be at least 0 and below 1",
        ),
        (
            ParamGroup::of(["head.*"]).with_lr_scale(f64::NAN),
            "head.*: lr_scale is NaN; it must be a finite number from 0",
        ),
    ] {
        for error in threads::spawn(2, |thread| {
            replica_of(thread, |_| 0.0, &config(vec![group.clone()], 25.0), sgd()).err().unwrap()
        })
        .unwrap()
        {
            assert!(matches!(error, Error::Groups(_)) && error.to_string().starts_with(text), "{error}");
        }
    }
}

/// A reduction's requirements on the optimizer apply to every group that is stepped.
#[test]
fn a_reduction_looks_at_the_settings_of_every_group() {
    let with = |name: &str, optimizer: &str, settings: Settings, group: ParamGroup| {
        let reduction = kolo_ddp::reduction::named(name, &Settings::default()).unwrap();
        let config = kolo_ddp::Config { reduction, ..config(vec![group], 25.0) };
        let optimizer = optimizer::named(optimizer, &settings).unwrap();
        replica_of(Group::alone(), |_| 1.0, &config, optimizer).map(drop)
    };
    let head = || ParamGroup::of(["head.*"]);
    let frozen = || Settings::default().with("freeze_after", 1000.0);
    for (reduction, optimizer, settings, group, text) in [
        ("dgc", "sgd", Settings::default(), head().with("momentum", 0.9), "momentum of its own"),
        ("onebit-adam", "adam", frozen(), head().with("beta1", 0.8), "beta1 0.9"),
    ] {
        let error = with(reduction, optimizer, settings, group).unwrap_err();
        assert!(matches!(error, Error::ReductionRefused { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains(text) && message.contains("head.*"), "{message}");
    }
    with("dgc", "sgd", Settings::default(), head().with("momentum", 0.9).frozen()).unwrap();
    with("onebit-adam", "adam", frozen(), head().with("weight_decay", 0.1)).unwrap();
}
