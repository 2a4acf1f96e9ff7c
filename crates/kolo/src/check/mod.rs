//! `kolo check`: gathers the facts for [`kolo_check`] on the workers that would run a job, and reports
//! findings.
//!
//! | file | contents |
//! |---|---|
//! | `request` | the job to check |
//! | `gather` | facts of all ranks |
//! | `settings` | the settings of a recipe for the checks |
//! | `samples` | the data, as a rank reads it |
//! | `trial` | a shard's step, in a process of its own |

mod gather;
mod request;
mod samples;
mod settings;
mod trial;

pub(crate) use gather::gather;
pub(crate) use request::CheckRequest;
pub(crate) use trial::{TRIAL, try_as_told};
