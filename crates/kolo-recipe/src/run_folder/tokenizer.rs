//! The tokenizer of a run over a text, which its folder keeps: text and files may change before the run goes
//! on.

use std::path::PathBuf;

use kolo_data::Tokenizer;

use super::folder::{RunFolder, TOKENIZER};
use crate::error::Error;
use crate::recipe::Recipe;

impl RunFolder {
    /// Returns the path of the tokenizer; `None` if the folder has none, as for bytes.
    fn tokenizer(&self) -> Option<PathBuf> {
        Some(self.path.join(TOKENIZER)).filter(|path| path.is_file())
    }

    /// Lets a run with a tokenizer take the one that this folder keeps.
    pub fn set_tokenizer(&self, config: &mut Recipe) {
        if config.input.tokenizer.is_some() {
            config.input.kept_tokenizer = self.tokenizer();
        }
    }

    /// Keeps the tokenizer of a text, if it is not that of bytes.
    ///
    /// # Errors
    ///
    /// The folder cannot be written.
    pub fn keep_tokenizer(&self, tokenizer: Option<&Tokenizer>) -> Result<(), Error> {
        let json = tokenizer.and_then(Tokenizer::json);
        json.map_or(Ok(()), |json| self.write(&self.path.join(TOKENIZER), json))
    }
}

impl Recipe {
    /// Takes the tokenizer of the weights that the run begins with, unless it has one or reads no text.
    pub fn take_tokenizer_of_init(&mut self) {
        if let (None, Some(init)) = (&self.input.tokenizer, &self.init)
            && kolo_data::takes(&self.data, "--tokenizer")
        {
            let of_run = || RunFolder::at(RunFolder::at(init.clone()).around()?).tokenizer();
            self.input.tokenizer = Tokenizer::beside(init).or_else(of_run);
        }
    }
}
