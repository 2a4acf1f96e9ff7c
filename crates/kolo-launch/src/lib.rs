//! Starts any program as the N workers of one job on this machine, watches them, and ends them.
//!
//! The launcher passes each worker its rank in torchrun's environment variables, and takes no part in the
//! workers' communication: it never sees a group, a tensor or a gradient. It therefore starts Kolo's
//! trainers, PyTorch's, and shell scripts alike. The command line (`kolo launch`, `kolo train --nproc`)
//! depends on it. It depends on kolo-elastic, which manages membership when workers die, and on kolo-comm
//! for variables and tokens.
//!
//! ```
#![doc = include_str!("../examples/start_workers.rs")]
//! ```
//!
//! Two promises shape it:
//!
//! - **You read the first failure.** When one worker dies, the others fail a moment later, with more output.
//!   [`diagnose`] finds the root cause from the exits and the [error files](report_failure).
//! - **Nothing stays behind.** Each worker heads its own process group, so its children end with it. Workers
//!   die with the launcher even if the launcher is killed. Only a process that leaves its group on purpose
//!   (a daemon) escapes.
//!
//! The standard input of all workers is `/dev/null`.
//!
//! | module | contents |
//! |---|---|
//! | `job`, `master` | the description of a job |
//! | `run`, `supervise`, `signals` | from start to end: waiting without polling; ending a job |
//! | `elastic`, `stopped_time` | an elastic job continues when workers die or hang |
//! | `workers`, `worker_process`, `program`, `die_with_parent`, `reaper` | processes, and why none is left |
//! | `environment`, `port`, `token` | the settings that a worker receives |
//! | `output`, `streams`, `prefixed_lines` | the workers' output, prefixed with their ranks |
//! | `unblocked_stderr` | messages on standard error, for whose reader nobody waits |
//! | `error_file`, `worker_exit` | a worker's exit, and its error |
//! | `bind` | the cores of each worker |
//! | `open_files` | the limit of open files, raised if the job needs it |
//! | `threads` | the threads that the job needs, tried before it starts |
//! | `unused_master` | variables that a command does not use if it starts its own workers |
//! | `last_lines`, `named_rank` | last output of a worker without a report, and the rank that it blames |
//! | `diagnose`, `failure_report` | the worker that failed first, and the report about it |

#[cfg(not(target_os = "linux"))]
compile_error!("kolo-launch needs Linux: it rests on pidfds and on the parent's death signal");

mod bind;
mod diagnose;
mod die_with_parent;
mod elastic;
mod environment;
mod error;
mod error_file;
mod failure_report;
mod job;
mod last_lines;
mod master;
mod named_rank;
mod open_files;
mod output;
mod port;
mod prefixed_lines;
mod program;
mod reaper;
mod run;
mod saving;
mod signals;
mod stopped_time;
mod streams;
mod supervise;
mod threads;
mod token;
mod unblocked_stderr;
mod unused_master;
mod worker_exit;
mod worker_process;
mod workers;

pub use bind::Bind;
pub use diagnose::diagnose;
pub use die_with_parent::die_with_parent;
pub use error::LaunchError;
pub use error_file::{
    FailureKind, WorkerError, launcher_shows_errors, report_failure, report_failure_of_kind,
};
pub use failure_report::{BlamedState, FailureReport, Reason};
pub use job::{Job, Messages, Output};
pub use program::check_program;
pub use run::{run, run_caught};
pub use signals::Signals;
pub use unblocked_stderr::UnblockedStderr;
pub use unused_master::unused_master;
pub use worker_exit::{ExitStatus, WorkerExit};
