//! Every way to synchronize refuses the settings that its line of the table excludes, with the reason and a way
//! out, and accepts all others.

use crate::common::{clip, refusal};
use kolo_comm::{Group, threads};
use kolo_ddp::reduction;
use kolo_ddp::straggler::Policy;
use kolo_ddp::sync::JobSetting::{
    self, Elastic, GlobalBatch, Islands, KeepingReduction, LocalStatistics, LossScaling as Scaling,
    NoBackups, NoiseScale, Offload, Rebalance, Reduction, Servers, Straggler, Transforms, Tune, Turns,
};
use kolo_ddp::sync::{SYNCS, SyncMode};
use kolo_ddp::{Config, LossScaling, Statistics};

/// One worker and a server form a job, except where the mode excludes servers.
#[test]
fn a_mode_without_use_for_servers_refuses_them() {
    let mut refusals = 0;
    for entry in SYNCS {
        let sync: SyncMode = entry.name.parse().unwrap();
        let config = Config { shards: Some(4), sync: sync.clone(), ..Config::default() };
        let made = threads::spawn(2, |group| {
            let group = if group.rank().0 == 1 { group.into_server() } else { group };
            refusal(group, &config)
        });
        match sync.exclusion(&[Servers]) {
            None => assert_eq!(made.unwrap(), ["", ""], "{sync}"),
            Some(exclusion) => {
                refusals += 1;
                let words = format!("synchronization `{sync}` {}; start workers only", exclusion.why);
                assert_eq!(made.unwrap(), [words.clone(), words]);
            }
        }
    }
    assert_eq!(refusals, 3, "local, post-local and diloco");
}

/// A configuration with each setting that a mode could exclude, of a job that synchronizes as `sync`, and the
/// way out. Sums over the global batch are a layer's, so no configuration has them.
fn configurations(sync: &SyncMode) -> Vec<(JobSetting, Config, &'static str)> {
    let base = Config { shards: Some(4), sync: sync.clone(), ..Config::default() };
    let reduction = |name| reduction::parse(name).unwrap();
    let set = |set: fn(&mut Config)| {
        let mut config = base.clone();
        set(&mut config);
        config
    };
    let reduced = |name| Config { reduction: reduction(name), ..base.clone() };
    let scaling = |config: &mut Config| config.loss_scaling = Some(LossScaling::default());
    vec![
        (Islands, set(|config| config.islands = Some(2)), "leave `Config::islands` at `None`"),
        (Reduction, reduced("bf16"), "leave `Config::reduction` at `sum`"),
        (KeepingReduction, reduced("ef-sign"), "such as `sum` or `bf16`"),
        (Transforms, set(|config| config.transforms = clip(1.0)), "leave `Config::transforms` empty"),
        (Scaling, set(scaling), "compute in bf16 or f32"),
        (NoiseScale, set(|config| config.noise_scale = true), "leave `Config::noise_scale` out"),
        (
            LocalStatistics,
            set(|config| config.statistics = Statistics::Local),
            "leave `Config::statistics` at `PerShard`",
        ),
        (
            Straggler,
            set(|config| (config.straggler, config.elastic) = (Policy::Drop, true)),
            "leave `Config::straggler` at `Warn`",
        ),
        (
            Rebalance,
            set(|config| config.straggler = Policy::Rebalance),
            "leave `Config::straggler` at `Warn`",
        ),
        (
            NoBackups,
            set(|config| (config.elastic, config.backup_every) = (true, 0)),
            "make copies (`Config::backup_every`)",
        ),
        (Turns, set(|config| config.turns = vec![vec!["*".into()]]), "leave `Config::turns` empty"),
        (Tune, set(|config| config.tune = true), "leave `Config::tune` out"),
        (Elastic, set(|config| config.elastic = true), ""),
        (
            Offload,
            set(|config| config.offload = Some(std::env::temp_dir())),
            "leave `Config::offload` at `None`",
        ),
    ]
}

/// The settings that a mode excludes.
fn excluded(mode: &str) -> Vec<JobSetting> {
    match mode {
        "every-step" => vec![Islands],
        "local" | "post-local" | "diloco" => {
            vec![NoiseScale, LocalStatistics, Straggler, Turns, Tune, GlobalBatch, Servers]
        }
        "delayed" => vec![Islands, KeepingReduction, Scaling, Rebalance, NoBackups, Turns, Tune],
        "stale" => vec![
            Islands, Reduction, Transforms, Scaling, NoiseScale, LocalStatistics, Straggler, Turns, Tune,
            Elastic, Offload, GlobalBatch,
        ],
        other => panic!("write here what `{other}` excludes"),
    }
}

#[test]
fn what_a_mode_excludes_is_refused_and_nothing_else() {
    let mut refused = Vec::new();
    for entry in SYNCS {
        let sync: SyncMode = entry.name.parse().unwrap();
        assert_eq!(sync.exclusion(&[]), None, "{sync}");
        let all =
            configurations(&sync).into_iter().map(|(setting, ..)| setting).chain([GlobalBatch, Servers]);
        let found: Vec<JobSetting> = all.filter(|setting| sync.exclusion(&[*setting]).is_some()).collect();
        assert_eq!(found, excluded(entry.name), "{sync}");
        for (setting, config, way_out) in configurations(&sync) {
            let settings = JobSetting::of(&config);
            assert!(settings.contains(&setting), "{setting:?}: {settings:?}");
            let error = refusal(Group::alone(), &config);
            match sync.exclusion(&settings) {
                Some(exclusion) => {
                    let words = format!("synchronization `{sync}` {}; ", exclusion.why);
                    assert!(error.starts_with(&words) && error.len() > words.len(), "{error}");
                    assert!(exclusion.setting != setting || error.contains(way_out), "{error}");
                    refused.push(exclusion.setting);
                }
                // Nobody holds the weights in a group of one.
                None if sync.traits().staleness_bound.is_some() => {
                    assert!(error.contains("needs summation servers"), "{error}");
                }
                None => assert_eq!(error, "", "{sync} with {setting:?}"),
            }
        }
    }
    let refused: Vec<String> = refused.iter().map(|setting| format!("{setting:?}")).collect();
    for (setting, ..) in configurations(&SyncMode::default()) {
        assert!(refused.contains(&format!("{setting:?}")), "no mode excludes {setting:?}");
    }
}
