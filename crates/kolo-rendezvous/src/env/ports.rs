//! Ports of the store for jobs whose launcher passes none: a hash of the job's name, which all workers know.

use kolo_schedule::hash::{GOLDEN_GAMMA, fnv1a, splitmix64};

/// Lowest port: the range lies below the ports of outgoing connections on Linux (from 32768) and elsewhere.
const LOWEST: u64 = 20_000;
const COUNT: u64 = 10_000;

/// Number of ports that a job may try. Other programs may use some of them, hardly ever all.
const TRIES: usize = 8;

/// Returns the distinct ports for a job's store, in the order in which all its workers try them.
pub(super) fn of_job(job: &str) -> Vec<u16> {
    let seed = fnv1a(job.as_bytes());
    let mut ports = Vec::with_capacity(TRIES);
    // Twice as many draws as ports: few of them repeat a port.
    for throw in 1..=2 * TRIES as u64 {
        let port = (LOWEST + splitmix64(seed.wrapping_add(throw).wrapping_mul(GOLDEN_GAMMA)) % COUNT) as u16;
        if ports.len() < TRIES && !ports.contains(&port) {
            ports.push(port);
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_different_ones_within_bounds_and_never_change() {
        for job in 0..2000 {
            let ports = of_job(&format!("slurm {job}.0"));
            assert!(ports.iter().all(|port| (20_000..30_000).contains(port)), "{ports:?}");
            let different: std::collections::BTreeSet<_> = ports.iter().collect();
            assert_eq!(different.len(), TRIES, "{ports:?}");
        }
        assert_eq!(of_job("a"), of_job("a"));
        assert_ne!(of_job("a"), of_job("b"));
    }

    #[test]
    fn jobs_spread_over_the_ports() {
        let first: std::collections::BTreeSet<_> =
            (0..1000).map(|job| of_job(&format!("mpirun {job}"))[0]).collect();
        // 1000 draws from 10,000 ports hit 952 different ones on average, with a standard deviation of 7.
        assert!((920..985).contains(&first.len()), "{}", first.len());
    }
}
