//! More workers than processors.

use kolo_report::units::{number, percent};

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check =
    Check { name: "cores", about: "a host with more workers than processors that they may use", find };

/// Processors that some workers of a host share.
struct Pool {
    processors: f64,
    /// True if they are the CPU time that a control group may use.
    is_quota: bool,
    workers: Vec<usize>,
}

impl Pool {
    /// Share of the time that each of them can compute; below 1 they slow each other down.
    fn share(&self) -> f64 {
        self.processors / self.workers.len() as f64
    }
}

/// Returns two kinds of pools: for each worker all workers that may run only on its processors, and for
/// each quota all workers that it limits.
fn pools(facts: &Facts) -> Vec<Pool> {
    let cpu = |rank: usize| &facts.ranks[rank].cpu;
    let mut pools = Vec::new();
    for host in facts.hosts() {
        let workers: Vec<usize> = host.into_iter().filter(|rank| !facts.ranks[*rank].is_server).collect();
        for rank in &workers {
            let allowed = &cpu(*rank).allowed;
            let is_within = |other: &usize| cpu(*other).allowed.iter().all(|cpu| allowed.contains(cpu));
            let within = workers.iter().copied().filter(is_within).collect();
            pools.push(Pool { processors: allowed.len() as f64, is_quota: false, workers: within });
            for quota in &cpu(*rank).quotas {
                let has_it = |other: &usize| cpu(*other).quotas.iter().any(|own| own.group == quota.group);
                let workers = workers.iter().copied().filter(has_it).collect();
                pools.push(Pool { processors: quota.processors, is_quota: true, workers });
            }
        }
    }
    pools
}

/// Returns the pools with more workers than processors.
fn crowded(facts: &Facts) -> impl Iterator<Item = Pool> {
    pools(facts).into_iter().filter(|pool| pool.processors > 0.0 && pool.share() < 1.0)
}

/// True if other workers take turns with this one on too few processors, so that its times are by chance.
pub(super) fn takes_turns(facts: &Facts, rank: usize) -> bool {
    crowded(facts).any(|pool| pool.workers.len() > 1 && pool.workers.contains(&rank))
}

fn find(facts: &Facts) -> Option<Found> {
    let pool = crowded(facts).min_by(|a, b| a.share().total_cmp(&b.share()))?;
    let why = match pool.is_quota {
        true => {
            "A container's CPU limit stops its processes when their time is used up, in bursts of a tenth of a second, and every other \
             worker waits for the one that is stopped."
        }
        false => {
            "A worker computes on one thread, so these take turns, and all others wait for those whose turn it is not."
        }
    };
    let workers = &pool.workers;
    let who = match workers.len() {
        1 => format!("{} has", facts.name(workers[0])),
        count => {
            format!("{count} workers ({} to {}) have", facts.name(workers[0]), facts.name(workers[count - 1]))
        }
    };
    let processors = pool.processors;
    Some((
        Severity::Warning,
        format!("{who} {} processor{}", number(processors), if processors == 1.0 { "" } else { "s" }),
        format!("{why} They compute at most {} of what they could.", percent(pool.share())),
        format!(
            "Start {} there (--nproc); with the same --shards the bits stay the same.",
            match processors.floor() as usize {
                0 => "no worker".into(),
                1 => "1 worker".into(),
                most => format!("{most} workers"),
            }
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::probes::Quota;

    #[test]
    fn workers_of_one_host_share_its_processors() {
        let mut facts = example::one_host(4);
        facts.ranks.iter_mut().for_each(|rank| rank.cpu.allowed.truncate(4));
        assert_eq!(find(&facts), None);
        facts.ranks.iter_mut().for_each(|rank| rank.cpu.allowed.truncate(2));
        let (_, what, why, remedy) = find(&facts).unwrap();
        assert_eq!(what, "4 workers (rank 0 to rank 3) have 2 processors");
        assert!(why.contains("at most 50 %") && remedy.contains("2 workers"), "{why} {remedy}");
        facts.ranks.iter_mut().for_each(|rank| rank.is_server = true);
        assert_eq!(find(&facts), None);
    }

    #[test]
    fn workers_that_are_bound_to_processors_of_their_own_have_enough() {
        let mut facts = example::one_host(4);
        facts.ranks.iter_mut().enumerate().for_each(|(rank, found)| found.cpu.allowed = vec![rank]);
        assert_eq!(find(&facts), None);
        facts.ranks[3].cpu.allowed = vec![1];
        assert_eq!(find(&facts).unwrap().1, "2 workers (rank 1 to rank 3) have 1 processor");
    }

    #[test]
    fn a_quota_counts_as_processors_of_those_that_have_it() {
        let mut facts = example::one_host(2);
        let quota = |group: &str| Quota { group: group.into(), processors: 1.0 };
        facts.ranks[0].cpu.quotas = vec![quota("a")];
        facts.ranks[1].cpu.quotas = vec![quota("b")];
        assert_eq!(find(&facts), None, "two containers of one host");
        let mut nested = facts.clone();
        nested.ranks.iter_mut().for_each(|rank| rank.cpu.quotas.push(quota("parent")));
        assert_eq!(find(&nested).unwrap().1, "2 workers (rank 0 to rank 1) have 1 processor");
        facts.ranks[1].cpu.quotas = vec![quota("a")];
        let (_, what, why, _) = find(&facts).unwrap();
        assert_eq!(what, "2 workers (rank 0 to rank 1) have 1 processor");
        assert!(why.contains("CPU limit") && why.contains("50 %"), "{why}");
    }
}
