//! Settings that must be the same on all ranks, as text. The ranks compare them when they meet, and in every
//! step.
//!
//! A rank sends a fingerprint of its settings. Only if the fingerprints differ do all ranks send the text,
//! from which every rank names the same setting.

use kolo_comm::Group;
use kolo_comm::hash::fnv1a;
use kolo_optim::{Optimizer, ParamGroup, Selector};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use kolo_reduction::{BucketCaps, Error, transform};
use kolo_step::LossScaling;

/// Text for a setting that a rank has not been given.
const NOT_GIVEN: &str = "not given";

/// Settings of one rank: names and values, in an order that is the same on all ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stated(Vec<(String, String)>);

impl Stated {
    /// Settings of a job before its first step. Overlap of reductions with the next forward pass, weights of
    /// shares and the treatment of stragglers are not among them: each rank may have its own, or rank 0's
    /// applies.
    ///
    /// # Errors
    ///
    /// A transform is in no table, or has no such setting.
    pub fn of_job(
        config: &Config,
        caps: Option<BucketCaps>,
        optimizer: &dyn Optimizer,
    ) -> Result<Self, Error> {
        let mut stated = Stated::default();
        // First, because a program's setting is often the cause of other differences, and its user knows its
        // name.
        config.stated.iter().for_each(|(name, value)| stated.add(name, value));
        stated.add("shards", config.shards.map_or("one for each rank".into(), |shards| shards.to_string()));
        stated.add("reduction", config.reduction.name());
        for (name, value) in config.reduction.settings() {
            stated.add(format!("{name} of {}", config.reduction.name()), value.to_string());
        }
        stated.add("backup_every", config.backup_every.to_string());
        let scaling = |LossScaling { initial, growth, backoff, growth_interval }: LossScaling| {
            format!(
                "{initial}, times {growth} after {growth_interval} steps, times {backoff} after an overflow"
            )
        };
        stated.add("loss scaling", config.loss_scaling.map_or("none".into(), scaling));
        stated.add("synchronization", config.sync.to_string());
        stated.add("islands", config.islands.map_or("one for each shard".into(), |count| count.to_string()));
        stated.add("verify_every", config.verify_every.to_string());
        stated.add("statistics", format!("{:?}", config.statistics));
        stated.add("sharding", config.sharding.name());
        stated.add("redundancy", config.redundancy.to_string());
        let bytes = |caps: BucketCaps| format!("{} and {} bytes", caps.first, caps.other);
        stated.add("noise_scale", config.noise_scale.to_string());
        stated.add("caps (size of buckets)", caps.map_or("chosen for the group".into(), bytes));
        stated.add("tune", config.tune.to_string());
        stated.add("optimizer", optimizer.name());
        for (name, value) in optimizer.settings() {
            stated.add(name, value.to_string());
        }
        let groups: Vec<String> = config.groups.iter().map(ParamGroup::to_string).collect();
        stated.add("groups of parameters", if groups.is_empty() { "none".into() } else { groups.join("; ") });
        let turn = |turn: &Vec<Selector>| turn.iter().map(Selector::to_string).collect::<Vec<_>>().join(",");
        let turns: Vec<String> = config.turns.iter().map(turn).collect();
        stated.add("turns", if turns.is_empty() { "none".into() } else { turns.join("; ") });
        let names: Vec<&str> = config.transforms.iter().map(|choice| choice.name.as_str()).collect();
        stated.add("transforms", if names.is_empty() { "none".into() } else { names.join(", ") });
        for choice in &config.transforms {
            for (name, value) in transform::find(&choice.name)?.complete(&choice.settings)? {
                stated.add(name, value.to_string());
            }
        }
        Ok(stated)
    }

    /// Adds a setting; a number is appended to a name that exists already.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        let numbered = |n: usize| if n == 1 { name.clone() } else { format!("{name} ({n})") };
        let mut names = (1..).map(numbered);
        let free = names.find(|name| self.value(name).is_none()).unwrap_or(name.clone());
        self.0.push((free, value));
    }

    /// Adds all settings of a part of the job.
    pub(crate) fn add_all(&mut self, of: &str, others: Stated) {
        others.0.into_iter().for_each(|(name, value)| self.add(format!("{of} {name}"), value));
    }

    /// Replaces the value of a setting, or adds it.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.retain(|(other, _)| other != name);
        self.0.push((name.into(), value.into()));
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Fingerprint of the settings, independent of their order.
    pub(crate) fn print(&self) -> u64 {
        let once = |(name, value): &(String, String)| fnv1a(format!("{name}\0{value}").as_bytes());
        // Twice, because the last letter changes a hash little: the changes of two settings could cancel
        // out.
        let hash = |setting: &(String, String)| fnv1a(&once(setting).to_le_bytes());
        self.0.iter().map(hash).fold(0, u64::wrapping_add)
    }

    /// Returns the error that names the first setting in which the ranks differ, the same on all of them. A
    /// collective.
    pub(crate) fn name_difference(&self, group: &Group) -> Result<Error, Error> {
        Ok(difference(&group.all_gather_value(self)?))
    }
}

fn difference(all: &[Stated]) -> Error {
    let names = all.iter().flat_map(|stated| stated.0.iter().map(|(name, _)| name));
    let values = |name: &String| -> Vec<String> {
        all.iter().map(|stated| stated.value(name).unwrap_or(NOT_GIVEN).to_string()).collect()
    };
    let mut settings = names.map(|name| (name.clone(), values(name)));
    match settings.find(|(_, values)| values.iter().any(|value| *value != values[0])) {
        Some((setting, values)) => Error::SettingsDiffer { setting, values },
        None => Error::Setting("the ranks have different settings".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated(values: &[(&str, &str)]) -> Stated {
        Stated(values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    #[test]
    fn the_first_setting_that_differs_is_named_with_all_values() {
        let (a, b) = (stated(&[("x", "1"), ("y", "2")]), stated(&[("x", "1"), ("y", "3")]));
        let message = |all: &[Stated]| difference(all).to_string();
        assert!(message(&[a.clone(), b.clone()]).starts_with("y is 2 on rank 0 and 3 on rank 1;"));
        let many = message(&[b.clone(), a.clone(), a.clone(), b, stated(&[("x", "1")])]);
        assert!(
            many.starts_with("y is 3 on ranks 0 and 3, 2 on ranks 1 and 2 and not given on rank 4;"),
            "{many}"
        );
        let more = message(&[a.clone(), stated(&[("x", "1"), ("y", "2"), ("z", "4")])]);
        assert!(more.starts_with("z is not given on rank 0 and 4 on rank 1;"), "{more}");
    }

    #[test]
    fn a_fingerprint_shows_any_difference_and_no_order() {
        let one = stated(&[("x", "1"), ("y", "2")]);
        assert_eq!(one.print(), stated(&[("y", "2"), ("x", "1")]).print());
        for other in
            [stated(&[("x", "2"), ("y", "1")]), stated(&[("x", "1")]), stated(&[("x", "1"), ("y", "")])]
        {
            assert_ne!(one.print(), other.print());
        }
        for (n, m) in (0..10).flat_map(|n| (0..10).map(move |m| (n, m))).filter(|pair| *pair != (4, 4)) {
            let of = |n: usize, m: usize| stated(&[("shards", &n.to_string()), ("islands", &m.to_string())]);
            assert_ne!(of(4, 4).print(), of(n, m).print(), "{n} and {m}");
        }
        let mut twice = Stated::default();
        ["1", "2"].into_iter().for_each(|value| twice.add("x", value));
        assert_eq!(twice, stated(&[("x", "1"), ("x (2)", "2")]));
        twice.set("x", "3");
        assert_eq!(twice.value("x"), Some("3"));
    }
}
