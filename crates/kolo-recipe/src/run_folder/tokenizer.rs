//! The tokenizer of a run over a text, which its folder keeps: text and files may change before the run goes
//! on. Each checkpoint names the tokenizer of its weights.

use std::path::{Path, PathBuf};

use kolo_data::Tokenizer;
use kolo_ddp::checkpoint::{self, Position, Reader};
use serde::{Deserialize, Serialize};

use super::folder::{CONFIG, RunFolder, TOKENIZER};
use crate::error::Error;
use crate::recipe::Recipe;

/// Key in a position's notes.
const NOTE: &str = "tokenizer";

/// The tokenizer of a run, as its checkpoints name it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenizerNote {
    /// The user's choice; `None` for the default.
    chosen: Option<PathBuf>,
    /// Name of the contents.
    content: String,
}

impl TokenizerNote {
    /// Describes the tokenizer of a run.
    pub fn of(config: &Recipe, tokenizer: &Tokenizer) -> Self {
        TokenizerNote { chosen: config.input.tokenizer.clone(), content: tokenizer.content() }
    }

    /// Reads the note of a checkpoint; `None` if its run reads no text.
    fn read(position: &Position) -> Option<Self> {
        serde_json::from_value(position.notes[NOTE].clone()).ok()
    }

    /// Returns the name of the contents of a checkpoint's tokenizer; `None` if its run reads no text.
    pub fn content_in(position: &Position) -> Option<String> {
        Self::read(position).map(|note| note.content)
    }

    /// Adds the note to a checkpoint.
    pub fn write(&self, position: &mut Position) {
        position.notes[NOTE] = serde_json::json!(self);
    }

    /// Returns the name of the contents, by which workers compare their tokenizers.
    pub fn content(&self) -> &str {
        &self.content
    }

    fn is_bytes(&self) -> bool {
        self.content == Tokenizer::bytes().content()
    }
}

impl RunFolder {
    /// Returns the path of the tokenizer; `None` if the folder has none, as for bytes.
    fn tokenizer(&self) -> Option<PathBuf> {
        Some(self.path.join(TOKENIZER)).filter(|path| path.is_file())
    }

    /// Lets a run over a text take the tokenizer that this folder keeps.
    pub fn set_tokenizer(&self, config: &mut Recipe) {
        if let Some(kept) = self.tokenizer()
            && kolo_data::takes(&config.data, "--tokenizer")
        {
            config.input.kept_tokenizer = Some(kept);
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

    /// Returns the position of the newest checkpoint, which may be damaged elsewhere.
    fn newest_position(&self) -> Option<Position> {
        let (_, path) = checkpoint::list(&self.checkpoints()).ok()?.into_iter().max()?;
        Reader::open(&path).ok()?.position().ok()
    }

    /// Refuses a folder that lacks the tokenizer of its newest checkpoint, before another one is made.
    ///
    /// # Errors
    ///
    /// [`Error::TokenizerMissing`].
    pub fn check_has_tokenizer(&self) -> Result<(), Error> {
        self.newest_position().map_or(Ok(()), |position| self.check_has_tokenizer_of(&position))
    }

    fn check_has_tokenizer_of(&self, position: &Position) -> Result<(), Error> {
        let needs = TokenizerNote::read(position).is_some_and(|note| !note.is_bytes());
        match needs && self.tokenizer().is_none() {
            true => Err(Error::TokenizerMissing { path: self.path.join(TOKENIZER) }),
            false => Ok(()),
        }
    }

    /// Refuses another choice in the configuration than that with which the run began: its tokenizer stays.
    ///
    /// # Errors
    ///
    /// [`Error::TokenizerSetting`].
    pub fn check_tokenizer_setting(&self, config: &Recipe) -> Result<(), Error> {
        let note = self.newest_position().as_ref().and_then(TokenizerNote::read);
        let value = |chosen: Option<&PathBuf>| {
            chosen.map_or("not set".into(), |chosen| format!("`{}`", chosen.display()))
        };
        match note.filter(|note| note.chosen != config.input.tokenizer) {
            None => Ok(()),
            Some(note) => Err(Error::TokenizerSetting {
                path: self.path.join(CONFIG),
                there: value(note.chosen.as_ref()),
                here: value(config.input.tokenizer.as_ref()),
            }),
        }
    }

    /// Refuses another tokenizer than that of a checkpoint's weights.
    ///
    /// # Errors
    ///
    /// [`Error::OtherTokenizer`].
    pub fn check_tokenizer(&self, position: &Position, tokenizer: &Tokenizer) -> Result<(), Error> {
        match TokenizerNote::read(position).filter(|note| !tokenizer.is(&note.content)) {
            None => Ok(()),
            Some(note) => Err(Error::OtherTokenizer {
                path: self.path.join(TOKENIZER),
                step: position.step,
                is_bytes: note.is_bytes(),
            }),
        }
    }

    /// Opens the tokenizer of a checkpoint's weights.
    ///
    /// # Errors
    ///
    /// The folder lacks it or has another one, or it is damaged.
    pub fn tokenizer_of(&self, config: &Recipe, position: &Position) -> Result<Tokenizer, Error> {
        self.check_has_tokenizer_of(position)?;
        let tokenizer = Tokenizer::find(config.input.tokenizer())?;
        self.check_tokenizer(position, &tokenizer)?;
        Ok(tokenizer)
    }
}

impl Recipe {
    /// Takes the tokenizer of the weights that the run begins with, unless it has one or reads no text.
    ///
    /// # Errors
    ///
    /// The weights are those of a run whose folder lacks their tokenizer, or has another one.
    pub fn take_tokenizer_of_init(&mut self) -> Result<(), Error> {
        if let (None, Some(init)) = (&self.input.tokenizer, &self.init)
            && kolo_data::takes(&self.data, "--tokenizer")
        {
            let kept = match Tokenizer::beside(init) {
                None => tokenizer_of_checkpoint(init)?,
                beside => beside,
            };
            self.input.kept_tokenizer = kept;
        }
        Ok(())
    }
}

/// Returns the tokenizer of a checkpoint in a run folder.
fn tokenizer_of_checkpoint(weights: &Path) -> Result<Option<PathBuf>, Error> {
    let Some(run) = RunFolder::at(weights.into()).around().map(RunFolder::at) else { return Ok(None) };
    let folder = if weights.is_dir() { Some(weights) } else { checkpoint::of_file(weights) };
    let position = folder.and_then(|folder| Reader::open(folder).ok()?.position().ok());
    if let Some(position) = position {
        run.tokenizer_of(&run.config()?, &position)?;
    }
    Ok(run.tokenizer())
}
