//! A byte-level BPE from a `tokenizer.json`, by the crate `tokenizers`.

use std::collections::HashMap;
use std::path::Path;

use serde::de::IgnoredAny;
use tokenizers::models::ModelWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;

use super::alphabet::characters;
use super::canonical::canonical;
use super::file::{AGAIN, ENDS, MOST, no_end};
use crate::error::DataError;

/// Bytes of a piece, about.
const PIECE: usize = 1 << 16;

/// A tokenizer whose tokens are bytes.
pub(super) struct Bpe {
    inner: tokenizers::Tokenizer,
    json: Vec<u8>,
    /// The same for each way to write the JSON.
    canonical: Vec<u8>,
    end: u16,
    /// Bytes of each token; none of those that are no text.
    bytes: Vec<Vec<u8>>,
    /// True if the words of a text do not depend on lines further away.
    has_lines: bool,
}

kolo_schedule::opaque_debug!(Bpe);

impl Bpe {
    /// Opens the contents of the file at `path`.
    pub fn open(path: &Path, json: Vec<u8>) -> Result<Self, DataError> {
        let refused = |problem: String| DataError::Tokenizer { path: path.into(), problem };
        // The crate's own words are about its types.
        let mut inner = tokenizers::Tokenizer::from_bytes(&json).map_err(|_| refused(unknown(&json)))?;
        let ModelWrapper::BPE(model) = inner.get_model() else {
            return Err(refused("is no byte-level BPE; give one that is, as GPT-2's".into()));
        };
        if let Some(dropout) = model.dropout.filter(|dropout| *dropout > 0.0) {
            let problem = format!(
                "has the dropout {dropout}, so that a text has other tokens each time; set it to null"
            );
            return Err(refused(problem));
        }
        let not_cut = inner.with_truncation(None).map(drop);
        not_cut.map_err(|error| refused(format!("cannot be used without truncation: {error}")))?;
        inner.with_padding(None);
        // A document that mentions the token's text does not end there.
        inner.set_encode_special_tokens(true);
        let mut bytes = bytes_of_tokens(&inner).map_err(refused)?;
        let end = ENDS.iter().find_map(|end| inner.token_to_id(end));
        let end = end.and_then(|end| u16::try_from(end).ok()).ok_or_else(|| refused(no_end()))?;
        // It is no text, even where the file does not say so.
        bytes[usize::from(end)].clear();
        let has_lines = has_lines(&inner);
        Ok(Bpe { inner, canonical: canonical(&json), json, end, bytes, has_lines })
    }

    pub fn vocabulary(&self) -> usize {
        self.bytes.len()
    }

    pub fn end_of_document(&self) -> u16 {
        self.end
    }

    /// Returns the parts of a text that have the same tokens by themselves as in the text.
    pub fn pieces<'a>(&self, text: &'a str) -> Vec<&'a str> {
        if self.has_lines { pieces(text, PIECE) } else { vec![text] }
    }

    /// Returns the tokens of a text, which must give back the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u16>, String> {
        let encoding = self.inner.encode_fast(text, false).map_err(|error| error.to_string())?;
        let tokens: Vec<u16> = encoding.get_ids().iter().map(|token| *token as u16).collect();
        let back = || tokens.iter().flat_map(|token| self.bytes_of(usize::from(*token)));
        if back().eq(text.as_bytes()) {
            return Ok(tokens);
        }
        let same = back().zip(text.as_bytes()).take_while(|(back, byte)| back == byte).count();
        let place = String::from_utf8_lossy(&text.as_bytes()[same..]);
        Err(format!(
            "its tokens do not give back the text at {:?}",
            place.chars().take(20).collect::<String>()
        ))
    }

    pub fn bytes_of(&self, token: usize) -> &[u8] {
        self.bytes.get(token).map_or(&[], Vec::as_slice)
    }

    pub fn json(&self) -> &[u8] {
        &self.json
    }

    pub fn canonical(&self) -> &[u8] {
        &self.canonical
    }
}

/// Describes contents that are no tokenizer.
fn unknown(json: &[u8]) -> String {
    match serde_json::from_slice::<IgnoredAny>(json) {
        Err(error) => format!("is damaged: its line {} is no JSON; {AGAIN}", error.line()),
        Ok(_) => "is no tokenizer in Hugging Face's format; give another one".into(),
    }
}

/// Returns the bytes of each token, by its number.
fn bytes_of_tokens(inner: &tokenizers::Tokenizer) -> Result<Vec<Vec<u8>>, String> {
    let bytes: HashMap<char, u8> = characters().into_iter().zip(0..=u8::MAX).collect();
    let vocabulary = inner.get_vocab(true);
    let count = vocabulary.values().map(|id| *id as usize + 1).max().unwrap_or(0);
    if count > MOST {
        return Err(format!("has {count} tokens, and Kolo takes at most {MOST}; give a smaller one"));
    }
    let added = inner.get_added_tokens_decoder();
    let mut all = vec![Vec::new(); count];
    for (token, id) in vocabulary {
        all[id as usize] = match added.get(&id) {
            Some(added) if added.special => Vec::new(),
            Some(added) => added.content.clone().into_bytes(),
            None => token.chars().map(|c| bytes.get(&c).copied()).collect::<Option<_>>().ok_or_else(|| {
                format!("is no byte-level BPE: its token {token:?} is not spelled in bytes; give one that is, as GPT-2's")
            })?,
        };
    }
    Ok(all)
}

/// Returns true for a tokenizer that divides texts into words as GPT-2's, and changes nothing before.
fn has_lines(inner: &tokenizers::Tokenizer) -> bool {
    let Some(PreTokenizerWrapper::ByteLevel(words)) = inner.get_pre_tokenizer() else { return false };
    let is_text = inner.get_added_tokens_decoder().values().any(|token| !token.special);
    words.use_regex && inner.get_normalizer().is_none() && !is_text
}

/// Cuts a text before line feeds, in pieces of `size` bytes or more. A line feed between two ASCII letters or
/// digits is a word of its own in GPT-2's expression, whatever comes before and after them.
pub(super) fn pieces(text: &str, size: usize) -> Vec<&str> {
    let (bytes, mut rest, mut found) = (text.as_bytes(), 0, Vec::new());
    let is_cut = |at: &usize| {
        let is = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
        bytes[*at] == b'\n' && is(at - 1) && is(at + 1)
    };
    while let Some(cut) = (rest + size.max(1)..bytes.len()).find(is_cut) {
        found.push(&text[rest..cut]);
        rest = cut;
    }
    found.push(&text[rest..]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_same_tokens_by_its_pieces() {
        let json = include_bytes!("../../tests/tokenizer/tokenizer.json").to_vec();
        let bpe = Bpe::open(Path::new("tokenizer.json"), json).unwrap();
        let text = "the workers\nwait for\n\nboth,\nof them \n1\n2\r\nit's\ns\ns \u{a0}\nä\nthe ".repeat(7);
        let tokens = |text: &str| bpe.encode(text).unwrap();
        for size in [0, 1, 20, 100, 1000] {
            let pieces = pieces(&text, size);
            assert!(pieces.concat() == text && (pieces.len() > 1) == (size < 1000), "{size}");
            assert_eq!(pieces.into_iter().flat_map(tokens).collect::<Vec<_>>(), tokens(&text), "{size}");
        }
        for text in ["", "\n", "a\n", "\nb", "a\nb"] {
            assert_eq!(pieces(text, 0).concat(), text);
        }
    }
}
