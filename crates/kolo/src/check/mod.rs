//! `kolo check`: gathers what [`kolo_check`] looks at on the workers that would run a job, and tells what
//! stands out.
//!
//! | file | idea |
//! |---|---|
//! | `request` | the job that is to be looked at |
//! | `gather` | all facts, of all ranks |
//! | `settings` | what a recipe means together |
//! | `samples` | the data, as a rank reads it |
//! | `trial` | a shard's step, in a process of its own |
//! | `verdict` | what is told, and the exit code |

mod gather;
mod request;
mod samples;
mod settings;
mod trial;
mod verdict;

pub(crate) use gather::gather;
pub(crate) use request::CheckRequest;
pub(crate) use trial::{TRIAL, try_as_told};
pub(crate) use verdict::Verdict;
