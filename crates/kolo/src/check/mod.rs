//! `kolo check`: gathers what [`kolo_check`] looks at on the workers that would run a job, and tells what
//! stands out.
//!
//! | file | idea |
//! |---|---|
//! | `gather` | all facts, of all ranks |
//! | `settings` | what a recipe means together |
//! | `samples` | the data, as a rank reads it |
//! | `trial` | a shard's step, in a process of its own |
//! | `verdict` | what is told, and the exit code |

mod gather;
mod samples;
mod settings;
mod trial;
mod verdict;

pub(crate) use gather::{Asked, gather};
pub(crate) use trial::{TRIAL, try_as_told};
pub(crate) use verdict::Verdict;
