//! The threads that a launcher needs. Without them it could not serve its workers, which would wait for it.

use std::io;
use std::sync::mpsc;

use rustix::process::{Resource, getrlimit};

use crate::error::LaunchError;
use crate::job::Job;

/// Threads besides those for workers: a listener and a coordinator, their questions, and output.
const FIXED: usize = 8;
/// Threads per worker: its two streams, and its connections to the coordinator and to a generation.
const OF_WORKER: usize = 5;
/// Number of threads that are tried at most: a limit that permits these permits one more for each worker.
const TRIED: usize = 256;

/// Tries if this process can start the threads that the job needs.
pub(crate) fn check(job: &Job) -> Result<(), LaunchError> {
    let needed = FIXED.saturating_add(job.processes().saturating_mul(OF_WORKER));
    start(needed.min(TRIED)).map_err(|cause| {
        let limit = |resource, unit: u64| match getrlimit(resource).current {
            Some(limit) => (limit / unit).to_string(),
            None => "unlimited".into(),
        };
        let (addresses, processes) = (limit(Resource::As, 1024), limit(Resource::Nproc, 1));
        let what = format!(
            "this launcher needs some {needed} threads for {} workers, and cannot start them; raise `ulimit -v` (now \
             {addresses}) or `ulimit -u` (now {processes}), or start fewer workers",
            job.processes()
        );
        LaunchError::system(what, cause)
    })
}

/// Starts so many threads, which end when all have started, or the first one cannot.
fn start(count: usize) -> io::Result<()> {
    let (all_started, started) = mpsc::channel::<()>();
    let started = std::sync::Arc::new(std::sync::Mutex::new(started));
    let mut threads = Vec::new();
    let result = (0..count).try_for_each(|_| {
        let started = started.clone();
        // The channel ends when this function drops the sender.
        let wait = move || drop(started.lock().map(|started| started.recv()));
        threads.push(std::thread::Builder::new().name("kolo-trial".into()).spawn(wait)?);
        Ok(())
    });
    drop(all_started);
    threads.into_iter().for_each(|thread| drop(thread.join()));
    result
}

#[cfg(test)]
mod tests {
    use rustix::process::{Rlimit, setrlimit};

    use super::*;

    const ALONE: &str = "threads::tests::in_a_process_of_its_own";

    #[test]
    fn threads_that_cannot_be_started_are_missed_before_workers_start() {
        check(&Job::new(["true"], 4)).unwrap();
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", "--ignored", ALONE]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
    }

    #[test]
    #[ignore = "threads_that_cannot_be_started_are_missed_before_workers_start starts it: it limits its process"]
    fn in_a_process_of_its_own() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        let kilobytes: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
        // Room for the stacks of a few threads, of 2 MiB each.
        let limit = Rlimit { current: Some((kilobytes + 16 * 1024) * 1024), ..getrlimit(Resource::As) };
        setrlimit(Resource::As, limit).unwrap();
        let error = crate::run(&Job::new(["true"], 40)).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.exit_code(), 1, "{text}");
        assert!(text.contains("for 40 workers") && text.contains("`ulimit -v` (now "), "{text}");
    }
}
