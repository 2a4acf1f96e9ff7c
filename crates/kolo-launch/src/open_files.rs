//! The launcher's limit of open files and connections.
//!
//! With many workers on a node it needs more than the usual 1,024. A launcher that reaches its limit accepts
//! no more connections, and its workers wait.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::LaunchError;
use crate::job::Job;

/// Files besides those of the workers: libraries, terminals, signals, listeners, connections to launchers.
const FIXED: u64 = 64;
/// Files per worker: its pidfd and two pipes.
const OF_WORKER: u64 = 3;
/// Files per worker that is a member of an elastic job: its connections to the coordinator, each of which
/// takes two files during its handshake.
const OF_MEMBER: u64 = 4;
/// Files per rank of the job while this launcher leads: connections to the store of the generation.
const OF_RANK: u64 = 5;

/// Limit of this process before it was raised.
static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();

/// Returns the number of files that a launcher needs for a program that is not elastic, and for one that is.
fn needed(job: &Job) -> (u64, u64) {
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let workers = count(job.processes());
    let least = FIXED.saturating_add(workers.saturating_mul(OF_WORKER));
    let ranks = workers.saturating_mul(count(job.nnodes));
    let more = workers.saturating_mul(OF_MEMBER).saturating_add(ranks.saturating_mul(OF_RANK));
    (least, least.saturating_add(more))
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It is high enough, or can be raised to this value.
    Enough { raise_to: Option<Option<u64>> },
    /// It cannot be raised, and is too low for an elastic job.
    Warn(String),
    /// It cannot be raised, and the workers cannot be started.
    Refuse(String),
}

fn judge(limit: Rlimit, job: &Job) -> Verdict {
    let (least, all) = needed(job);
    let allows = |limit: Option<u64>, files: u64| limit.is_none_or(|limit| limit >= files);
    let sentence = |needs: u64| {
        let (most, workers) = (limit.maximum.unwrap_or(u64::MAX), job.processes());
        format!(
            "this launcher may have {most} files and connections open (`ulimit -Hn`), and needs some {needs} for \
             {workers} workers here of {} in all",
            job.world_size()
        )
    };
    if allows(limit.current, all) {
        Verdict::Enough { raise_to: None }
    } else if allows(limit.maximum, all) {
        Verdict::Enough { raise_to: Some(limit.maximum) }
    } else if allows(limit.maximum, least) {
        Verdict::Warn(sentence(all))
    } else {
        Verdict::Refuse(sentence(least))
    }
}

/// Raises the limit as far as the system permits, if the job needs it. Warns if it stays too low.
/// Fails if the limit is too low to start the workers.
pub(crate) fn raise(job: &Job) -> Result<(), LaunchError> {
    let limit = getrlimit(Resource::Nofile);
    let raise_to = match judge(limit, job) {
        Verdict::Enough { raise_to } => raise_to,
        Verdict::Warn(text) => {
            job.messages.print(&format!(
                "{text} where they are members of an elastic job: raise the limit, or start fewer on each node"
            ));
            Some(limit.maximum)
        }
        Verdict::Refuse(what) => {
            let remedy = "raise the limit before starting it, or start fewer workers on each node".into();
            return Err(LaunchError::Invalid { what, remedy });
        }
    };
    if let Some(current) = raise_to {
        ORIGINAL.get_or_init(|| limit);
        if let Err(cause) = setrlimit(Resource::Nofile, Rlimit { current, ..limit }) {
            job.messages
                .print(&format!("the launcher's limit of open files stays at {:?}: {cause}", limit.current));
        }
    }
    Ok(())
}

/// Returns the limit for workers, if the launcher's own has been raised. Programs that use `select` fail
/// with higher descriptors.
pub(crate) fn of_workers() -> Option<Rlimit> {
    ORIGINAL.get().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_where_it_must_be_and_refused_where_it_cannot() {
        let judge = |current, maximum, workers, nodes| {
            let job = Job { nnodes: nodes, ..Job::new(["true"], workers) };
            let limit = Rlimit { current: Some(current), maximum: Some(maximum) };
            super::judge(limit, &job)
        };
        assert_eq!(judge(1024, 4096, 64, 1), Verdict::Enough { raise_to: None }, "832 are needed");
        assert_eq!(judge(1024, 4096, 128, 1), Verdict::Enough { raise_to: Some(Some(4096)) });
        let Verdict::Warn(text) = judge(1024, 1024, 128, 2) else { panic!("too few for an elastic job") };
        for part in ["may have 1024", "some 2240", "128 workers here of 256"] {
            assert!(text.contains(part), "{text}");
        }
        let Verdict::Refuse(text) = judge(100, 100, 128, 2) else { panic!("too few for pipes") };
        assert!(text.contains("some 448"), "{text}");
        let unlimited = Rlimit { current: Some(1024), maximum: None };
        let job = Job::new(["true"], 1000);
        assert_eq!(super::judge(unlimited, &job), Verdict::Enough { raise_to: Some(None) });
    }
}
