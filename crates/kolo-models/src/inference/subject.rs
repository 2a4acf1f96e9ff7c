//! The subject of an evaluation: the weights that belong to a path, and their model and data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use kolo_burn_train::{changed_tests, precision};
use kolo_data::{DataError, ImageDataSet, OpenOptions, Preprocessing, SampleShape, Tokenizer};
use kolo_ddp::checkpoint::{Position, Reader, WEIGHTS};
use kolo_recipe::{InputConfig, Recipe, RunFolder, Stem};
use kolo_weights::{Description, WeightsError, WeightsFile, Which, checkpoint, is_transformers, weights_in};

use super::classifier::Classifier;
use crate::error::Error;
use crate::image_model::Blueprint;
use crate::table;

/// The user's description of a model besides its weights; missing parts are read from beside the weights.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Name of the model.
    pub model: Option<String>,
    /// Name of the data set.
    pub data: Option<String>,
    /// Stem of the model, if it has several.
    pub stem: Option<Stem>,
    /// Type of the computations.
    pub precision: Option<String>,
}

/// Weights and their description.
pub struct Subject {
    /// Path of the weights: the folder of a checkpoint, or a file.
    pub path: PathBuf,
    /// Steps that the weights were trained for, if known.
    pub step: Option<u64>,
    /// The model, the data and the precision, with the other settings of the run if they are known.
    pub config: Recipe,
    /// Preprocessing in training, if it is known.
    pub preprocessing: Option<Preprocessing>,
    /// Position of the checkpoint, with what it notes of the data; `None` for a file.
    position: Option<Position>,
    /// True if the user gave the data.
    has_own_data: bool,
    pub(crate) weights: WeightsFile,
}

kolo_comm::opaque_debug!(Subject { path, step, has_own_data });

impl Subject {
    /// Finds the weights at a path: a run folder, a checkpoint, or a file from
    /// [`export`](kolo_weights::export). `which` selects one of a run's checkpoints; `None` is the newest
    /// good one.
    ///
    /// # Errors
    ///
    /// There are no weights, they are damaged, or their model is unknown.
    pub fn find(path: &Path, which: Option<Which>, given: &Given) -> Result<Self, Error> {
        let run = RunFolder::at(path.into());
        let subject = if run.is_run() {
            let checkpoint = checkpoint(&run, which.unwrap_or(Which::Newest))?;
            Self::of_checkpoint(checkpoint, Some(run), given)?
        } else if which.is_some() {
            return Err(WeightsError::NoRun { path: path.into() }.into());
        } else if is_transformers(path) {
            Self::of_file(path, &weights_in(path)?, given)?
        } else if path.is_dir() {
            if !path.join("manifest.json").exists() && !path.join(WEIGHTS).exists() {
                return Err(WeightsError::NoRun { path: path.into() }.into());
            }
            Self::of_checkpoint(path.into(), None, given)?
        } else if path.file_name() == Some(WEIGHTS.as_ref())
            && let Some(folder) = kolo_ddp::checkpoint::of_file(path)
        {
            Self::of_checkpoint(folder.into(), None, given)?
        } else {
            Self::of_file(path, path, given)?
        };
        subject.config.check()?;
        Ok(subject)
    }

    fn of_checkpoint(path: PathBuf, run: Option<RunFolder>, given: &Given) -> Result<Self, Error> {
        let reader = Reader::open(&path).map_err(WeightsError::from)?;
        // The checkpoint may lie in a folder of a run, such as `checkpoints/` or `best/`.
        let above = || path.parent()?.parent().map(|above| RunFolder::at(above.into()));
        let run = run.or_else(above).filter(RunFolder::is_run);
        let position = reader.position().map_err(WeightsError::from)?;
        let step = Some(position.step);
        let (config, preprocessing) = match run {
            Some(run) => {
                let how = Description::of(&run, &position)?.preprocessing;
                checked(&how, &run.preprocessing())?;
                (given.over(run.config()?), how)
            }
            None => (given.alone(&path)?, None),
        };
        let weights = WeightsFile::of_checkpoint(&path, &reader)?;
        let has_own_data = given.data.is_some();
        let position = Some(position);
        Ok(Subject { path, step, config, preprocessing, position, has_own_data, weights })
    }

    /// Reads the weights at a path, which are in a file there.
    fn of_file(path: &Path, file: &Path, given: &Given) -> Result<Self, Error> {
        let weights = WeightsFile::read(path)?;
        let (mut config, step, preprocessing) = match Description::beside(file)? {
            Some(Description { model, data, stem, context, step, preprocessing, .. }) => {
                checked(&preprocessing, path)?;
                let mut config = Recipe { model, data, stem, ..Recipe::default() };
                config.input.context = context;
                // Images of any size come to the model as in training.
                if let Some(how) = preprocessing.as_ref().filter(|how| how.resize.is_some()) {
                    let [channels, side, _] = how.input_size;
                    (config.input.size, config.input.channels) = (Some(side), Some(channels));
                }
                (given.over(config), Some(step), preprocessing)
            }
            None => (given.alone(path)?, None, None),
        };
        if table::find(&config.model)?.traits().reads_text {
            config.input.tokenizer = Tokenizer::beside(path);
        }
        let has_own_data = given.data.is_some();
        let (path, position) = (path.into(), None);
        Ok(Subject { path, step, config, preprocessing, position, has_own_data, weights })
    }

    /// Opens the data. Classes, and means of tables, are those of the training, which needs no training
    /// samples. A folder or a table without parts that the user gave is all for tests. Fails as
    /// [`Recipe::open_data`] does.
    pub fn open_data(&self) -> Result<Arc<dyn ImageDataSet>, DataError> {
        let trained = self.preprocessing.clone();
        let options = self.config.open_options();
        // The part for tests is the same with a split.
        let val_split = options.val_split.filter(|_| trained.is_none() && !self.has_own_data);
        let options = OpenOptions { trained, whole_is_test: self.has_own_data, val_split, ..options };
        kolo_data::open_with(&self.config.data, &options)
    }

    /// Returns sentences about the data that the user should read: about files that are left out, and about
    /// test samples that are others than in the training.
    pub fn warnings(&self, data: &dyn ImageDataSet) -> Vec<String> {
        let own = self.position.as_ref().filter(|_| !self.has_own_data);
        let changed = own.and_then(|position| changed_tests(position, data));
        data.warnings().into_iter().chain(changed).collect()
    }

    /// Makes the model with its weights, on the CPU.
    ///
    /// # Errors
    ///
    /// The weights are of another model, or of one for other images or classes than the data's.
    pub fn load(self, data: &dyn ImageDataSet) -> Result<Box<dyn Classifier>, Error> {
        let [trained, given] = [self.preprocessing.clone(), data.preprocessing()].map(classes);
        if !trained.is_empty() && !given.is_empty() && trained != given {
            let [trained, given] = [trained, given].map(|names| names.join(", "));
            return Err(Error::OtherClasses { path: self.path, trained, given });
        }
        self.classifier(data.shape())
    }

    /// Makes the model with its weights for such samples.
    pub(crate) fn classifier(self, samples: SampleShape) -> Result<Box<dyn Classifier>, Error> {
        let model = table::find(&self.config.model)?;
        model.check(&self.config, samples)?;
        let device = Device::flex().autodiff();
        let blueprint = Blueprint::of(&self.config, samples, &device);
        model.classifier(&blueprint, self.weights, precision(&self.config.precision)?)
    }
}

/// Checks a preprocessing, which may have been edited, of a file.
fn checked(how: &Option<Preprocessing>, file: &Path) -> Result<(), Error> {
    let checked = how.as_ref().map_or(Ok(()), Preprocessing::check);
    checked.map_err(|problem| Error::Preprocessing { path: file.into(), problem })
}

/// Names of the classes by label; empty if they are not known.
fn classes(preprocessing: Option<Preprocessing>) -> Vec<String> {
    preprocessing.map(|how| how.label_names).unwrap_or_default()
}

impl Given {
    /// Overrides known settings with the user's.
    fn over(&self, known: Recipe) -> Recipe {
        let mut config = known;
        let name = |data: &str| data.split(':').next().map(String::from);
        if self.data.as_ref().is_some_and(|data| name(data) != name(&config.data)) {
            // Settings of another kind of data; those of a text are for any text.
            let is_text = self.data.as_ref().is_some_and(|data| kolo_data::takes(data, "--tokenizer"));
            let InputConfig { context, tokenizer, kept_tokenizer, .. } = config.input;
            let usual = InputConfig::default();
            config.input = match is_text {
                true => InputConfig { context, tokenizer, kept_tokenizer, ..usual },
                false => usual,
            };
        }
        config.model = self.model.clone().unwrap_or(config.model);
        config.data = self.data.clone().unwrap_or(config.data);
        config.stem = self.stem.or(config.stem);
        config.precision.compute = self.precision.clone().unwrap_or(config.precision.compute);
        config
    }

    /// Returns the recipe for weights without a description.
    fn alone(&self, path: &Path) -> Result<Recipe, Error> {
        match (&self.model, &self.data) {
            (Some(_), Some(_)) => Ok(self.over(Recipe::default())),
            _ => Err(WeightsError::Undescribed { path: path.into() }.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_something_else_is_told_from_a_damaged_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let refusal = || Subject::find(folder.path(), None, &Given::default()).err().unwrap();
        let error = refusal();
        assert!(matches!(error, Error::Weights(WeightsError::NoRun { .. })), "{error}");
        assert!(error.to_string().contains("is no run folder: it has no config.toml"), "{error}");
        std::fs::write(folder.path().join(WEIGHTS), "half of the").unwrap();
        let error = refusal();
        assert!(matches!(error, Error::Weights(WeightsError::Checkpoint(_))), "{error}");
    }
}
