//! A byte-level BPE trained on the documents of a run: the same one for the same documents.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

use super::alphabet::characters;
use super::bpe::pieces;
use super::file::{ENDS, encoded};
use super::merges::{Word, merges};
use crate::error::DataError;

/// Bytes of the text that is divided into words at once, about.
const PIECE: usize = 1 << 16;

/// Texts of tokens by their numbers.
struct Vocabulary<'a>(&'a [String]);

impl Serialize for Vocabulary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().zip(0..))
    }
}

/// Returns the `tokenizer.json` of `size` tokens, or of fewer if the documents have too few pairs: the end of
/// a document, the bytes, and what the merges make.
pub(super) fn train(size: usize, documents: &[&str]) -> Result<Vec<u8>, DataError> {
    let mut alphabet = characters();
    alphabet.sort_unstable();
    let mut texts: Vec<String> = vec![ENDS[0].into()];
    texts.extend(alphabet.iter().map(char::to_string));
    let id = |c: char| alphabet.iter().position(|known| *known == c).map(|index| index as u32 + 1);
    let words = words(documents)?.into_iter();
    let words: Vec<Word> =
        words.map(|(word, count)| (word.chars().filter_map(id).collect(), count)).collect();
    let merges = merges(words, &mut texts, size);
    let text = |token: u32| texts[token as usize].clone();
    let merges: Vec<[String; 2]> =
        merges.into_iter().map(|(left, right)| [text(left), text(right)]).collect();
    encoded(&Vocabulary(&texts), &merges, (ENDS[0], 0))
}

/// Returns the words of the documents in the characters of bytes, and how often each is in them.
fn words(documents: &[&str]) -> Result<BTreeMap<String, u64>, DataError> {
    let divides = ByteLevel::default().add_prefix_space(false);
    let mut counts = BTreeMap::new();
    for piece in documents.iter().flat_map(|document| pieces(document, PIECE)) {
        let mut divided = PreTokenizedString::from(piece);
        divides.pre_tokenize(&mut divided).map_err(|error| DataError::Option {
            option: "--tokenizer",
            value: "train".into(),
            problem: format!("the text cannot be divided into words: {error}"),
        })?;
        for (word, ..) in divided.get_splits(OffsetReferential::Normalized, OffsetType::None) {
            match counts.get_mut(word) {
                Some(count) => *count += 1,
                None => drop(counts.insert(word.to_owned(), 1)),
            }
        }
    }
    Ok(counts)
}
