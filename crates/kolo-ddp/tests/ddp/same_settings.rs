//! If ranks were given different settings, all of them get an error, before a parameter has changed.

use std::sync::{Arc, Mutex};

use crate::common::own::Own;
use crate::common::{Scripted, WIDTH, clip, pass, scripted};
use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::{self, Optimizer, Settings};
use kolo_ddp::reduction;
use kolo_ddp::transform::{Decision, GradientTransform};
use kolo_ddp::{BucketCaps, Change, Config, Error, Kind, Layout, ParamSpec, Replica, Slice, Statistics};

fn specs(width: usize) -> Vec<ParamSpec> {
    vec![ParamSpec::new("only", vec![width], Kind::Parameter { decay: true })]
}

fn sgd(momentum: f64) -> Box<dyn Optimizer> {
    optimizer::named("sgd", &Settings::default().with("momentum", momentum)).unwrap()
}

fn join(group: Group, config: &Config, optimizer: Box<dyn Optimizer>) -> Result<Replica, Error> {
    Replica::new(Arc::new(group), specs(WIDTH), vec![1.0; WIDTH], config, optimizer)
}

/// A step in which every shard has the same gradient.
fn step(replica: &mut Replica, rate: f64) -> Result<kolo_ddp::StepReport, Error> {
    for _ in replica.shards() {
        pass(replica, 1.0, 2.0, [(0, [0.5; WIDTH])])?;
    }
    replica.step(rate)
}

/// Returns the error of all of three ranks, of which rank 1 is given something else.
fn all_errors(work: impl Fn(Group, bool) -> Error + Sync) -> String {
    let errors = threads::spawn(3, |group| {
        let other = group.rank().0 == 1;
        let error = work(group, other);
        assert!(matches!(error, Error::SettingsDiffer { .. }), "{error}");
        error.to_string()
    })
    .unwrap();
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    errors[0].clone()
}

#[test]
fn settings_are_compared_where_ranks_meet() {
    let epochs = |count: &str| vec![("epochs".into(), count.into())];
    let usual =
        || Config { shards: Some(4), transforms: clip(1.0), stated: epochs("4"), ..Config::default() };
    let caps = |mib| Some(BucketCaps::of_mib(mib));
    let reduce = |text: &str| reduction::parse(text).unwrap();
    for (other, text) in [
        (Config { transforms: clip(2.0), ..usual() }, "clip_norm is 1 on ranks 0 and 2 and 2 on rank 1;"),
        (
            Config { transforms: Vec::new(), ..usual() },
            "transforms is clip on ranks 0 and 2 and none on rank 1;",
        ),
        (Config { shards: Some(8), ..usual() }, "shards is 4 on ranks 0 and 2 and 8 on rank 1;"),
        (Config { shards: None, ..usual() }, "one for each rank on rank 1"),
        (
            Config { reduction: reduce("ef-sign"), ..usual() },
            "reduction is sum on ranks 0 and 2 and ef-sign on",
        ),
        (Config { verify_every: 7, ..usual() }, "verify_every is 100 on ranks 0 and 2 and 7 on rank 1;"),
        (
            Config { statistics: Statistics::Local, ..usual() },
            "statistics is PerShard on ranks 0 and 2 and Local",
        ),
        (
            Config { stated: epochs("3"), verify_every: 7, ..usual() },
            "epochs is 4 on ranks 0 and 2 and 3 on rank 1;",
        ),
        (Config { caps: caps(0.5), ..usual() }, "524288 and 524288 bytes on rank 1"),
    ] {
        let error = all_errors(|group, differs| {
            let config = if differs { other.clone() } else { usual() };
            join(group, &config, sgd(0.9)).err().unwrap()
        });
        assert!(error.contains(text) && error.contains("start them with the same"), "{error}");
    }
    // A setting that may differ between ranks.
    for rank in threads::spawn(2, |group| {
        let forward_overlap = group.rank().0 == 0;
        join(group, &Config { forward_overlap, ..usual() }, sgd(0.9)).map(drop)
    })
    .unwrap()
    {
        rank.unwrap();
    }
}

/// A user's rule, with a setting.
fn own(speed: f64) -> Box<dyn Optimizer> {
    Box::new(Own { settings: Settings::default().with("speed", speed), ..Own::default() })
}

#[test]
fn optimizers_are_compared_by_name_and_settings() {
    let config = Config::default();
    for (usual, other, text) in [
        (
            sgd as fn(f64) -> Box<dyn Optimizer>,
            sgd(0.8),
            "momentum is 0.9 on ranks 0 and 2 and 0.8 on rank 1;",
        ),
        (sgd, own(0.9), "optimizer is sgd on ranks 0 and 2 and ddp::common::own::Own on"),
        (own, own(0.5), "speed is 0.9 on ranks 0 and 2 and 0.5 on rank 1;"),
    ] {
        let other = Mutex::new(Some(other));
        let error = all_errors(|group, differs| {
            let optimizer = if differs { other.lock().unwrap().take().unwrap() } else { usual(0.9) };
            join(group, &config, optimizer).err().unwrap()
        });
        assert!(error.contains(text), "{error}");
    }
}

struct Times(f64);

impl GradientTransform for Times {
    fn settings(&self) -> Settings {
        Settings::default().with("factor", self.0)
    }

    fn init(&mut self, _: &Layout) {}

    fn see(&mut self, _: &Slice, _: &[f32]) {}

    fn decide(&mut self, _: f64) -> Decision {
        Decision { factor: self.0, norm: None }
    }
}

#[test]
fn what_is_given_later_is_compared_in_each_step_before_a_parameter_changes() {
    type Give = fn(&mut Replica, bool) -> f64;
    let cases: [(Give, &str); 5] = [
        (
            |_, differs| if differs { 0.2 } else { 0.1 },
            "the learning rate of step 2 is 0.1 on ranks 0 and 2 and 0.2 on",
        ),
        (
            |replica, differs| {
                replica.add_transform(Times(if differs { 0.5 } else { 0.25 }));
                0.1
            },
            "factor is 0.25 on ranks 0 and 2 and 0.5 on rank 1;",
        ),
        (
            |replica, differs| {
                replica.sampler(1000, if differs { 8 } else { 16 }, 7).unwrap();
                0.1
            },
            "the sampler's batch size is 16 on ranks 0 and 2 and 8 on rank 1;",
        ),
        (
            |replica, differs| {
                let growth = ["3:2", "9:2"].map(|text| text.parse().unwrap());
                replica.growing_sampler(1000, 16, &growth[..if differs { 1 } else { 2 }], 7).unwrap();
                0.1
            },
            "the sampler's batch growth is 3:2,9:2 on ranks 0 and 2 and 3:2 on rank 1;",
        ),
        (
            |replica, differs| {
                if !differs {
                    replica.sampler(1000, 16, 7).unwrap();
                }
                0.1
            },
            "the sampler's number of samples is 1000 on ranks 0 and 2 and not given on rank 1;",
        ),
    ];
    for (give, text) in cases {
        let run = |group: Group, differs: bool| {
            let mut replica =
                join(group, &Config { shards: Some(4), ..Config::default() }, sgd(0.9)).unwrap();
            (0..2).for_each(|_| drop(step(&mut replica, 0.1).unwrap()));
            let before = replica.values().unwrap().to_vec();
            let rate = give(&mut replica, differs);
            let result = step(&mut replica, rate).map(drop);
            (result, before == replica.values().unwrap())
        };
        let error = all_errors(|group, differs| {
            let (result, unchanged) = run(group, differs);
            assert!(unchanged, "no parameter has changed");
            result.unwrap_err()
        });
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn a_sampler_knows_the_shards() {
    let mut replica =
        join(Group::alone(), &Config { shards: Some(6), ..Config::default() }, sgd(0.0)).unwrap();
    assert_eq!(replica.sampler(100, 4, 1).unwrap(), kolo_ddp::Sampler::new(100, 4, 6, 1).unwrap());
    assert!(replica.sampler(100, 0, 1).unwrap_err().to_string().contains("batch size is 0"));
    step(&mut replica, 0.1).unwrap();
}

/// Two ranks train; a third joins with another setting, or another model. It is refused, and they continue.
#[test]
fn a_newcomer_that_does_not_fit_is_refused_and_the_job_goes_on() {
    for (momentum, width, data, text) in [
        (0.5, WIDTH, "a", "momentum is 0.9 on ranks 0 and 1 and 0.5 on rank 2;"),
        (0.9, WIDTH - 1, "a", "parameter `only` [299]"),
        // Named before a model that differs, of which it may be the cause.
        (0.9, WIDTH - 1, "b", "the data is a on ranks 0 and 1 and b on rank 2;"),
    ] {
        let config = Config { shards: Some(4), ..Config::default() };
        let groups = scripted(3, &[&[0, 1], &[0, 1, 2], &[0, 1]]);
        let elastic = |groups, momentum, width, data: &str| {
            let values = vec![1.0; width];
            let config = Config { stated: vec![("the data".into(), data.into())], ..config.clone() };
            Replica::elastic(
                Scripted::new(groups, Arc::default()),
                &specs(width),
                &values,
                &config,
                sgd(momentum),
            )
        };
        let (elastic, mut groups) = (&elastic, groups.into_iter());
        let (ends, refusal) = std::thread::scope(|scope| {
            let members: Vec<_> = groups
                .by_ref()
                .take(2)
                .map(|groups| {
                    scope.spawn(move || {
                        let mut replica = elastic(groups, 0.9, WIDTH, "a").unwrap();
                        step(&mut replica, 0.1).unwrap();
                        replica.recover(Error::Lost).unwrap();
                        assert_eq!((replica.group().world_size(), replica.steps()), (2, 1));
                        assert_eq!(step(&mut replica, 0.1).unwrap().change, Change::None);
                        replica.values().unwrap().to_vec()
                    })
                })
                .collect();
            let newcomer = groups.next().unwrap();
            let newcomer =
                scope.spawn(move || elastic(newcomer, momentum, width, data).err().unwrap().to_string());
            let ends: Vec<_> = members.into_iter().map(|member| member.join().unwrap()).collect();
            (ends, newcomer.join().unwrap())
        });
        assert!(refusal.contains(text), "{refusal}");
        let mut alone = join(Group::alone(), &config, sgd(0.9)).unwrap();
        (0..2).for_each(|_| drop(step(&mut alone, 0.1).unwrap()));
        assert!(ends.iter().all(|values| values == alone.values().unwrap()));
    }
}
