//! The description of weights for their users: the model, and the preprocessing of images.

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

/// File in the run folder, so that an export needs no data set.
const PREPROCESSING: &str = "preprocessing.json";

/// Description of exported weights, in a file beside them and in the metadata of their own file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Version of Kolo.
    pub kolo: String,
    /// Name of the model.
    pub model: String,
    /// First layers of the model, if the run set them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stem: Option<Stem>,
    /// Name of the data set that the model was trained on.
    pub data: String,
    /// Steps that the model was trained for.
    pub step: u64,
    /// Preprocessing of the images; `None` if the data set does not describe it.
    pub preprocessing: Option<Preprocessing>,
}

impl Description {
    /// Describes the weights that a run had after `step` steps.
    pub(super) fn of(run: &RunFolder, step: u64) -> Result<Self, Error> {
        let config = run.config()?;
        // The folder behind the name has no meaning elsewhere.
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

    /// Reads the description beside a file of weights, if there is one.
    pub(crate) fn beside(weights: &Path) -> Result<Option<Self>, Error> {
        read(path(weights))
    }

    pub(super) fn json(&self) -> Result<String, Error> {
        encode("the description of the weights", self)
    }
}

/// Returns the path of a weights file's description.
pub(crate) fn path(weights: &Path) -> PathBuf {
    let mut name = weights.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

/// Keeps the preprocessing of a data set's images in the run folder, if the data set describes it.
pub(crate) fn keep_preprocessing(run: &RunFolder, preprocessing: Option<Preprocessing>) -> Result<(), Error> {
    let Some(preprocessing) = preprocessing else { return Ok(()) };
    run.write(&run.path().join(PREPROCESSING), encode(PREPROCESSING, &preprocessing)?.as_bytes())
}

fn preprocessing(run: &RunFolder) -> Result<Option<Preprocessing>, Error> {
    read(run.path().join(PREPROCESSING))
}

/// Reads the value of a JSON file; `None` if there is no file.
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
