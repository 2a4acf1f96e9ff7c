//! Starts any program as the N workers of one job on this machine, watches them, and ends them.
//!
//! This stands before the way of a gradient: it gives each worker its place in the job, in torchrun's
//! environment variables, and takes no part in what the workers do with each other. So it starts Kolo's
//! trainers, PyTorch's, and shell scripts alike.
//!
//! ```no_run
//! use kolo_launch::{Job, run};
//!
//! let job = Job::new(["python", "train.py", "--epochs", "10"], 4);
//! if let Err(error) = run(&job) {
//!     eprintln!("error: {error}");
//!     std::process::exit(error.exit_code().into());
//! }
//! ```
//!
//! Two promises shape it:
//!
//! - **The first failure is what you read.** When one worker dies, the others fail as well a moment later,
//!   louder. [`verdict`] finds the one that began, from how each ended and from what each
//!   [reported](report_failure).
//! - **Nothing stays behind.** A worker is the head of a process group of its own, so its children end with
//!   it; workers die with the launcher even when the launcher is killed outright. Only a process that leaves
//!   its group on purpose (a daemon) escapes.
//!
//! Workers read nothing from standard input: it is `/dev/null` for all of them.
//!
//! | module | idea |
//! |---|---|
//! | `job` | what to start |
//! | `environment`, `master`, `port` | a worker's place in the job |
//! | `token` | how its workers know each other |
//! | `workers`, `die_with_parent`, `warden` | processes, and why none is left |
//! | `output`, `lines` | what workers print, with their rank before it |
//! | `watch`, `signals` | waiting, without polling; the order in which a job ends |
//! | `report` | what a failing worker says, between worker and launcher |
//! | `verdict`, `explain` | who began |

#[cfg(not(target_os = "linux"))]
compile_error!("kolo-launch needs Linux: it rests on pidfds and on the parent's death signal");

mod die_with_parent;
mod elastic;
mod environment;
mod error;
mod exit;
mod explain;
mod job;
mod lines;
mod master;
mod output;
mod port;
mod report;
mod run;
mod signals;
mod stillness;
mod token;
mod verdict;
mod warden;
mod watch;
mod workers;

pub use error::LaunchError;
pub use exit::{End, Exit};
pub use job::{Job, Output};
pub use report::{Failure, report_failure};
pub use run::run;
pub use verdict::{Reason, Standing, Verdict, verdict};
