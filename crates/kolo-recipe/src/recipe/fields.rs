//! The fields of a recipe by their names in a `config.toml`: those that differ between two parts of one run,
//! and those that must be the same on all workers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::absolute;

use kolo_ddp::sync::SyncMode;
use serde_json::Value;

use super::Recipe;
use crate::error::Error;
use crate::field_table::OnResume::{self, Free, Refused, Reported};
use crate::field_table::{NOTHING, entry};

/// Returns the free fields that nevertheless decide the bits in this mode of synchronization, because they
/// end a round of islands or a pipeline of updates.
fn ends_rounds(mode: &SyncMode) -> &'static [&'static str] {
    match (mode.traits().rounds.is_some(), mode.traits().is_delayed) {
        (_, true) => &["checkpoint_steps", "backup_steps"],
        (true, false) => &["checkpoint_steps"],
        (false, false) => &[],
    }
}

/// Section of the program's own parts, which a recipe without them omits.
const OWN: &str = "own.";

/// A field that differs from what a checkpoint was written with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChange {
    /// Name of the field in `config.toml`.
    pub setting: String,
    /// Its value at the checkpoint.
    pub before: String,
    /// Its value now.
    pub after: String,
    /// Answer to the change.
    pub on_resume: OnResume,
    /// Reason for the answer.
    pub why: &'static str,
}

impl Recipe {
    /// Returns the answer to a change of a field, by its name in `config.toml` with the section in front.
    pub fn on_resume(&self, name: &str) -> OnResume {
        match ends_rounds(&self.sync.mode).contains(&name) {
            true => Reported,
            false => entry(name).map_or(Reported, |field| field.on_resume),
        }
    }

    /// Returns the first setting in which this run differs from another one, and both values, if the
    /// difference changes the run's result. The division of work, and the kept files, may differ.
    ///
    /// # Errors
    ///
    /// TOML cannot express a value.
    pub fn difference(&self, other: &Self) -> Result<Option<(String, String, String)>, Error> {
        let (own, others) = (self.fields()?, other.fields()?);
        // Optimizers have different settings.
        let value = |fields: &BTreeMap<String, String>, name: &str| {
            fields.get(name).cloned().unwrap_or_else(|| NOTHING.into())
        };
        let names = own.keys().chain(others.keys()).filter(|name| self.on_resume(name) != Free);
        let mut pairs = names.map(|name| (name.clone(), value(&own, name), value(&others, name)));
        Ok(pairs.find(|(_, own, other)| own != other))
    }

    /// Returns the settings that must be the same on all workers, by name.
    ///
    /// # Errors
    ///
    /// TOML cannot express a value.
    pub fn stated(&self) -> Result<Vec<(String, String)>, Error> {
        let mut fields = self.fields()?;
        fields.retain(|name, _| entry(name).is_none_or(|field| !field.between_workers));
        Ok(fields.into_iter().collect())
    }

    /// Returns the fields that a checkpoint notes, by name: all on which a result depends.
    ///
    /// # Errors
    ///
    /// TOML cannot express a value.
    pub fn noted(&self) -> Result<BTreeMap<String, String>, Error> {
        let mut fields = self.fields()?;
        fields.retain(|name, _| self.on_resume(name) != Free);
        Ok(fields)
    }

    /// Returns the fields that have changed since a checkpoint with these notes, those first for which the
    /// run is refused. A field that the notes do not know is one of a newer version.
    ///
    /// # Errors
    ///
    /// TOML cannot express a value.
    pub fn changes_since(&self, noted: &BTreeMap<String, String>) -> Result<Vec<SettingChange>, Error> {
        let here = self.noted()?;
        let own = here.keys().filter(|name| name.starts_with(OWN));
        let names: BTreeSet<&String> = noted.keys().chain(own).collect();
        let value = |fields: &BTreeMap<String, String>, name: &str| {
            fields.get(name).cloned().unwrap_or_else(|| NOTHING.into())
        };
        let changes = names.into_iter().map(|name| SettingChange {
            setting: name.clone(),
            before: value(noted, name),
            after: value(&here, name),
            on_resume: self.on_resume(name),
            why: entry(name).map_or("", |field| field.why),
        });
        // The notes of a run whose rounds ended elsewhere have fields that are free here.
        let mut changes: Vec<_> =
            changes.filter(|change| change.before != change.after && change.on_resume != Free).collect();
        changes.sort_by_key(|change| change.on_resume != Refused);
        Ok(changes)
    }

    /// Returns all fields by name, sorted. A field of a section has the section's name in front, such as
    /// `rate.lr`. Fields that a `config.toml` omits are present too.
    fn fields(&self) -> Result<BTreeMap<String, String>, Error> {
        let mut recipe = self.clone();
        // Earlier versions kept the path as typed.
        recipe.init = recipe.init.map(|file| absolute(&file).unwrap_or(file));
        let mut fields = BTreeMap::new();
        flatten(
            "",
            serde_json::to_value(&recipe).map_err(|e| Error::encode("the configuration", e))?,
            &mut fields,
        );
        Ok(fields)
    }
}

fn flatten(name: &str, value: Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(section) => {
            let dot = if name.is_empty() { "" } else { "." };
            section
                .into_iter()
                .for_each(|(field, value)| flatten(&format!("{name}{dot}{field}"), value, into));
        }
        Value::Null => drop(into.insert(name.into(), NOTHING.into())),
        value => drop(into.insert(name.into(), value.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use kolo_ddp::optimizer::OPTIMIZERS;
    use kolo_ddp::table::Choice;

    use super::super::OwnParts;
    use super::*;
    use crate::field_table::{FIELDS, Field};

    /// Recipes that together have every field.
    fn recipes() -> Vec<Recipe> {
        let part = || Some("part".to_string());
        // A new part of the program needs a line here.
        let own = OwnParts {
            optimizer: part(),
            reduction: part(),
            schedule: part(),
            transforms: vec!["part".into()],
        };
        let mut all = vec![Recipe { own, ..Recipe::default() }];
        for entry in OPTIMIZERS {
            let mut recipe = Recipe::default();
            recipe.optimizer.0 = Choice::new(entry.name);
            all.push(recipe);
        }
        all
    }

    #[test]
    fn every_field_of_a_recipe_has_one_answer_and_every_answer_a_field() {
        let names: BTreeSet<String> =
            recipes().iter().flat_map(|recipe| recipe.fields().unwrap().into_keys()).collect();
        assert!(names.len() > 80, "{names:?}");
        let is_of =
            |field: &Field, name: &str| name == field.name || name.starts_with(&format!("{}.", field.name));
        for name in &names {
            let answers = FIELDS.iter().filter(|field| is_of(field, name)).count();
            assert_eq!(answers, 1, "{name}: decide in `FIELDS` what a change means for a run that continues");
        }
        for field in FIELDS {
            assert!(names.iter().any(|name| is_of(field, name)), "{} is no field", field.name);
            assert!(!field.why.is_empty(), "{}", field.name);
        }
        let stated = Recipe::default().stated().unwrap();
        let states = |name: &str| stated.iter().any(|(other, _)| other == name);
        assert!(states("rate.lr") && states("augment") && states("optimizer.settings.momentum"));
        assert!(!states("data") && !states("nproc"));
    }

    /// Each field is changed in turn in the notes: all but the free ones are found, with both values.
    #[test]
    fn each_change_is_found_with_both_values() {
        for recipe in recipes() {
            let noted = recipe.noted().unwrap();
            assert_eq!(recipe.changes_since(&noted).unwrap(), []);
            for name in recipe.fields().unwrap().keys() {
                let mut other = noted.clone();
                let before = other.insert(name.clone(), "\"another\"".into());
                let found = recipe.changes_since(&other).unwrap();
                match recipe.on_resume(name) {
                    Free => assert!(before.is_none() && found.is_empty(), "{name}"),
                    on_resume => {
                        let after = before.unwrap();
                        let (setting, before) = (name.clone(), "\"another\"".into());
                        let why = entry(name).unwrap().why;
                        assert_eq!(found, [SettingChange { setting, before, after, on_resume, why }]);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_refused_comes_first_and_rounds_bind_what_ends_them() {
        let usual = Recipe::default();
        let noted = usual.noted().unwrap();
        let other = Recipe { stem: Some(crate::Stem::Small), augment: false, dropout: 0.5, ..usual.clone() };
        let found = other.changes_since(&noted).unwrap();
        let names: Vec<&str> = found.iter().map(|change| &*change.setting).collect();
        assert_eq!(names, ["stem", "augment", "dropout"]);
        assert_eq!((&*found[0].before, &*found[0].after), ("nothing", "\"small\""));
        // A part that the program brings now, and one that it brought before.
        let own =
            |schedule: Option<&str>| OwnParts { schedule: schedule.map(Into::into), ..OwnParts::default() };
        let brings = |schedule| Recipe { own: own(schedule), ..Recipe::default() };
        for (before, after) in [(None, Some("1, 0.5, 0")), (Some("1, 0.5, 0"), None)] {
            let found = brings(after).changes_since(&brings(before).noted().unwrap()).unwrap();
            assert_eq!(found.iter().map(|change| &*change.setting).collect::<Vec<_>>(), ["own.schedule"]);
        }
        let steps = |mode: &str, checkpoint_steps| {
            let mut recipe = Recipe { checkpoint_steps, ..Recipe::default() };
            recipe.sync.mode = mode.parse().unwrap();
            recipe
        };
        for (mode, count) in [("every-step", 0), ("local:H=4", 1)] {
            let noted = steps(mode, Some(3)).noted().unwrap();
            assert_eq!(steps(mode, Some(5)).changes_since(&noted).unwrap().len(), count, "{mode}");
        }
    }
}
