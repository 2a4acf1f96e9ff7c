//! What somebody has to know who uses weights: the model they are of, and how images come to it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kolo_data::Preprocessing;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::WeightsError;
use crate::error::Error;
use crate::models::Stem;
use crate::run_folder::RunFolder;

/// In the run folder, so that an export needs no data set.
const PREPROCESSING: &str = "preprocessing.json";

/// What stands beside exported weights, and in the metadata of their file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Version of Kolo.
    pub kolo: String,
    /// Name of the model.
    pub model: String,
    /// How images come into it, where the run has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stem: Option<Stem>,
    /// Name of the data set that it was trained on.
    pub data: String,
    /// Steps that it was trained for.
    pub step: u64,
    /// How images come to it; `None` where the data set does not say.
    pub preprocessing: Option<Preprocessing>,
}

impl Description {
    /// Of the weights that a run had after `step` steps.
    pub(super) fn of(run: &RunFolder, step: u64) -> Result<Self, Error> {
        let config = run.config()?;
        // The folder behind the name is of no use elsewhere.
        let data = config.data.split(':').next().unwrap_or_default().into();
        let preprocessing = preprocessing(run)?;
        Ok(Description {
            kolo: env!("CARGO_PKG_VERSION").into(),
            model: config.model,
            stem: config.stem,
            data,
            step,
            preprocessing,
        })
    }

    /// What stands beside a file of weights; `None` where nothing does.
    pub(crate) fn beside(weights: &Path) -> Result<Option<Self>, Error> {
        read(path(weights))
    }

    /// As JSON.
    pub(super) fn json(&self) -> Result<String, Error> {
        encode("the description of the weights", self)
    }
}

/// Where the description of a file of weights stands.
pub(crate) fn path(weights: &Path) -> PathBuf {
    let mut name = weights.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

/// Keeps in the run folder how a data set's images come to the model, where the data set says so.
pub(crate) fn keep_preprocessing(run: &RunFolder, preprocessing: Option<Preprocessing>) -> Result<(), Error> {
    let Some(preprocessing) = preprocessing else { return Ok(()) };
    run.write(&run.path().join(PREPROCESSING), encode(PREPROCESSING, &preprocessing)?.as_bytes())
}

fn preprocessing(run: &RunFolder) -> Result<Option<Preprocessing>, Error> {
    read(run.path().join(PREPROCESSING))
}

/// The value of a file of JSON; `None` where there is none.
fn read<T: DeserializeOwned>(path: PathBuf) -> Result<Option<T>, Error> {
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::file(&path, e)),
    };
    let value = serde_json::from_slice(&text);
    value.map(Some).map_err(|e| WeightsError::Damaged { path, problem: e.to_string() }.into())
}

fn encode(what: &'static str, value: &impl Serialize) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(value);
    text.map(|text| text + "\n").map_err(|e| Error::Encode { what, problem: e.to_string() })
}
