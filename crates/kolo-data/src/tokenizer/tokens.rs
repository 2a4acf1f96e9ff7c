//! The tokenizer of a run: bytes, or a byte-level BPE.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::bytes::{BYTE_VOCABULARY, END_OF_DOCUMENT};
use super::choice::Choice;
use super::{Bpe, file, train};
use crate::error::DataError;
use crate::fingerprint::ContentHash;
use crate::options::OpenOptions;

/// Rule by which a text becomes tokens. A token stands for some bytes of the text; their number, all tokens
/// taken together, is that of the text.
///
/// ```
/// use kolo_data::Tokenizer;
///
/// let bytes = Tokenizer::bytes();
/// assert_eq!(bytes.encode("hi")?, [104, 105]);
/// assert_eq!((bytes.vocabulary(), bytes.end_of_document()), (257, 256));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tokenizer {
    kind: Kind,
    /// Number of tokens for which it was just trained; `None` if it was not.
    wanted: Option<usize>,
}

#[derive(Clone, Debug)]
enum Kind {
    Bytes,
    Bpe(Arc<Bpe>),
}

impl Tokenizer {
    /// Returns the tokenizer of bytes.
    pub fn bytes() -> Self {
        Tokenizer { kind: Kind::Bytes, wanted: None }
    }

    fn of_json(path: &Path, json: Vec<u8>, wanted: Option<usize>) -> Result<Self, DataError> {
        Ok(Tokenizer { kind: Kind::Bpe(Arc::new(Bpe::open(path, json)?)), wanted })
    }

    /// Opens a tokenizer in Hugging Face's format: a file, or a folder with `tokenizer.json`, or with
    /// `vocab.json` and
    /// `merges.txt`.
    ///
    /// # Errors
    ///
    /// There is none, or it is no byte-level BPE whose tokens give back the text.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let (path, json) = file::read(path)?;
        Self::of_json(&path, json, None)
    }

    /// Returns the value of `--tokenizer` for any current directory.
    pub fn absolute(chosen: PathBuf) -> PathBuf {
        Choice::absolute(chosen)
    }

    /// Returns the path of the tokenizer that belongs to a folder of a model, or to a file of weights.
    pub fn beside(weights: &Path) -> Option<PathBuf> {
        file::beside(weights)
    }

    /// Returns the tokenizer of a trained model by the value of its `--tokenizer`.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open); or its training is not known.
    pub fn find(chosen: Option<&Path>) -> Result<Self, DataError> {
        let Some(chosen) = chosen else { return Ok(Self::bytes()) };
        match Choice::of(chosen)? {
            Choice::Bytes => Ok(Self::bytes()),
            Choice::File(path) => Self::open(path),
            Choice::Train(_) => {
                let problem =
                    "is kept as tokenizer.json in the folder of its run, which lacks it; put it there".into();
                Err(DataError::Tokenizer { path: chosen.into(), problem })
            }
        }
    }

    /// Makes the tokenizer that the user has chosen for these documents to train on.
    pub(crate) fn chosen(options: &OpenOptions, documents: &[&str]) -> Result<Self, DataError> {
        let chosen = options.kept_tokenizer.as_deref().or(options.tokenizer.as_deref());
        let Some(chosen) = chosen else { return Ok(Self::bytes()) };
        match Choice::of(chosen)? {
            Choice::Bytes => Ok(Self::bytes()),
            Choice::File(path) => Self::open(path),
            Choice::Train(size) => Self::of_json(chosen, train::train(size, documents)?, Some(size)),
        }
    }

    /// Returns a warning if it was just trained, and the documents have given fewer tokens than the user
    /// wants.
    pub fn shortfall(&self) -> Option<String> {
        let (wanted, found) = (self.wanted?, self.vocabulary());
        (wanted != found).then(|| {
            format!(
                "--tokenizer train:{wanted}: no more pairs are twice in the text, so there are {found} tokens"
            )
        })
    }

    /// Returns the name of its contents: `bytes`, or a hash of what its `tokenizer.json` says. Spaces and the
    /// order of keys there do not change it.
    pub fn content(&self) -> String {
        self.canonical().map_or("bytes".into(), named)
    }

    /// Returns true if `content` is the name of its contents, or of the bytes of its `tokenizer.json`, as
    /// older checkpoints have it.
    pub fn is(&self, content: &str) -> bool {
        self.content() == content || self.json().is_some_and(|json| named(json) == content)
    }

    /// Number of different tokens.
    pub fn vocabulary(&self) -> usize {
        match &self.kind {
            Kind::Bytes => BYTE_VOCABULARY,
            Kind::Bpe(bpe) => bpe.vocabulary(),
        }
    }

    /// Token that ends a document.
    pub fn end_of_document(&self) -> u16 {
        match &self.kind {
            Kind::Bytes => END_OF_DOCUMENT,
            Kind::Bpe(bpe) => bpe.end_of_document(),
        }
    }

    /// Returns the tokens of a text. No text stands for the token that ends a document.
    ///
    /// # Errors
    ///
    /// The tokens do not give back the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u16>, String> {
        let pieces = self.pieces(text).into_iter().map(|piece| self.encode_piece(piece));
        Ok(pieces.collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// Returns the tokens of texts, which so many threads encode.
    pub(crate) fn encode_all(&self, texts: &[&str], threads: usize) -> Result<Vec<Vec<u16>>, String> {
        let pieces = texts.iter().enumerate();
        let pieces =
            pieces.flat_map(|(text, all)| self.pieces(all).into_iter().map(move |piece| (text, piece)));
        let pieces: Vec<(usize, &str)> = pieces.collect();
        let next = AtomicUsize::new(0);
        let of_thread = || -> Result<Vec<(usize, Vec<u16>)>, String> {
            let mut found = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((_, piece)) = pieces.get(at) else { return Ok(found) };
                found.push((at, self.encode_piece(piece)?));
            }
        };
        let mut found: Vec<(usize, Vec<u16>)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(of_thread)).collect();
            let lost = || Err("a thread of the tokenizer has failed".to_owned());
            let found = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost()));
            let found: Vec<_> = found.collect::<Result<_, _>>()?;
            Ok::<_, String>(found.into_iter().flatten().collect())
        })?;
        found.sort_unstable_by_key(|(at, _)| *at);
        let mut streams = vec![Vec::new(); texts.len()];
        found.into_iter().for_each(|(at, tokens)| streams[pieces[at].0].extend(tokens));
        Ok(streams)
    }

    /// Returns the parts of a text that can be encoded one by one.
    fn pieces<'a>(&self, text: &'a str) -> Vec<&'a str> {
        match &self.kind {
            Kind::Bytes => vec![text],
            Kind::Bpe(bpe) => bpe.pieces(text),
        }
    }

    fn encode_piece(&self, piece: &str) -> Result<Vec<u16>, String> {
        match &self.kind {
            Kind::Bytes => Ok(piece.bytes().map(u16::from).collect()),
            Kind::Bpe(bpe) => bpe.encode(piece),
        }
    }

    /// Returns the bytes of a token; none for a token that is no text, or that there is not.
    pub fn bytes_of(&self, token: usize) -> Vec<u8> {
        match &self.kind {
            Kind::Bytes => u8::try_from(token).into_iter().collect(),
            Kind::Bpe(bpe) => bpe.bytes_of(token).to_vec(),
        }
    }

    /// Returns the contents of its `tokenizer.json`; `None` for bytes.
    pub fn json(&self) -> Option<&[u8]> {
        match &self.kind {
            Kind::Bytes => None,
            Kind::Bpe(bpe) => Some(bpe.json()),
        }
    }

    fn canonical(&self) -> Option<&[u8]> {
        match &self.kind {
            Kind::Bytes => None,
            Kind::Bpe(bpe) => Some(bpe.canonical()),
        }
    }

    /// Adds all that distinguishes it from the tokenizer of bytes to a fingerprint.
    pub(crate) fn hash(&self, hash: &mut ContentHash) {
        self.canonical().into_iter().for_each(|json| hash.bytes(json));
    }
}

/// Returns the name of contents.
fn named(contents: &[u8]) -> String {
    let mut hash = ContentHash::new();
    hash.bytes(contents);
    format!("{:016x}", hash.finish())
}
