//! More workers than processors.

use kolo_report::units::{number, percent};

use super::finding::{Check, Found, Severity};
use crate::facts::Facts;

/// Entry of the table.
pub(super) const CHECK: Check =
    Check { name: "cores", about: "a host with more workers than processors that they may use", find };

fn find(facts: &Facts) -> Option<Found> {
    let crowded = facts.hosts().into_iter().filter_map(|host| {
        let workers: Vec<usize> = host.into_iter().filter(|rank| !facts.ranks[*rank].is_server).collect();
        let cores = workers.iter().map(|rank| facts.ranks[*rank].cpu.usable()).fold(0.0, f64::max);
        (workers.len() as f64 > cores && cores > 0.0).then_some((workers, cores))
    });
    let (workers, cores) =
        crowded.max_by(|a, b| (a.0.len() as f64 / a.1).total_cmp(&(b.0.len() as f64 / b.1)))?;
    let cpu = facts.ranks[workers[0]].cpu;
    let why = match cpu.quota.filter(|quota| *quota < cpu.cores as f64) {
        Some(_) => {
            "A container's CPU limit stops its processes when their time is used up, in bursts of a tenth of a second, \
                    and every other worker waits for the one that is stopped."
        }
        None => {
            "A worker computes on one thread, so these take turns, and all others wait for those whose turn it is not."
        }
    };
    let who = match workers.len() {
        1 => format!("{} has", facts.name(workers[0])),
        count => {
            format!("{count} workers ({} to {}) have", facts.name(workers[0]), facts.name(workers[count - 1]))
        }
    };
    Some((
        Severity::Warning,
        format!("{who} {} processor{}", number(cores), if cores == 1.0 { "" } else { "s" }),
        format!("{why} They compute at most {} of what they could.", percent(cores / workers.len() as f64)),
        format!(
            "Start {} there (--nproc); with the same --shards the bits stay the same.",
            match cores.floor() as usize {
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

    #[test]
    fn workers_of_one_host_share_its_processors() {
        let mut facts = example::one_host(4);
        facts.ranks.iter_mut().for_each(|rank| rank.cpu.cores = 4);
        assert_eq!(find(&facts), None);
        facts.ranks.iter_mut().for_each(|rank| rank.cpu.cores = 2);
        let (_, what, why, remedy) = find(&facts).unwrap();
        assert_eq!(what, "4 workers (rank 0 to rank 3) have 2 processors");
        assert!(why.contains("at most 50 %") && remedy.contains("2 workers"), "{why} {remedy}");
        facts.ranks.iter_mut().for_each(|rank| rank.is_server = true);
        assert_eq!(find(&facts), None);
    }

    #[test]
    fn a_quota_counts_as_processors() {
        let mut facts = example::hosts(2);
        facts.ranks[1].cpu.quota = Some(0.5);
        let (_, what, why, _) = find(&facts).unwrap();
        assert_eq!(what, "rank 1 on b has 0.5 processors");
        assert!(why.contains("CPU limit") && why.contains("50 %"), "{why}");
    }
}
