//! Errors of the table's models.

use std::path::PathBuf;

use kolo_weights::WeightsError;

/// Reason that a model cannot be made, trained or evaluated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is for other models than the run's.
    #[error("{option}: {model} does not have {lacks}; leave the option out, or choose another --model")]
    NotInModel {
        /// The setting, as the command line spells it.
        option: &'static str,
        /// The run's model.
        model: &'static str,
        /// Part of a model that the setting needs.
        lacks: &'static str,
    },
    /// The images are too small for the model.
    #[error(
        "{model} halves images until at least {smallest} × {smallest} pixels are one, and these have {height} × \
         {width}; choose larger images or another model"
    )]
    ImageTooSmall {
        /// The model.
        model: &'static str,
        /// The fewest rows and columns.
        smallest: usize,
        /// Rows of an image.
        height: usize,
        /// Columns of an image.
        width: usize,
    },
    /// CutMix on samples that are no images.
    #[error(
        "--cutmix: it puts rectangles of one image into another, and these samples have {height} × {width} values; \
         leave it out, or use --mixup"
    )]
    NothingToCut {
        /// Rows of a sample.
        height: usize,
        /// Columns of a sample.
        width: usize,
    },
    /// The data has other classes than the weights were trained for.
    #[error(
        "{path}: these weights were trained for the classes {trained}, and the data has {given}; give data with \
         the same classes in the same order"
    )]
    OtherClasses {
        /// Path of the weights.
        path: PathBuf,
        /// Names of the classes in training, by label.
        trained: String,
        /// Names of the data's classes, by label.
        given: String,
    },
    /// Nothing says how samples come to a model.
    #[error(
        "{path}: Kolo does not know how files become samples of this model; give a run folder with \
         preprocessing.json, or a file of `kolo export` with its .json"
    )]
    NoPreprocessing {
        /// Path of the weights or of the run.
        path: PathBuf,
    },
    /// The preprocessing of a model contradicts itself.
    #[error("{path}: the preprocessing of its samples is damaged: {problem}")]
    Preprocessing {
        /// Path of the weights or of the run.
        path: PathBuf,
        /// The contradiction.
        problem: String,
    },
    /// The recipe is invalid, or the run folder cannot be used.
    #[error(transparent)]
    Recipe(#[from] kolo_recipe::Error),
    /// The weights cannot be loaded.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The run failed.
    #[error(transparent)]
    Train(#[from] kolo_burn_train::Error),
}
