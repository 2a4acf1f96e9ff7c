//! Options of data sets, beside their text on the command line.

use std::path::PathBuf;

use crate::preprocessing::Preprocessing;

/// Options with which a data set is opened. `OpenOptions::default()` opens it as [`open`](crate::open) does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenOptions {
    /// Length of the sides of a model's input (`--size`), for images of any size.
    pub size: Option<usize>,
    /// Channels of an image (`--channels`), for images of any kind: 1 for gray, 3 for color.
    pub channels: Option<usize>,
    /// Name of the column with the classes (`--label`), for tables.
    pub label: Option<String>,
    /// Tokens that a model sees at once (`--context`), for texts.
    pub context: Option<usize>,
    /// Tokenizer of texts (`--tokenizer`): `bytes`, `train:SIZE`, or its file or folder.
    pub tokenizer: Option<PathBuf>,
    /// File of the tokenizer that was made by that choice before, which then stands for it.
    pub kept_tokenizer: Option<PathBuf>,
    /// Share of the training samples that become [`Part::Validation`](crate::Part::Validation)
    /// (`--val-split`).
    pub val_split: Option<f64>,
    /// Seed by which these samples are drawn.
    pub seed: u64,
    /// True if files that cannot be decoded are left out (`--skip-unreadable`), for which all are decoded
    /// at the start.
    pub skip_unreadable: bool,
    /// Threads that decode files at the start.
    pub threads: usize,
    /// Preprocessing of a trained model, for its evaluation. A folder or a table takes the classes from it,
    /// and a table the means, so that neither needs training samples.
    pub trained: Option<Preprocessing>,
    /// True if, with `trained`, the samples of a folder or a table without parts are for tests.
    pub whole_is_test: bool,
}

impl OpenOptions {
    /// Returns the options that only some data sets take, as the user has given them.
    pub(crate) fn given(&self) -> Vec<(&'static str, String)> {
        let number = |number: Option<usize>| number.map(|number| number.to_string());
        let all = [
            ("--size", number(self.size)),
            ("--channels", number(self.channels)),
            ("--label", self.label.clone()),
            ("--context", number(self.context)),
            ("--tokenizer", self.tokenizer.as_ref().map(|path| path.display().to_string())),
            ("--skip-unreadable", self.skip_unreadable.then(String::new)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}
