//! Byte-level BPE in a build without the feature `bpe`.

use std::convert::Infallible;
use std::path::Path;

use crate::error::DataError;

/// A tokenizer that this build cannot make.
#[derive(Debug)]
pub(super) struct Bpe(Infallible);

impl Bpe {
    /// Refuses a tokenizer.
    pub fn open(_: &Path, _: Vec<u8>) -> Result<Self, DataError> {
        Err(DataError::NoBpe)
    }

    pub fn vocabulary(&self) -> usize {
        match self.0 {}
    }

    pub fn end_of_document(&self) -> u16 {
        match self.0 {}
    }

    pub fn pieces<'a>(&self, _: &'a str) -> Vec<&'a str> {
        match self.0 {}
    }

    pub fn encode(&self, _: &str) -> Result<Vec<u16>, String> {
        match self.0 {}
    }

    pub fn bytes_of(&self, _: usize) -> &[u8] {
        match self.0 {}
    }

    pub fn json(&self) -> &[u8] {
        match self.0 {}
    }

    pub fn canonical(&self) -> &[u8] {
        match self.0 {}
    }
}

/// Twin of the file that trains a tokenizer.
pub(super) mod train {
    use crate::error::DataError;

    /// Refuses to train one.
    pub fn train(_: usize, _: &[&str]) -> Result<Vec<u8>, DataError> {
        Err(DataError::NoBpe)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_tokenizer_is_refused_with_the_feature_that_reads_it() {
        let options = crate::OpenOptions { tokenizer: Some("train:300".into()), ..Default::default() };
        let error = crate::open_with("kolo-documents", &options).err().unwrap().to_string();
        assert_eq!(
            error,
            "--tokenizer: this build takes bytes only; build it with `--features bpe`, or leave it out"
        );
    }
}
