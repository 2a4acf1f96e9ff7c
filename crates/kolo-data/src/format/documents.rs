//! Documents: the text of a file, or that of each line of a `.jsonl` file.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{DataError, TablePlace};
use crate::listing::files_below;

/// Endings of the files in a folder that hold documents.
pub(crate) const ENDINGS: [&str; 3] = ["txt", "md", "jsonl"];

/// Ending of a file that holds a document in each line.
const LINES: &str = "jsonl";

/// A line of a `.jsonl` file. Other fields are ignored.
#[derive(Deserialize)]
struct Line {
    text: String,
}

/// Mark of UTF-8 at the beginning of a file, which is no part of the text.
const MARK: &str = "\u{feff}";

/// Documents in the order of their files.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    pub texts: Vec<String>,
    /// Files that begin with a byte order mark.
    pub marked: Vec<PathBuf>,
}

/// Returns the files with documents in a folder and in the folders below it, in the order of their paths.
/// Names that begin with a dot are hidden, as those of `.git`.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let mut files = files_below(folder, &ENDINGS)?;
    files.sort_unstable();
    Ok(files)
}

/// Reads the documents of a file, or those of the files in a folder.
pub(crate) fn read(path: &Path) -> Result<Documents, DataError> {
    let mut all = Documents::default();
    for path in if path.is_dir() { files(path)? } else { vec![path.into()] } {
        let bytes = kolo_durable::read(&path)
            .map_err(|source| DataError::Unreadable { path: path.clone(), source })?;
        let is_marked = bytes.starts_with(MARK.as_bytes());
        all.texts.extend(of_bytes(&path, bytes)?);
        all.marked.extend(is_marked.then_some(path));
    }
    Ok(all)
}

/// True for UTF-16: its byte order mark, or characters of Latin-1 without one.
fn is_utf16(bytes: &[u8]) -> bool {
    let units = bytes.first_chunk::<8>().map(|bytes| bytes.map(|byte| byte == 0));
    bytes.starts_with(b"\xff\xfe")
        || bytes.starts_with(b"\xfe\xff")
        || units.is_some_and(|zeros| {
            let is_every_second = |first: usize| (0..8).all(|at| zeros[at] == (at % 2 == first));
            is_every_second(0) || is_every_second(1)
        })
}

/// Returns the text of a file's content, which must be UTF-8, without the mark.
pub(crate) fn text(path: &Path, bytes: Vec<u8>) -> Result<String, DataError> {
    if is_utf16(&bytes) {
        return Err(DataError::Utf16 { path: path.into() });
    }
    let mut text = String::from_utf8(bytes).map_err(|error| DataError::not_utf8(path, &error))?;
    if text.starts_with(MARK) {
        text.drain(..MARK.len());
    }
    Ok(text)
}

/// Returns the documents of a file's content that are not empty.
pub(crate) fn of_bytes(path: &Path, bytes: Vec<u8>) -> Result<Vec<String>, DataError> {
    let text = text(path, bytes)?;
    let ending = path.extension().and_then(|ending| ending.to_str());
    let mut documents = match ending.is_some_and(|ending| ending.eq_ignore_ascii_case(LINES)) {
        true => of_lines(path, &text)?,
        false => vec![text],
    };
    documents.retain(|document| !document.is_empty());
    Ok(documents)
}

fn of_lines(path: &Path, text: &str) -> Result<Vec<String>, DataError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let document = |(index, line): (usize, &str)| {
        // The decoder would take an array for an object.
        let is_object = line.trim_start().starts_with('{');
        let refused = |column: usize| DataError::Table {
            path: path.into(),
            place: TablePlace::Line(index + 1),
            problem: format!("is no JSON object with a text in the field `text` (column {column})"),
        };
        let line = serde_json::from_str::<Line>(line).map_err(|error| refused(error.column()))?;
        if is_object { Ok(line.text) } else { Err(refused(1)) }
    };
    lines.map(document).collect()
}
