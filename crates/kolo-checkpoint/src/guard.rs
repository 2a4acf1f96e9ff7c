//! Whether a writer still may write, where somebody else could take its folder.

use std::error::Error as StdError;
use std::path::Path;

use crate::error::Error;

/// What a writer asks before it changes anything in its folder. One that may not leaves all as it is.
pub struct Guard {
    name: String,
    check: Box<dyn Fn() -> Result<(), Box<dyn StdError + Send + Sync>> + Send + Sync>,
    seal: Box<dyn Fn() + Send + Sync>,
}

impl Guard {
    /// A guard that lets a writer write as long as `check` says so. `name`, a part of file names, tells the
    /// writer from all others of the folder: what it drafts nobody else takes for its own.
    pub fn new(
        name: impl Into<String>,
        check: impl Fn() -> Result<(), Box<dyn StdError + Send + Sync>> + Send + Sync + 'static,
    ) -> Guard {
        Guard { name: name.into(), check: Box::new(check), seal: Box::new(|| {}) }
    }

    /// Calls `seal` before each checkpoint gets its name: for files that are to hold everything up to it, and
    /// have to be synced. What goes wrong there does not keep the checkpoint from being written.
    pub fn sealing(self, seal: impl Fn() + Send + Sync + 'static) -> Guard {
        Guard { seal: Box::new(seal), ..self }
    }

    /// The only writer of its folder.
    pub(crate) fn none() -> Guard {
        Guard::new("", || Ok(()))
    }

    /// What follows a step in the name of a draft.
    pub(crate) fn draft_suffix(&self) -> String {
        match self.name.is_empty() {
            true => String::new(),
            false => format!(".{}", self.name),
        }
    }

    pub(crate) fn seal(&self) {
        (self.seal)();
    }

    pub(crate) fn check(&self, folder: &Path) -> Result<(), Error> {
        (self.check)().map_err(|source| Error::NotAllowed { folder: folder.to_owned(), source })
    }
}
