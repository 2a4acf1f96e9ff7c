//! The description of weights for their users: the model, and the preprocessing of images.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kolo_data::{CONTEXT, Preprocessing, Tokenizer};
use kolo_ddp::checkpoint::Position;
use kolo_recipe::{RunFolder, Stem};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::WeightsError;

/// Beginning of the names of the models that transformers has, too.
pub(crate) const GPT2: &str = "gpt2:";

/// Vectors of the tokens of those models.
pub(crate) const EMBEDDING: &str = "wte.weight";

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
    /// Tokens that a language model has seen at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<usize>,
    /// Token that ends a document of a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_of_document: Option<u16>,
    /// Name of the contents of a language model's tokenizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// Name of the data set that the model was trained on.
    pub data: String,
    /// Steps that the model was trained for.
    pub step: u64,
    /// Preprocessing of the images; `None` if the data set does not describe it.
    pub preprocessing: Option<Preprocessing>,
}

impl Description {
    /// Describes the weights of a run's checkpoint.
    ///
    /// # Errors
    ///
    /// A file of the run cannot be read or is damaged, or its tokenizer is not that of the weights.
    pub fn of(run: &RunFolder, position: &Position) -> Result<Self, WeightsError> {
        let config = run.config()?;
        // The folder behind the name has no meaning elsewhere.
        let data = config.data.split(':').next().unwrap_or_default().into();
        let preprocessing = read(run.preprocessing())?;
        let is_text = config.model.starts_with(GPT2);
        let tokenizer = is_text.then(|| run.tokenizer_of(&config, position)).transpose()?;
        Ok(Description {
            kolo: env!("CARGO_PKG_VERSION").into(),
            model: config.model,
            stem: config.stem,
            context: is_text.then(|| config.input.context.unwrap_or(CONTEXT)),
            end_of_document: tokenizer.as_ref().map(Tokenizer::end_of_document),
            tokenizer: tokenizer.as_ref().map(Tokenizer::content),
            data,
            step: position.step,
            preprocessing,
        })
    }

    /// Reads the description beside a file of weights, if there is one.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is damaged.
    pub fn beside(weights: &Path) -> Result<Option<Self>, WeightsError> {
        read(path(weights))
    }

    pub(crate) fn json(&self) -> Result<String, WeightsError> {
        let what = "the description of the weights".into();
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n").map_err(|e| WeightsError::Encode { what, problem: e.to_string() })
    }
}

/// Returns the path of a weights file's description.
pub(crate) fn path(weights: &Path) -> PathBuf {
    beside(weights, ".json")
}

/// Returns the path of a file whose name is that of a weights file and an ending.
pub(crate) fn beside(weights: &Path, ending: &str) -> PathBuf {
    let mut name = weights.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Reads the value of a JSON file; `None` if there is no file.
fn read<T: DeserializeOwned>(path: PathBuf) -> Result<Option<T>, WeightsError> {
    let text = match kolo_durable::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(kolo_recipe::Error::file(&path, e).into()),
    };
    let value = serde_json::from_slice(&text);
    value.map(Some).map_err(|e| WeightsError::Damaged { path, problem: e.to_string() })
}
