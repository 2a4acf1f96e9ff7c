//! Guard that stops a writer after another process has taken its folder.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;

use crate::error::Error;

/// Permission that a writer checks before each change in its folder. Without it, the writer leaves everything
/// as it is.
pub struct Guard {
    name: String,
    check: Box<dyn Fn() -> Result<(), Box<dyn StdError + Send + Sync>> + Send + Sync>,
    seal: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Guard {
    /// Creates a guard that permits writing while `check` succeeds. `name` becomes part of file names and
    /// must be unique among the folder's writers, so that no writer takes another's draft for its own.
    pub fn new(
        name: impl Into<String>,
        check: impl Fn() -> Result<(), Box<dyn StdError + Send + Sync>> + Send + Sync + 'static,
    ) -> Guard {
        Guard { name: name.into(), check: Box::new(check), seal: Box::new(|| {}) }
    }

    /// Calls `seal` before each checkpoint gets its name, for example to sync files that must hold everything
    /// up to the checkpoint. A failure in `seal` does not prevent the checkpoint.
    pub fn sealing(self, seal: impl Fn() + Send + Sync + 'static) -> Guard {
        Guard { seal: Box::new(seal), ..self }
    }

    /// Creates the guard of a folder's only writer.
    pub(crate) fn none() -> Guard {
        Guard::new("", || Ok(()))
    }

    /// Returns the part of a draft's name that follows the step.
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
