//! The environment, as a function, so that tests can bring their own.

use crate::error::Error;

/// The value of a variable, by its name.
pub(super) struct Variables<'a>(pub &'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    pub fn get(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The first of these names that is set; the first of all when none is, for that is the one to ask for.
    pub fn first(&self, names: &'static [&'static str]) -> &'static str {
        names.iter().find(|name| self.has(name)).or(names.first()).copied().unwrap_or_default()
    }

    /// The number in the first of these variables that is set.
    pub fn number_if_set(&self, names: &'static [&'static str]) -> Result<Option<usize>, Error> {
        let name = self.first(names);
        let Some(text) = self.get(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Error::environment(name, format!("is `{text}`; it must be a whole number"))),
        }
    }
}
