//! Forms the group of a job over its store.

mod job;
mod open_files;

pub(crate) use job::{StoreHost, StoreSession, form};
