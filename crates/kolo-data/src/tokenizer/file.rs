//! Files of tokenizers in Hugging Face's format, and how one is made of a vocabulary and its merges.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::error::DataError;

/// Most tokens of a vocabulary.
pub(super) const MOST: usize = 1 << 16;

/// Texts of the token that ends a document, in the order in which they are looked for.
pub(super) const ENDS: [&str; 3] = ["<|endoftext|>", "<|end_of_text|>", "</s>"];

/// Remedy for a damaged file.
const AGAIN: &str = "get the file again";

const TOKENIZER: &str = "tokenizer.json";
const VOCABULARY: &str = "vocab.json";
const MERGES: &str = "merges.txt";

/// Returns the path and the contents of the tokenizer at a path.
pub(super) fn read(path: &Path) -> Result<(PathBuf, Vec<u8>), DataError> {
    let bytes = |path: &Path| {
        kolo_durable::read(path).map_err(|source| DataError::Unreadable { path: path.into(), source })
    };
    if !path.is_dir() {
        return Ok((path.into(), bytes(path)?));
    }
    let [whole, vocabulary, merges] = [TOKENIZER, VOCABULARY, MERGES].map(|name| path.join(name));
    if whole.is_file() {
        let json = bytes(&whole)?;
        return Ok((whole, json));
    }
    if whole.is_dir() {
        let problem = "is a folder; give the file, or a folder with a file of that name".into();
        return Err(DataError::Tokenizer { path: whole, problem });
    }
    if !vocabulary.is_file() || !merges.is_file() {
        let problem = format!(
            "is a folder with neither {TOKENIZER} nor {VOCABULARY} and {MERGES}; give a file, or a folder with these"
        );
        return Err(DataError::Tokenizer { path: path.into(), problem });
    }
    let json = joined(&vocabulary, &bytes(&vocabulary)?, &merges, &bytes(&merges)?)?;
    Ok((path.into(), json))
}

/// Returns the path of the tokenizer of a folder, or of that beside a file of weights.
pub(super) fn beside(weights: &Path) -> Option<PathBuf> {
    let has = |name: &str| weights.join(name).is_file();
    if has(TOKENIZER) || has(VOCABULARY) && has(MERGES) {
        return Some(if has(TOKENIZER) { weights.join(TOKENIZER) } else { weights.into() });
    }
    let mut name = weights.as_os_str().to_owned();
    name.push(".");
    name.push(TOKENIZER);
    Some(PathBuf::from(name)).filter(|path| path.is_file())
}

/// Makes a tokenizer of a vocabulary and its merges in two files, as GPT-2's.
fn joined(
    vocabulary_path: &Path,
    vocabulary: &[u8],
    merges_path: &Path,
    merges: &[u8],
) -> Result<Vec<u8>, DataError> {
    let damaged = |path: &Path, problem: String| DataError::Tokenizer { path: path.into(), problem };
    let vocabulary: BTreeMap<String, u32> = serde_json::from_slice(vocabulary)
        .map_err(|_| damaged(vocabulary_path, format!("is no list of tokens and their numbers; {AGAIN}")))?;
    let merges = std::str::from_utf8(merges).map_err(|error| {
        damaged(merges_path, format!("is not UTF-8 from byte {}; {AGAIN}", error.valid_up_to()))
    })?;
    let lines = merges.lines().enumerate();
    let lines =
        lines.filter(|(number, line)| !(line.is_empty() || *number == 0 && line.starts_with("#version")));
    let pair = |(number, line): (usize, &str)| match line.split_once(' ') {
        Some((left, right)) => Ok([left.to_owned(), right.to_owned()]),
        None => Err(damaged(merges_path, format!("has no pair of tokens in line {}; {AGAIN}", number + 1))),
    };
    let merges = lines.map(pair).collect::<Result<Vec<_>, _>>()?;
    let end = ENDS.iter().find_map(|end| Some((*end, *vocabulary.get(*end)?)));
    let end = end.ok_or_else(|| damaged(vocabulary_path, no_end()))?;
    encoded(&vocabulary, &merges, end)
}

/// Describes contents that are no tokenizer.
pub(super) fn unknown(json: &[u8]) -> String {
    match serde_json::from_slice::<IgnoredAny>(json) {
        Err(error) => format!("is damaged: its line {} is no JSON; {AGAIN}", error.line()),
        Ok(_) => "is no tokenizer in Hugging Face's format; give another one".into(),
    }
}

/// Describes the lack of a token that ends a document.
pub(super) fn no_end() -> String {
    format!("has none of the tokens {}, one of which must end a document", ENDS.join(", "))
}

/// Encodes a byte-level BPE with GPT-2's division into words, and the token `end` as one that is no text.
pub(super) fn encoded(
    vocabulary: &impl Serialize,
    merges: &[[String; 2]],
    (end, id): (&str, u32),
) -> Result<Vec<u8>, DataError> {
    #[derive(Serialize)]
    struct File<'a, V> {
        version: &'a str,
        truncation: Value,
        padding: Value,
        added_tokens: [Value; 1],
        normalizer: Value,
        pre_tokenizer: Value,
        post_processor: Value,
        decoder: Value,
        model: Model<'a, V>,
    }
    #[derive(Serialize)]
    struct Model<'a, V> {
        r#type: &'a str,
        dropout: Value,
        unk_token: Value,
        continuing_subword_prefix: Value,
        end_of_word_suffix: Value,
        fuse_unk: bool,
        byte_fallback: bool,
        ignore_merges: bool,
        vocab: &'a V,
        merges: &'a [[String; 2]],
    }
    let bytes =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    let end = json!({
        "id": id, "content": end, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": true,
    });
    let none = || Value::Null;
    let model = Model {
        r#type: "BPE",
        dropout: none(),
        unk_token: none(),
        continuing_subword_prefix: none(),
        end_of_word_suffix: none(),
        fuse_unk: false,
        byte_fallback: false,
        ignore_merges: false,
        vocab: vocabulary,
        merges,
    };
    let file = File {
        version: "1.0",
        truncation: none(),
        padding: none(),
        added_tokens: [end],
        normalizer: none(),
        pre_tokenizer: bytes.clone(),
        post_processor: none(),
        decoder: bytes,
        model,
    };
    let json = serde_json::to_vec_pretty(&file);
    json.map_err(|error| DataError::Tokenizer {
        path: TOKENIZER.into(),
        problem: format!("cannot be encoded: {error}"),
    })
}
