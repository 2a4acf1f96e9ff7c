//! Reduction of the gradients of all shards to the one that the optimizer sees: their sum, or a compressed
//! sum.
//!
//! A new one is a file here, or in `compressed/`, and a line in [`REDUCTIONS`]. One of the user's own is a
//! type that implements [`Reducer`], as `Config::reduction`.

mod compressed;
mod interface;
mod samples;
mod sum;

use std::sync::Arc;

pub use self::interface::{Context, FinishedShard, ReadyStep, Reducer, Reduction};
pub use self::samples::SampleCount;
use kolo_optim::Settings;
use kolo_optim::table::{self, Choice, ChoiceError, Entry};

/// All reductions; the first one is the default.
pub static REDUCTIONS: &[Entry<dyn Reducer>] = &[
    sum::ENTRY,
    compressed::BF16,
    compressed::F16,
    compressed::QSGD,
    compressed::EF_SIGN,
    compressed::TOP_K,
    compressed::RANDOM_K,
    compressed::DGC,
    compressed::POWER_SGD,
    compressed::ONEBIT_ADAM,
];

/// Returns the entry of that name in [`REDUCTIONS`].
///
/// # Errors
///
/// There is none of that name; the error lists the known ones.
pub fn find(name: &str) -> Result<&'static Entry<dyn Reducer>, ChoiceError> {
    table::find("reduction", REDUCTIONS, name)
}

/// Returns the reduction of that name, with these settings; the others have their defaults.
///
/// # Errors
///
/// There is none of that name, it has no such setting, or a value is not allowed.
pub fn named(name: &str, settings: &Settings) -> Result<Arc<dyn Reducer>, ChoiceError> {
    Ok(find(name)?.build(settings)?.into())
}

/// Parses a reduction as written on the command line: `NAME`, or `NAME:key=value,…` as in
/// `qsgd:bits=4,block=512`.
///
/// # Errors
///
/// Same as [`named`], or the text has another form.
pub fn parse(text: &str) -> Result<Arc<dyn Reducer>, ChoiceError> {
    let Choice { name, settings } = text.parse()?;
    named(&name, &settings)
}

/// Returns the default: the exact sum.
pub fn exact() -> Arc<dyn Reducer> {
    Arc::new(sum::Exact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buckets::{BucketCaps, plan, reversed};
    use kolo_comm::{Group, Rank};
    use kolo_optim::{Kind, Layout, ParamSpec};
    use kolo_sampler::Assignment;

    /// Elements of one bucket of at most 1 MiB.
    const LEN: usize = 1 << 18;

    /// Steps one shard twice and returns the bytes on the wire of the second step, when a warm-up of one step is
    /// over.
    fn sent(reducer: &dyn Reducer) -> usize {
        let spec = ParamSpec::new("matrix", vec![512, LEN / 512], Kind::Parameter { decay: true });
        let layout = Layout::new(vec![spec]);
        let bucket = &plan(&layout, &reversed(&layout), BucketCaps::of_mib(1.0), true)[0];
        let (group, assignment) = (&Group::alone(), &Assignment::new(&[1], Rank(0)));
        let mut reduction = reducer.build(&Context { group, layout: &layout, bucket, assignment }).unwrap();
        for step in 0..2 {
            reduction.add(0, &vec![1.0; LEN], true);
            reduction.end_shard(FinishedShard { number: 0, step, count: 1.0 });
            let ready = ReadyStep { number: step, samples: SampleCount::default() };
            ready.samples.set(1.0);
            reduction.start(None, assignment, &ready);
            reduction.wait().unwrap();
            reduction.reset();
        }
        reduction.wire_bytes().unwrap_or(4 * LEN)
    }

    /// `kolo plan` predicts by these costs.
    #[test]
    fn every_reduction_sends_what_its_cost_says() {
        for entry in REDUCTIONS {
            let warm_up = entry.setting("warmup_steps").map(|_| ("warmup_steps".into(), 1.0.into()));
            let settings: Settings = warm_up.into_iter().collect();
            let reducer = entry.build(&settings).unwrap();
            let cost = reducer.wire_cost().unwrap_or_else(|| panic!("{}", entry.name));
            assert_eq!(cost.is_exact, entry.name == REDUCTIONS[0].name, "{}", entry.name);
            if let Some(bytes) = cost.bytes_per_element {
                let ratio = sent(&*reducer) as f64 / (bytes * LEN as f64);
                assert!((0.95..1.05).contains(&ratio), "{}: {ratio}", entry.name);
            }
        }
    }
}
