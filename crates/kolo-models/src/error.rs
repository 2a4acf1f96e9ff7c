//! Errors of the table's models.

use std::path::PathBuf;

use kolo_weights::WeightsError;

/// Reason that a model cannot be made, trained or evaluated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// A setting is for other models than the run's.
    #[error("{option}: {model} does not have {lacks}; leave the option out, or choose another --model")]
    NotInModel {
        /// The setting, as the command line spells it.
        option: &'static str,
        model: &'static str,
        lacks: &'static str,
    },
    /// The images are too small for the model.
    #[error(
        "{model} halves images until at least {smallest} × {smallest} pixels are one, and these have {height} × \
         {width}; choose larger images or another model"
    )]
    ImageTooSmall { model: &'static str, smallest: usize, height: usize, width: usize },
    /// Images for a language model.
    #[error(
        "{model} learns from text, and this data has none; give --data text:PATH, or leave --data out for Kolo's own documents"
    )]
    NeedsText { model: &'static str },
    /// A text for a model of images.
    #[error("{model} learns from images, and this data is text; give a language model, as --model gpt2:tiny")]
    NeedsImages { model: &'static str },
    /// The windows of the text are longer than the model can see.
    #[error("--context {context}: {model} sees at most {positions} tokens at once; give at most as many")]
    ContextTooLong { model: &'static str, context: usize, positions: usize },
    /// A language model where a classifier is needed.
    #[error(
        "{model} is a language model and has no classes; `kolo generate` continues texts with it, and `kolo evaluate` gives its perplexity"
    )]
    NoClasses { model: &'static str },
    /// A model of images where a language model is needed.
    #[error("{}: the model {model} sees images and writes no text; give a run of a language model, as gpt2:tiny", path.display())]
    NoText { path: PathBuf, model: &'static str },
    /// Weights of another network than GPT-2.
    #[error("{}: is no GPT-2 with heads of 64: it has no matrix `{tensor}` for one", path.display())]
    NoGpt2 { path: PathBuf, tensor: String },
    /// A language model over other tokens than those of its tokenizer.
    #[error(
        "{}: these weights have {vocabulary} tokens, and their tokenizer has {tokens}{}; put the tokenizer.json of the \
         weights there", path.display(), of_bytes(*tokens)
    )]
    OtherVocabulary { path: PathBuf, vocabulary: usize, tokens: usize },
    /// A text that a tokenizer cannot express.
    #[error("the tokenizer cannot express the text: {0}")]
    NotEncoded(String),
    /// There is no text to evaluate on.
    #[error(
        "{data} has no text for tests or validation; name a text with --data text:PATH, or train with --val-split"
    )]
    NoTestText { data: String },
    /// A score of the next token is no number.
    #[error("the model's scores are not finite; choose a checkpoint from before it diverged")]
    ScoresNotFinite,
    /// CutMix on samples that are no images.
    #[error(
        "--cutmix: it puts rectangles of one image into another, and these samples have {height} × {width} values; \
         leave it out, or use --mixup"
    )]
    NothingToCut { height: usize, width: usize },
    /// The data has other classes than the weights were trained for.
    #[error(
        "{path}: these weights were trained for the classes {trained}, and the data has {given}; give data with \
         the same classes in the same order"
    )]
    OtherClasses {
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
    NoPreprocessing { path: PathBuf },
    /// Nothing says of which language model weights are.
    #[error(
        "{path}: Kolo does not know the model of these weights; give a run folder, a checkpoint inside of one, \
         or what `kolo export` has written, with the .json beside it"
    )]
    NoModelKnown { path: PathBuf },
    /// Weights do not say where the data of their training lies.
    #[error("{path}: these weights do not say where their data lies; give --data {usage}")]
    NoDataKnown { path: PathBuf, usage: String },
    /// The preprocessing of a model contradicts itself.
    #[error("{path}: the preprocessing of its samples is damaged: {problem}")]
    Preprocessing { path: PathBuf, problem: String },
    /// The data or the tokenizer cannot be read.
    #[error(transparent)]
    Data(#[from] kolo_data::DataError),
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

/// Names the tokens of a model without a tokenizer.
fn of_bytes(tokens: usize) -> &'static str {
    if tokens == kolo_data::BYTE_VOCABULARY { " (bytes)" } else { "" }
}

impl Error {
    /// Returns true if the user's input is at fault. An error from below says that itself.
    pub fn is_input(&self) -> bool {
        !matches!(self, Error::Recipe(_) | Error::Weights(_) | Error::Train(_))
    }
}
