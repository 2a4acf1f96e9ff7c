//! The fields of a recipe by their names in a `config.toml`, and those that may differ between two parts of
//! one run, or between its workers.

use std::path::absolute;

use kolo_ddp::sync::SyncMode;
use serde_json::Value;

use super::Recipe;
use crate::error::Error;

/// A field that may have several values in one run.
struct Free {
    name: &'static str,
    /// True if a part of the run may have another value than the one before.
    between_parts: bool,
    /// True if each worker may have a value of its own.
    between_workers: bool,
    /// Reason for the freedom.
    #[cfg_attr(not(test), expect(dead_code, reason = "for those who read the table"))]
    why: &'static str,
}

const fn parts(name: &'static str, why: &'static str) -> Free {
    Free { name, between_parts: true, between_workers: false, why }
}

const fn workers(name: &'static str, why: &'static str) -> Free {
    Free { name, between_parts: false, between_workers: true, why }
}

const fn both(name: &'static str, why: &'static str) -> Free {
    Free { name, between_parts: true, between_workers: true, why }
}

/// All such fields. Any other field decides the bits, or which collectives the workers call.
const FREE: &[Free] = &[
    parts("kolo", "a newer version goes on with the runs of older ones"),
    both("nproc", "who computes what; as many as were started count"),
    both("shares", "who computes what; rank 0's count"),
    parts("straggler", "who computes what"),
    parts("bucket_cap_mb", "how gradients travel"),
    parts("tune", "how gradients travel"),
    parts("verify_every", "comparisons change no value"),
    parts("backup_steps", "copies change no value, but see `ends_rounds`"),
    parts("activation_checkpointing", "activations are computed again in the same bits"),
    parts("shard", "who holds what"),
    parts("redundancy", "who holds what"),
    both("offload", "what holds the state; a host may have another disk"),
    parts("checkpoint_epochs", "checkpoints change no value"),
    parts("checkpoint_steps", "checkpoints change no value, but see `ends_rounds`"),
    parts("max_hours", "a run that ends earlier goes on in the same bits"),
    both("keep_checkpoints", "rank 0 alone removes checkpoints"),
    both("input.data_threads", "batches are the same by any thread"),
    workers("data", "a host may have its files elsewhere; the workers compare what is in them"),
    workers("input.tokenizer", "a host may have the file elsewhere; the workers compare what is in it"),
    workers("init", "a host may have the file elsewhere; rank 0's weights are everybody's"),
];

/// Returns the free fields that nevertheless decide the bits in this mode of synchronization, because they
/// end a round of islands or a pipeline of updates.
fn ends_rounds(mode: &SyncMode) -> &'static [&'static str] {
    match (mode.traits().rounds.is_some(), mode.traits().is_delayed) {
        (_, true) => &["checkpoint_steps", "backup_steps"],
        (true, false) => &["checkpoint_steps"],
        (false, false) => &[],
    }
}

/// Value of a field without one.
const NOTHING: &str = "nothing";

impl Recipe {
    /// Returns the first setting in which this run differs from another one, and both values, if the
    /// difference changes the run's result. The division of work, and the kept files, may differ.
    ///
    /// # Errors
    ///
    /// TOML cannot express a value.
    pub fn difference(&self, other: &Self) -> Result<Option<(String, String, String)>, Error> {
        let (own, others) = (self.fields()?, other.fields()?);
        let bound = ends_rounds(&self.sync.mode);
        let is_free = |name: &str| {
            !bound.contains(&name) && FREE.iter().any(|free| free.between_parts && free.name == name)
        };
        // Optimizers have different settings.
        let value = |fields: &[(String, String)], name: &str| {
            let found = fields.iter().find(|(other, _)| other == name);
            found.map_or(NOTHING.into(), |(_, value)| value.clone())
        };
        let names = own.iter().chain(&others).map(|(name, _)| name).filter(|name| !is_free(name));
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
        fields.retain(|(name, _)| !FREE.iter().any(|free| free.between_workers && free.name == *name));
        Ok(fields)
    }

    /// Returns all fields by name, sorted. A field of a section has the section's name in front, such as
    /// `rate.lr`. Fields that a `config.toml` omits are present too.
    fn fields(&self) -> Result<Vec<(String, String)>, Error> {
        let mut recipe = self.clone();
        // Earlier versions kept the path as typed.
        recipe.init = recipe.init.map(|file| absolute(&file).unwrap_or(file));
        let mut fields = Vec::new();
        flatten(
            "",
            serde_json::to_value(&recipe).map_err(|e| Error::encode("the configuration", e))?,
            &mut fields,
        );
        fields.sort();
        Ok(fields)
    }
}

fn flatten(name: &str, value: Value, into: &mut Vec<(String, String)>) {
    match value {
        Value::Object(section) => {
            let dot = if name.is_empty() { "" } else { "." };
            section
                .into_iter()
                .for_each(|(field, value)| flatten(&format!("{name}{dot}{field}"), value, into));
        }
        Value::Null => into.push((name.into(), NOTHING.into())),
        value => into.push((name.into(), value.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_free_field_exists_and_has_a_reason() {
        let recipe = Recipe::default();
        let fields = recipe.fields().unwrap();
        for free in FREE {
            assert!(fields.iter().any(|(name, _)| name == free.name), "{}", free.name);
            assert!(!free.why.is_empty() && (free.between_parts || free.between_workers), "{}", free.name);
        }
        let stated = recipe.stated().unwrap();
        let states = |name: &str| stated.iter().any(|(other, _)| other == name);
        assert!(states("rate.lr") && states("augment") && states("optimizer.settings.momentum"));
        assert!(!states("data") && !states("nproc"));
    }
}
