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

/// Returns the files with documents in a folder and in the folders below it, in the order of their paths.
/// Names in the folder that begin with a dot are hidden, as those of `.git`.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let mut files = files_below(folder, &ENDINGS)?;
    files.retain(|file| !is_hidden(file.strip_prefix(folder).unwrap_or(file)));
    files.sort_unstable();
    Ok(files)
}

/// Reads the documents of a file, or those of the files in a folder.
pub(crate) fn read(path: &Path) -> Result<Vec<String>, DataError> {
    if !path.is_dir() {
        return of_file(path);
    }
    let mut documents = Vec::new();
    for file in files(path)? {
        documents.extend(of_file(&file)?);
    }
    Ok(documents)
}

fn is_hidden(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."))
}

fn of_file(path: &Path) -> Result<Vec<String>, DataError> {
    let bytes =
        kolo_durable::read(path).map_err(|source| DataError::Unreadable { path: path.into(), source })?;
    of_bytes(path, bytes)
}

/// Returns the documents of a file's content that are not empty.
pub(crate) fn of_bytes(path: &Path, bytes: Vec<u8>) -> Result<Vec<String>, DataError> {
    let text = String::from_utf8(bytes)
        .map_err(|error| DataError::NotUtf8 { path: path.into(), byte: error.utf8_error().valid_up_to() })?;
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
    let document = |(index, line): (usize, &str)| match serde_json::from_str::<Line>(line) {
        Ok(line) => Ok(line.text),
        Err(error) => Err(DataError::Table {
            path: path.into(),
            place: TablePlace::Line(index + 1),
            problem: format!("is no JSON object with a text in the field `text` (column {})", error.column()),
        }),
    };
    lines.map(document).collect()
}
