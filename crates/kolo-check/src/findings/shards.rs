//! Shards that do not divide equally among workers.

use kolo_report::units::{number, percent, plural};

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check =
    Check { name: "shards", about: "workers without a shard, or shards that do not divide equally", find };

fn find(facts: &Facts) -> Option<Found> {
    let settings = &facts.settings;
    let (shards, workers) = (settings.shards(), settings.workers());
    let most = *settings.shares.iter().max()?;
    let idle = settings.shares.iter().filter(|share| **share == 0).count();
    if idle > 0 {
        return Some((
            Severity::Warning,
            format!(
                "{idle} of {} {} no shard: a step has {shards}",
                plural(workers, "worker"),
                if idle == 1 { "has" } else { "have" }
            ),
            "A worker computes whole shards. Those without one wait for the others in every step; they are of use only where one dies.".into(),
            format!(
                "Start {} (--nproc), or give --shards {workers} or more; that makes the global batch another one, unless \
                 --batch-size becomes as much smaller.",
                plural(workers - idle, "worker")
            ),
        ));
    }
    // The user has chosen the shares.
    if settings.has_weights || shards.is_multiple_of(workers) {
        return None;
    }
    let used = shards as f64 / (workers * most) as f64;
    Some((
        Severity::Warning,
        format!(
            "{} on {}: some have {most}, others {}",
            plural(shards, "shard"),
            plural(workers, "worker"),
            settings.shares.iter().min()?
        ),
        format!(
            "A step takes as long as {most} shards, so {} of the computing is waited away (at best {} times as fast as one worker). And ranks \
             that hold parts of several subtrees of the sum send each of them; with 8 shards on 3 workers, for example, that is half as \
             many bytes again (docs/exact.md).",
            percent(1.0 - used),
            number(shards as f64 / most as f64)
        ),
        format!(
            "Give a number of workers that divides {shards}, which changes no bit, or a number of shards that {workers} divides, which \
             changes the result."
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn idle_and_uneven_workers_are_reported() {
        let mut facts = example::one_host(3);
        facts.settings.shares = vec![3, 3, 2];
        let (_, what, why, _) = find(&facts).unwrap();
        assert_eq!(what, "8 shards on 3 workers: some have 3, others 2");
        assert!(why.contains("so 11.1 % of the computing") && why.contains("2.67 times"), "{why}");
        facts.settings.has_weights = true;
        assert_eq!(find(&facts), None);
        facts.settings.shares = vec![1, 1, 0];
        assert_eq!(find(&facts).unwrap().1, "1 of 3 workers has no shard: a step has 2");
    }
}
