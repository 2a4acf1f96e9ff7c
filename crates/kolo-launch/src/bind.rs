//! Cores of a node's workers. A scheduler that moves workers between cores now and then puts several on one
//! core while another idles; workers that are bound to cores of their own do not depend on it.

use std::io;

use kolo_comm::schedule::words::numbers;
use rustix::thread::{CpuSet, sched_getaffinity};

/// Cores on which the workers of a node may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// Those of the launcher, which the system's scheduler chooses among.
    #[default]
    None,
    /// An equal part of them for each worker. With more workers than cores each gets one core, in turn.
    Core,
}

impl Bind {
    /// Returns the cores of each of so many processes; `None` where the scheduler chooses.
    pub(crate) fn cores(self, processes: usize) -> io::Result<Option<Vec<Vec<usize>>>> {
        match self {
            Bind::None => Ok(None),
            Bind::Core => Ok(Some(shares(&allowed()?, processes))),
        }
    }
}

/// Cores that this thread may use: all, or those that a job manager, a container or `taskset` leaves it.
fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Divides the cores among so many processes.
fn shares(allowed: &[usize], processes: usize) -> Vec<Vec<usize>> {
    let cores = allowed.len();
    let share = |process: usize| match cores < processes {
        true => allowed.iter().cycle().skip(process).take(cores.min(1)).copied().collect(),
        false => allowed[process * cores / processes..(process + 1) * cores / processes].to_vec(),
    };
    (0..processes).map(share).collect()
}

/// Returns the set of these cores.
pub(crate) fn set_of(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    set
}

/// Describes the cores of each process for the job's log.
pub(crate) fn describe(cores: &[Vec<usize>]) -> String {
    let of = |(local, cores): (usize, &Vec<usize>)| {
        let noun = if cores.len() == 1 { "core" } else { "cores" };
        format!("{local} to {noun} {}", numbers(cores))
    };
    let all: Vec<String> = cores.iter().enumerate().map(of).collect();
    format!("the workers of this node are bound (--bind core): local rank {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_divided_and_none_idles() {
        for (allowed, processes, expected) in [
            (&[0usize, 1][..], 4, &[&[0usize][..], &[1], &[0], &[1]][..]),
            (&[2, 5, 7], 4, &[&[2], &[5], &[7], &[2]]),
            (&[0, 1, 2, 3], 2, &[&[0, 1], &[2, 3]]),
            (&[0, 1, 8], 2, &[&[0], &[1, 8]]),
            (&[3], 1, &[&[3]]),
            (&[0, 1], 2, &[&[0], &[1]]),
        ] {
            assert_eq!(shares(allowed, processes), expected, "{allowed:?} for {processes}");
        }
        for (cores, processes) in (1..9).flat_map(|cores| (1..9).map(move |processes| (cores, processes))) {
            let allowed: Vec<usize> = (0..cores).map(|core| 3 * core).collect();
            let shares = shares(&allowed, processes);
            assert!(shares.iter().all(|share| !share.is_empty()));
            let load = |core: &usize| shares.iter().filter(|share| share.contains(core)).count();
            let (least, most) = (allowed.iter().map(load).min(), allowed.iter().map(load).max());
            assert_eq!((least, most), (Some((processes / cores).max(1)), Some(processes.div_ceil(cores))));
        }
    }

    #[test]
    fn the_log_names_the_cores_of_each_worker() {
        assert_eq!(
            describe(&[vec![0, 1, 2], vec![5]]),
            "the workers of this node are bound (--bind core): local rank 0 to cores 0-2, 1 to core 5"
        );
        assert_eq!(Bind::None.cores(2).unwrap(), None);
        let own = Bind::Core.cores(1).unwrap().unwrap();
        assert_eq!(own, [allowed().unwrap()]);
    }
}
