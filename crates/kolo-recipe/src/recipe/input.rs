//! The samples of a run: how they are read, and which of them are for validation.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kolo_data::{DataError, ImageDataSet, OpenOptions};
use kolo_ddp::table::{Value, parse_number};
use serde::{Deserialize, Serialize};

use super::Recipe;
use super::check::count;
use super::defaults::defaults;
use crate::error::Error;

/// Settings with which the data set is opened and loaded.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InputConfig {
    /// With --data folder: width and height of the network's input. Training takes random crops; evaluation
    /// resizes the shorter side to 8/7 of this size and takes the center [default: 224]
    #[arg(long, value_name = "PIXELS")]
    pub size: Option<usize>,
    /// With --data folder: 3 converts gray images to color, 1 converts color images to gray [default: 3]
    #[arg(long)]
    pub channels: Option<usize>,
    /// With --data csv or parquet: the column with the classes, as numbers or names [default: label, or else
    /// the last column]
    #[arg(long, value_name = "COLUMN")]
    pub label: Option<String>,
    /// With --data text: tokens that the model sees at once [default: 128]
    #[arg(long, value_name = "TOKENS")]
    pub context: Option<usize>,
    /// With --data text: a tokenizer.json or a folder with one, train:SIZE for a byte-level BPE of so many
    /// tokens from the training text, or bytes [default: the tokenizer beside --init, or else bytes]
    #[arg(long, value_name = "FILE|train:SIZE")]
    pub tokenizer: Option<PathBuf>,
    /// Tokenizer that the run's folder keeps, which then stands for the one above.
    #[arg(skip)]
    #[serde(skip)]
    pub kept_tokenizer: Option<PathBuf>,
    /// Share of the training samples that Kolo sets aside for validation, drawn by --seed. The best
    /// checkpoint and early stopping follow these samples; Kolo evaluates the test samples once, at the end
    #[arg(long, value_name = "SHARE", value_parser = parse_number)]
    pub val_split: Option<f64>,
    /// With --data folder: decode all files at the start, and skip those that are not images
    #[arg(long)]
    pub skip_unreadable: bool,
    /// Threads of each worker that load and decode samples. The result stays the same
    #[arg(long, value_name = "THREADS", default_value_t = 1)]
    pub data_threads: usize,
}

impl Default for InputConfig {
    fn default() -> Self {
        defaults()
    }
}

impl InputConfig {
    /// Returns the tokenizer's choice: the kept one, or else that of the user.
    pub fn tokenizer(&self) -> Option<&Path> {
        self.kept_tokenizer.as_deref().or(self.tokenizer.as_deref())
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        count("--size", self.size)?;
        count("--channels", self.channels)?;
        count("--context", self.context)?;
        count("--data-threads", self.data_threads)?;
        if let Some(share) = self.val_split.filter(|share| !(*share > 0.0 && *share < 1.0)) {
            let problem = "it must be greater than 0 and less than 1";
            return Err(Error::setting("--val-split", Value::Number(share), problem));
        }
        match self.data_threads > MOST_THREADS {
            true => {
                let problem = format!("it must be at most {MOST_THREADS}");
                Err(Error::setting("--data-threads", self.data_threads, problem))
            }
            false => Ok(()),
        }
    }
}

/// Most threads that load samples.
const MOST_THREADS: usize = 256;

impl Recipe {
    /// Opens the run's data set.
    ///
    /// # Errors
    ///
    /// There is no such data set, its files are missing or damaged, or an option does not fit it.
    pub fn open_data(&self) -> Result<Arc<dyn ImageDataSet>, DataError> {
        kolo_data::open_with(&self.data, &self.open_options())
    }

    /// Opens the data set as [`Recipe::open_data`] does, for the run in a folder if it continues one.
    ///
    /// # Errors
    ///
    /// The same; if the run's data are gone, the error says where to write their new place.
    pub fn open_data_of(&self, run: Option<&Path>) -> Result<Arc<dyn ImageDataSet>, Error> {
        use DataError::{FolderMissing, PathMissing};
        self.open_data().map_err(|source| match (run, &source) {
            (Some(run), PathMissing { .. } | FolderMissing { .. }) => {
                Error::DataOfRun { config: run.join("config.toml"), source: source.into() }
            }
            _ => source.into(),
        })
    }

    /// Returns the options with which the data set is opened.
    pub fn open_options(&self) -> OpenOptions {
        let InputConfig { size, channels, label, context, val_split, skip_unreadable, .. } =
            self.input.clone();
        let InputConfig { data_threads: threads, tokenizer, kept_tokenizer, .. } = self.input.clone();
        let (seed, defaults) = (self.seed, OpenOptions::default());
        let defaults = OpenOptions { tokenizer, kept_tokenizer, ..defaults };
        OpenOptions { size, channels, label, context, val_split, seed, skip_unreadable, threads, ..defaults }
    }
}
