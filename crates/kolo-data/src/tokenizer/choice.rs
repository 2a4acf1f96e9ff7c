//! The values of `--tokenizer`, and what a value that is none of them was likely meant for.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::bytes::BYTE_VOCABULARY;
use super::file::MOST;
use crate::error::DataError;

/// Value for bytes.
const BYTES: &str = "bytes";

/// Beginning of the value that trains a tokenizer.
const TRAIN: &str = "train:";

/// Numbers of tokens that a trained tokenizer may have.
const SIZES: RangeInclusive<usize> = BYTE_VOCABULARY..=MOST;

/// A value of `--tokenizer`.
#[derive(Debug, PartialEq)]
pub(super) enum Choice<'a> {
    Bytes,
    /// A tokenizer of so many tokens, from the training text.
    Train(usize),
    /// A file or a folder.
    File(&'a Path),
}

impl<'a> Choice<'a> {
    /// Reads a value.
    ///
    /// # Errors
    ///
    /// It is `train:` and no number, or no file, and likely meant for another value.
    pub fn of(value: &'a Path) -> Result<Self, DataError> {
        let text = value.to_string_lossy();
        let refused = |problem| DataError::Option { option: "--tokenizer", value: text.to_string(), problem };
        if text == BYTES {
            return Ok(Choice::Bytes);
        }
        if let Some(size) = text.strip_prefix(TRAIN) {
            let (least, most) = (SIZES.start(), SIZES.end());
            return number(size).filter(|size| SIZES.contains(size)).map(Choice::Train).ok_or_else(|| {
                refused(format!("give {TRAIN}SIZE with a number of tokens from {least} to {most}"))
            });
        }
        match likely(&text).filter(|_| !value.exists()) {
            Some(meant) => Err(refused(format!("there is no such file; you may mean {meant}"))),
            None => Ok(Choice::File(value)),
        }
    }

    /// Returns the value for any current directory.
    pub fn absolute(value: PathBuf) -> PathBuf {
        let is_file = matches!(Choice::of(&value), Ok(Choice::File(_)));
        let absolute = is_file.then(|| std::path::absolute(&value).ok()).flatten();
        absolute.unwrap_or(value)
    }
}

/// Returns the number that digits alone spell.
fn number(digits: &str) -> Option<usize> {
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Returns the value that a text is nearly.
fn likely(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let (trains, rest) = text.strip_prefix("train").map_or((false, &*text), |rest| (true, rest));
    let rest = rest.trim_matches([':', '=', '-', '_', ' ']);
    match rest {
        "byte" | "bytes" => Some(BYTES.into()),
        "" => trains.then(|| format!("{TRAIN}SIZE, as {TRAIN}8000")),
        _ => number(rest).map(|size| format!("{TRAIN}{size}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_nearly_another_one_is_answered_with_that() {
        let of = |value: &'static str| Choice::of(Path::new(value)).map_err(|error| error.to_string());
        assert_eq!(of("bytes"), Ok(Choice::Bytes));
        assert_eq!(of("train:257"), Ok(Choice::Train(257)));
        for path in ["x/train", "trained.json", "train.json", "my bytes", "./bytes"] {
            assert_eq!(of(path), Ok(Choice::File(Path::new(path))));
        }
        for (value, meant) in [
            ("Bytes", "bytes"),
            ("byte", "bytes"),
            ("train", "train:SIZE, as train:8000"),
            ("TRAIN=", "train:SIZE, as train:8000"),
            ("train=300", "train:300"),
            ("train300", "train:300"),
            ("Train:300", "train:300"),
            ("8000", "train:8000"),
        ] {
            let error = format!("--tokenizer {value}: there is no such file; you may mean {meant}");
            assert_eq!(of(value), Err(error));
            assert_eq!(Choice::absolute(value.into()), Path::new(value), "the answer comes later");
        }
        for size in ["", "+300", "256", "65537", "many", " 300", "99999999999999999999"] {
            let value = format!("train:{size}");
            let error = Choice::of(Path::new(&value)).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("--tokenizer {value}: give train:SIZE with a number of tokens from 257 to 65536")
            );
        }
        assert!(Choice::absolute("a.json".into()).is_absolute());
    }
}
