//! The environment of a worker as a function, so that tests can provide their own.

use super::names::MOST_PROCESSES;
use crate::error::Error;

/// The environment of a worker.
pub struct Variables<'a>(pub(super) &'a dyn Fn(&str) -> Option<String>);

kolo_schedule::opaque_debug!(Variables<'_>);

impl Variables<'_> {
    /// Returns the environment of this process.
    pub(super) fn of_process() -> Variables<'static> {
        Variables(&|name| std::env::var(name).ok())
    }

    /// Returns the value of a variable, if it is set.
    pub fn get(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }

    /// Returns true if a variable is set.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns the first of these names that is set, else the first of all: errors name that one.
    pub(super) fn first(&self, names: &'static [&'static str]) -> &'static str {
        names.iter().find(|name| self.has(name)).or(names.first()).copied().unwrap_or_default()
    }

    /// Returns the number in the first of these variables that is set; `None` if none is.
    pub(super) fn number_if_set(&self, names: &'static [&'static str]) -> Result<Option<usize>, Error> {
        let name = self.first(names);
        let Some(text) = self.get(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Error::environment(name, format!("is `{text}`; it must be a whole number"))),
        }
    }

    /// Returns the number of processes in the first of these variables that is set; `None` if none is.
    pub(super) fn count_if_set(&self, names: &'static [&'static str]) -> Result<Option<usize>, Error> {
        match self.number_if_set(names)? {
            Some(count) if count > MOST_PROCESSES => {
                let problem = format!("is {count}; it must be at most {MOST_PROCESSES}");
                Err(Error::environment(self.first(names), problem))
            }
            count => Ok(count),
        }
    }

    /// Returns the number in the first of these variables that is set. One of the names in `because` is set;
    /// the error message names it.
    pub(super) fn number(
        &self,
        names: &'static [&'static str],
        because: &'static [&'static str],
    ) -> Result<usize, Error> {
        let missing = || {
            let other = self.first(because);
            Error::environment(self.first(names), format!("is not set, though {other} is; set both or none"))
        };
        self.count_if_set(names)?.ok_or_else(missing)
    }
}
