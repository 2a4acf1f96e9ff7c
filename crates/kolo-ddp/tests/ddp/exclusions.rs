//! Every way to synchronize refuses the settings that its line of the table excludes, with the reason and a way
//! out, and accepts all others.

use crate::common::{clip, refusal};
use kolo_comm::{Group, threads};
use kolo_ddp::reduction;
use kolo_ddp::straggler::Policy;
use kolo_ddp::sync::{JobSetting, SYNCS, SyncMode};
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
        match sync.exclusion(&[JobSetting::Servers]) {
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

/// A configuration with each setting that a mode could exclude, of a job that synchronizes as `sync`. Sums over
/// the global batch are a layer's, so no configuration has them.
fn configurations(sync: &SyncMode) -> Vec<(JobSetting, Config)> {
    let base = Config { shards: Some(4), sync: sync.clone(), ..Config::default() };
    let reduction = |name| reduction::parse(name).unwrap();
    vec![
        (JobSetting::Islands, Config { islands: Some(2), ..base.clone() }),
        (JobSetting::Reduction, Config { reduction: reduction("bf16"), ..base.clone() }),
        (JobSetting::KeepingReduction, Config { reduction: reduction("ef-sign"), ..base.clone() }),
        (JobSetting::Transforms, Config { transforms: clip(1.0), ..base.clone() }),
        (JobSetting::LossScaling, Config { loss_scaling: Some(LossScaling::default()), ..base.clone() }),
        (JobSetting::NoiseScale, Config { noise_scale: true, ..base.clone() }),
        (JobSetting::LocalStatistics, Config { statistics: Statistics::Local, ..base.clone() }),
        (JobSetting::Straggler, Config { straggler: Policy::Drop, elastic: true, ..base.clone() }),
        (JobSetting::Rebalance, Config { straggler: Policy::Rebalance, ..base.clone() }),
        (JobSetting::NoBackups, Config { elastic: true, backup_every: 0, ..base.clone() }),
        (JobSetting::Turns, Config { turns: vec![vec!["*".into()]], ..base.clone() }),
        (JobSetting::Tune, Config { tune: true, ..base.clone() }),
        (JobSetting::Elastic, Config { elastic: true, ..base }),
    ]
}

#[test]
fn what_a_mode_excludes_is_refused_and_nothing_else() {
    let mut refused = Vec::new();
    for entry in SYNCS {
        let sync: SyncMode = entry.name.parse().unwrap();
        assert_eq!(sync.exclusion(&[]), None, "{sync}");
        let needs_every_step = sync.exclusion(&[JobSetting::GlobalBatch]).is_some();
        assert_eq!(needs_every_step, sync.is_rare() || sync.staleness_bound().is_some(), "{sync}");
        for (setting, config) in configurations(&sync) {
            let settings = JobSetting::of(&config);
            assert!(settings.contains(&setting), "{setting:?}: {settings:?}");
            let error = refusal(Group::alone(), &config);
            match sync.exclusion(&settings) {
                Some(exclusion) => {
                    let words = format!("synchronization `{sync}` {}; ", exclusion.why);
                    assert!(error.starts_with(&words) && error.len() > words.len(), "{error}");
                    refused.push(exclusion.setting);
                }
                // Nobody holds the weights in a group of one.
                None if sync.staleness_bound().is_some() => {
                    assert!(error.contains("needs summation servers"), "{error}");
                }
                None => assert_eq!(error, "", "{sync} with {setting:?}"),
            }
        }
    }
    let refused: Vec<String> = refused.iter().map(|setting| format!("{setting:?}")).collect();
    for (setting, _) in configurations(&SyncMode::default()) {
        assert!(refused.contains(&format!("{setting:?}")), "no mode excludes {setting:?}");
    }
}
