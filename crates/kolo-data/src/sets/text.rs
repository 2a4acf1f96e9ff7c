//! The user's own text.

use std::sync::Arc;

use crate::entry::{DatasetEntry, Location};
use crate::text::TextSet;

pub(super) const ENTRY: DatasetEntry = DatasetEntry {
    name: "text",
    about: "your own text, for the models gpt2: a file, a .jsonl file, or a folder of them",
    location: Location::Own("PATH"),
    takes: &["--context", "--tokenizer"],
    get: "a text file, a .jsonl file with a field `text` in each line, or a folder of .txt, .md and .jsonl files",
    open: |folder, options| Ok(Arc::new(TextSet::open(&folder.path, options)?)),
};
