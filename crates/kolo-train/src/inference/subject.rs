//! What is evaluated: the weights that belong to a path, and the model and data that they are of.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use kolo_data::ImageDataSet;
use kolo_ddp::checkpoint::{Reader, WEIGHTS};

use super::classifier::Classifier;
use crate::config::Recipe;
use crate::error::Error;
use crate::models::{self, Blueprint, Stem};
use crate::run_folder::RunFolder;
use crate::weights::{Description, WeightsError, WeightsFile, Which, checkpoint};

/// What the user says of a model besides its weights; what is not said is found beside these.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Name of the model.
    pub model: Option<String>,
    /// Name of the data set.
    pub data: Option<String>,
    /// How images come into the model, where it has several ways.
    pub stem: Option<Stem>,
    /// The type in which it computes.
    pub precision: Option<String>,
}

/// Weights, and what they are of.
pub struct Subject {
    /// Where the weights are: the folder of a checkpoint, or a file.
    pub path: PathBuf,
    /// Steps that they were trained for, where that is known.
    pub step: Option<u64>,
    /// The model, the data and the precision; with how the run was set, where that is known.
    pub config: Recipe,
    weights: WeightsFile,
}

impl Subject {
    /// What belongs to a path: a run folder, a checkpoint, or a file that [`export`](crate::weights::export)
    /// has written. `which`: one of a run's checkpoints; the newest good one of a run where nothing is said.
    ///
    /// # Errors
    ///
    /// There are no weights, or they are damaged; or nothing says what model they are of.
    pub fn find(path: &Path, which: Option<Which>, given: &Given) -> Result<Self, Error> {
        let run = RunFolder::at(path.into());
        let subject = if run.is_run() {
            let checkpoint = checkpoint(&run, which.unwrap_or(Which::Newest))?;
            Self::of_checkpoint(checkpoint, Some(run), given)?
        } else if which.is_some() {
            return Err(WeightsError::NoRun { path: path.into() }.into());
        } else if path.is_dir() {
            Self::of_checkpoint(path.into(), None, given)?
        } else if path.file_name() == Some(WEIGHTS.as_ref())
            && let Some(folder) = kolo_ddp::checkpoint::of_file(path)
        {
            Self::of_checkpoint(folder.into(), None, given)?
        } else {
            Self::of_file(path, given)?
        };
        subject.config.check()?;
        Ok(subject)
    }

    fn of_checkpoint(path: PathBuf, run: Option<RunFolder>, given: &Given) -> Result<Self, Error> {
        let reader = Reader::open(&path)?;
        // It lies in a folder of the run's, as `checkpoints/` or `best/`.
        let above = || path.parent()?.parent().map(|above| RunFolder::at(above.into()));
        let run = run.or_else(above).filter(RunFolder::is_run);
        let config = match run {
            Some(run) => given.over(run.config()?),
            None => given.alone(&path)?,
        };
        let step = reader.position()?.step;
        let weights = WeightsFile::of_checkpoint(&path, &reader)?;
        Ok(Subject { path, step: Some(step), config, weights })
    }

    fn of_file(path: &Path, given: &Given) -> Result<Self, Error> {
        let weights = WeightsFile::read(path)?;
        let (config, step) = match Description::beside(path)? {
            Some(Description { model, data, stem, step, .. }) => {
                (given.over(Recipe { model, data, stem, ..Recipe::default() }), Some(step))
            }
            None => (given.alone(path)?, None),
        };
        Ok(Subject { path: path.into(), step, config, weights })
    }

    /// The model with its weights, on the CPU.
    ///
    /// # Errors
    ///
    /// The weights are of another model, or of one of other images than the data's.
    pub fn load(self, data: &dyn ImageDataSet) -> Result<Box<dyn Classifier>, Error> {
        let model = models::find(&self.config.model)?;
        model.check(&self.config, data.shape())?;
        let blueprint = Blueprint {
            seed: self.config.seed,
            samples: data.shape(),
            dropout: self.config.dropout,
            stem: self.config.stem,
            zero_gamma: self.config.large_batch.zero_gamma,
            device: &Device::flex().autodiff(),
        };
        model.classifier(&blueprint, self.weights, self.config.precision.precision()?)
    }
}

impl Given {
    /// What is known, with what the user says in its place.
    fn over(&self, known: Recipe) -> Recipe {
        let mut config = known;
        config.model = self.model.clone().unwrap_or(config.model);
        config.data = self.data.clone().unwrap_or(config.data);
        config.stem = self.stem.or(config.stem);
        config.precision.compute = self.precision.clone().unwrap_or(config.precision.compute);
        config
    }

    /// Where nothing but the weights is there.
    fn alone(&self, path: &Path) -> Result<Recipe, Error> {
        match (&self.model, &self.data) {
            (Some(_), Some(_)) => Ok(self.over(Recipe::default())),
            _ => Err(WeightsError::Undescribed { path: path.into() }.into()),
        }
    }
}
