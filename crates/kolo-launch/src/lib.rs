//! Starts any program as the N workers of one job on this machine, watches them, and ends them.
//!
//! It gives each worker its rank in torchrun's environment variables, and takes no part in what the workers
//! do with each other: it never sees a group, a tensor or a gradient. So it starts Kolo's trainers,
//! PyTorch's, and shell scripts alike. The command line (`kolo launch`, `kolo train --nproc`) stands above
//! it; below it, kolo-elastic decides who takes part when workers die, and kolo-comm knows the variables and
//! tokens.
//!
//! ```
#![doc = include_str!("../examples/start_workers.rs")]
//! ```
//!
//! Two promises shape it:
//!
//! - **The first failure is what you read.** When one worker dies, the others fail as well a moment later,
//!   louder. [`diagnose`] finds the root cause, from how each ended and from what each wrote into its
//!   [error file](report_failure).
//! - **Nothing stays behind.** A worker is the head of a process group of its own, so its children end with
//!   it; workers die with the launcher even when the launcher is killed outright. Only a process that leaves
//!   its group on purpose (a daemon) escapes.
//!
//! Workers read nothing from standard input: it is `/dev/null` for all of them.
//!
//! | module | idea |
//! |---|---|
//! | `job`, `master` | the description of a job |
//! | `run`, `supervise`, `signals` | from start to end: waiting without polling; how a job ends |
//! | `elastic`, `stopped_time` | an elastic job goes on when workers die or hang |
//! | `workers`, `program`, `die_with_parent`, `reaper` | processes, and why none is left |
//! | `environment`, `port`, `token` | what a worker is told |
//! | `output`, `prefixed_lines` | what workers print, with their rank before it |
//! | `error_file`, `worker_exit` | how a worker ended, and its own message |
//! | `open_files` | the limit of open files, raised where the job needs it |
//! | `last_lines`, `named_rank` | what a worker that reported nothing said last, and whom it blames |
//! | `diagnose`, `failure_report` | which worker failed first, and how that is told |

#[cfg(not(target_os = "linux"))]
compile_error!("kolo-launch needs Linux: it rests on pidfds and on the parent's death signal");

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
mod signals;
mod stopped_time;
mod supervise;
mod token;
mod worker_exit;
mod workers;

pub use diagnose::diagnose;
pub use die_with_parent::die_with_parent;
pub use error::LaunchError;
pub use error_file::{WorkerError, launcher_shows_errors, report_failure};
pub use failure_report::{BlamedState, FailureReport, Reason};
pub use job::{Job, Messages, Output};
pub use run::run;
pub use worker_exit::{ExitStatus, WorkerExit};
