//! The check of runs that are tuned.

use super::Recipe;
use crate::error::Error;

impl Recipe {
    /// Refuses to tune a run in which no step is one of all shards with no message under way after it.
    pub(super) fn check_tune(&self) -> Result<(), Error> {
        let mode = &self.sync.mode;
        let is_plain = !mode.is_rare() && !mode.is_delayed() && mode.staleness_bound().is_none();
        match self.tune && !is_plain {
            true => {
                let problem = "gradients can travel otherwise only between two steps of all shards, after which none is on \
                               its way; leave out one of the two";
                Err(Error::setting("--tune with --sync", mode, problem))
            }
            false => Ok(()),
        }
    }
}
