//! `config.toml`: the settings of a run, by name.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use crate::error::Error;

/// Name of the file that marks a run folder.
pub(crate) const FILE: &str = "config.toml";

/// All settings of a run. The name of a section precedes those of its settings, as in `optimizer.name`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings(pub BTreeMap<String, toml::Value>);

impl Settings {
    pub(crate) fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE);
        let text = match kolo_durable::read_to_string(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound || e.kind() == ErrorKind::NotADirectory => {
                return Err(Error::NoRun { folder: folder.to_owned() });
            }
            read => read.map_err(|source| Error::Read { path: path.clone(), source })?,
        };
        let table: toml::Table = toml::from_str(&text).map_err(|e: toml::de::Error| match e.span() {
            Some(span) => Error::line(
                &path,
                1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count(),
                e.message(),
            ),
            None => Error::content(&path, e.message()),
        })?;
        let mut settings = BTreeMap::new();
        flatten("", table, &mut settings);
        Ok(Settings(settings))
    }

    /// Returns a setting as the file spells it, without the quotes of a string.
    pub fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|value| match value {
            toml::Value::String(text) => text.clone(),
            value => value.to_string(),
        })
    }

    /// Returns a setting that is a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.0.get(name)? {
            toml::Value::Integer(number) => Some(*number as f64),
            toml::Value::Float(number) => Some(*number),
            _ => None,
        }
    }
}

fn flatten(place: &str, table: toml::Table, into: &mut BTreeMap<String, toml::Value>) {
    for (name, value) in table {
        let name = if place.is_empty() { name } else { format!("{place}.{name}") };
        match value {
            toml::Value::Table(table) => flatten(&name, table, into),
            value => {
                into.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_names_precede_their_settings() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(folder.path().join(FILE), text).unwrap();
        write(
            "model = \"small\"\nshards = 2\n[optimizer]\nname = \"sgd\"\n[optimizer.settings]\nmomentum = 0.9\n",
        );
        let settings = Settings::read(folder.path()).unwrap();
        assert_eq!(settings.text("model").as_deref(), Some("small"));
        assert_eq!(settings.number("shards"), Some(2.0));
        assert_eq!(settings.number("optimizer.settings.momentum"), Some(0.9));
        write("model = \"small\"\nshards = = 2\n");
        let error = Settings::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("config.toml line 2: "), "{error}");
    }
}
