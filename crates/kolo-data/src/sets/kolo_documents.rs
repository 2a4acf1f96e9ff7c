//! Kolo's own documents, embedded in the program: see `assets/kolo-documents/README.md`.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use flate2::bufread::GzDecoder;

use crate::entry::{DatasetEntry, Location};
use crate::error::DataError;
use crate::format::documents;
use crate::options::OpenOptions;
use crate::text::TextSet;

const FILE: (&str, &[u8]) =
    ("documents.jsonl", include_bytes!("../../assets/kolo-documents/documents.jsonl.gz").as_slice());

/// Documents of which the last one is for tests.
const TEST: usize = 10;

pub(super) const ENTRY: DatasetEntry = DatasetEntry {
    name: "kolo-documents",
    about: "Kolo's own documents, 290 kB of English text, part of the program, for the models gpt2",
    location: Location::Embedded,
    takes: &["--context", "--tokenizer"],
    get: "",
    open: |_, options| Ok(Arc::new(read(options)?)),
};

fn read(options: &OpenOptions) -> Result<TextSet, DataError> {
    let (path, mut bytes) = (Path::new(FILE.0), Vec::new());
    let unpacked = GzDecoder::new(FILE.1).read_to_end(&mut bytes);
    unpacked.map_err(|source| DataError::Read { path: path.into(), source })?;
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for (number, document) in documents::of_bytes(path, bytes)?.into_iter().enumerate() {
        if number % TEST == TEST - 1 { test.push(document) } else { train.push(document) }
    }
    TextSet::of([train, test, Vec::new()], options)
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::{DataSet, Part};

    #[test]
    fn the_file_has_the_checksum_written_beside_it() {
        let sums = include_str!("../../assets/kolo-documents/SHA256SUMS");
        let hex: String = Sha256::digest(FILE.1).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(sums, format!("{hex}  documents.jsonl.gz\n"));
    }

    #[test]
    fn there_is_text_to_train_and_to_test_on() {
        let data = read(&OpenOptions::default()).unwrap();
        let [train, test] = [Part::Train, Part::Test].map(|part| data.samples(part));
        assert!(train > 1000 && (train / 20..train / 4).contains(&test), "{train}, {test}");
    }
}
