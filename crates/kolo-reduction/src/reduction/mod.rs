//! Reduction of the gradients of all shards to the one that the optimizer sees: their sum, or a compressed
//! sum.
//!
//! A compressed sum is chosen by its text ([`parse`]) or by its type. Both have the same defaults:
//!
//! ```
//! use std::sync::Arc;
//!
//! use kolo_reduction::reduction::{Reducer, TopK, parse};
//!
//! // As `Config::reduction`, which refuses values that are not allowed.
//! let typed: Arc<dyn Reducer> = Arc::new(TopK { density: 0.05, ..TopK::default() });
//! assert_eq!(typed.settings(), parse("top-k:density=0.05")?.settings());
//! # Ok::<(), kolo_optim::ChoiceError>(())
//! ```
//!
//! A new one is a file here, or in `compressed/`, and a line in [`REDUCTIONS`]. One of the user's own is a
//! type that implements [`Reducer`], as `Config::reduction`.

mod compressed;
mod interface;
mod samples;
mod sum;

use std::sync::Arc;

pub use self::compressed::{Bf16, Dgc, EfSign, F16, OnebitAdam, PowerSgd, Qsgd, RandomK, TopK};
pub use self::interface::{Context, FinishedShard, ReadyStep, Reducer, Reduction};
pub use self::samples::SampleCount;
use kolo_optim::Settings;
use kolo_optim::table::{self, Choice, ChoiceError, Entry};

/// All reductions; the first one is the default.
pub static REDUCTIONS: &[Entry<dyn Reducer>] = &[
    sum::ENTRY,
    compressed::BF16_ENTRY,
    compressed::F16_ENTRY,
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

/// Checks the settings of a reduction of the table, which a program may have made from any values.
///
/// # Errors
///
/// A value is not allowed.
pub fn check(reducer: &dyn Reducer) -> Result<(), ChoiceError> {
    match find(reducer.name()) {
        Ok(entry) => entry.complete(&reducer.settings()).map(drop),
        Err(_) => Ok(()),
    }
}

/// Returns the default: the exact sum.
pub fn exact() -> Arc<dyn Reducer> {
    Arc::new(sum::Exact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buckets::{BucketCaps, plan, reversed};
    use kolo_comm::{Group, Rank, Readers};
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
            let ready = ReadyStep { number: step, samples: SampleCount::default(), readers: Readers::All };
            ready.samples.set(1.0);
            reduction.start(None, assignment, &ready);
            reduction.wait().unwrap();
            reduction.reset();
        }
        reduction.wire_bytes().unwrap_or(4 * LEN)
    }

    /// A type has the name, the settings and the defaults of its entry.
    #[test]
    fn each_type_is_that_of_its_entry() {
        let typed: [Box<dyn Reducer>; 9] = [
            Box::new(Bf16::default()),
            Box::new(F16::default()),
            Box::new(Qsgd::default()),
            Box::new(EfSign::default()),
            Box::new(TopK::default()),
            Box::new(RandomK::default()),
            Box::new(Dgc::default()),
            Box::new(PowerSgd::default()),
            Box::new(OnebitAdam::default()),
        ];
        for (typed, entry) in typed.iter().zip(&REDUCTIONS[1..]) {
            let by_name = entry.build(&Settings::default()).unwrap();
            assert_eq!((typed.name(), typed.settings()), (entry.name, by_name.settings()));
            assert_eq!(typed.shard_state(), by_name.shard_state());
        }
        assert_eq!(typed.len(), REDUCTIONS.len() - 1);
        let wrong = check(&TopK { density: 7.0, ..TopK::default() }).unwrap_err().to_string();
        assert!(wrong.starts_with("density of top-k is 7; it must be at least"), "{wrong}");
        let qsgd = Qsgd { bits: 3, ..Qsgd::default() };
        assert_eq!(qsgd.build().unwrap().settings(), parse("qsgd:bits=3").unwrap().settings());
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
