//! Insufficient memory.

use kolo_report::units::bytes;

use super::{Check, Found, Severity};
use crate::facts::Facts;
use crate::probes::Limit;

pub(super) const CHECK: Check =
    Check { name: "memory", about: "workers that need more memory than there is", find };

/// Share of the free memory from which a warning is due.
const NARROW: f64 = 0.9;

pub(super) const REMEDY: &str = "Start fewer workers there (--nproc), or give smaller shards and more of them (--batch-size, --shards): a \
                      worker holds the activations of one shard at a time.";

/// Memory that some processes share: its name, the free bytes, and the ranks.
struct Pool {
    name: String,
    left: f64,
    ranks: Vec<usize>,
}

fn find(facts: &Facts) -> Option<Found> {
    let need = |rank: &usize| {
        let own = facts.trial(*rank).or(facts.model()).copied();
        own.map_or(0.0, |step| match facts.ranks[*rank].is_server {
            // A server adds what it receives.
            true => 2.0 * step.gradient_bytes as f64,
            false => step.peak_bytes as f64 + step.gradient_bytes as f64,
        })
    };
    let used = |pool: &Pool| pool.ranks.iter().map(need).sum::<f64>();
    let fullest =
        pools(facts).into_iter().max_by(|a, b| (used(a) / a.left).total_cmp(&(used(b) / b.left)))?;
    let needed = used(&fullest);
    if needed <= NARROW * fullest.left {
        return None;
    }
    let severity = if needed > fullest.left { Severity::Error } else { Severity::Warning };
    let count = fullest.ranks.len();
    Some((
        severity,
        format!(
            "{count} rank{} will need {}, and {} is left of {}",
            if count == 1 { "" } else { "s" },
            bytes(needed),
            bytes(fullest.left),
            fullest.name
        ),
        "That is what a trial step of one shard has taken in each, and a gradient on its way; without the files that are read. A \
         process that gets no memory is killed, or swaps, and all others wait for it."
            .into(),
        REMEDY.into(),
    ))
}

/// Returns the pools of memory: that of each host, and that of each limit of some ranks.
fn pools(facts: &Facts) -> Vec<Pool> {
    let mut pools = Vec::new();
    for host in facts.hosts() {
        let of = |rank: usize| &facts.ranks[rank].memory;
        let available = host.iter().map(|rank| of(*rank).available).min().unwrap_or(0);
        let name = format!("the memory of {}", facts.ranks[host[0]].host.name);
        let limits = host.iter().flat_map(|rank| &of(*rank).limits);
        let mut groups: Vec<&Limit> = Vec::new();
        for limit in limits {
            if !groups.iter().any(|known| known.group == limit.group) {
                groups.push(limit);
            }
        }
        for limit in groups {
            let is_in = |rank: &&usize| of(**rank).limits.iter().any(|own| own.group == limit.group);
            pools.push(Pool {
                name: format!(
                    "the {} that their container or control group may have",
                    bytes(limit.bytes as f64)
                ),
                left: (limit.left as f64).max(1.0),
                ranks: host.iter().filter(is_in).copied().collect(),
            });
        }
        pools.push(Pool { name, left: (available as f64).max(1.0), ranks: host });
    }
    pools
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_need_of_all_workers_of_a_host_counts() {
        let mut facts = example::one_host(4);
        facts.ranks.iter_mut().for_each(|rank| rank.memory.available = 600_000_000);
        let (severity, what, ..) = find(&facts).unwrap();
        assert_eq!(severity, Severity::Error);
        assert_eq!(what, "4 ranks will need 601 MB, and 600 MB is left of the memory of a");
        facts.ranks.iter_mut().for_each(|rank| rank.memory.available = 650_000_000);
        assert_eq!(find(&facts).unwrap().0, Severity::Warning);
        facts.ranks.iter_mut().for_each(|rank| rank.memory.available = 700_000_000);
        assert_eq!(find(&facts), None);
    }

    #[test]
    fn a_control_group_is_a_limit_of_those_in_it() {
        let mut facts = example::one_host(2);
        facts.ranks[1].memory.limits =
            vec![Limit { group: "/a".into(), bytes: 120_000_000, left: 100_000_000 }];
        let (severity, what, ..) = find(&facts).unwrap();
        assert_eq!(severity, Severity::Error);
        assert!(what.starts_with("1 rank will need 150 MB, and 100 MB is left of the 120 MB that"), "{what}");
    }

    #[test]
    fn ranks_in_groups_of_their_own_share_the_limit_of_the_parent() {
        let mut facts = example::one_host(2);
        let limit = |group: &str, left| Limit { group: group.into(), bytes: left, left };
        for (rank, own) in ["/a/0", "/a/1"].into_iter().enumerate() {
            facts.ranks[rank].memory.limits = vec![limit(own, 180_000_000), limit("/a", 250_000_000)];
        }
        let (severity, what, ..) = find(&facts).unwrap();
        assert_eq!(severity, Severity::Error);
        assert!(what.starts_with("2 ranks will need 301 MB, and 250 MB is left"), "{what}");
        assert_eq!(facts.ranks[0].memory.free(), 180_000_000);
    }
}
