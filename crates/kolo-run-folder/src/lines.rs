//! Files with one JSON object per line, the last of which may be incomplete, and the rows of such files.

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// A row of a file of JSON lines in a run folder.
pub trait JsonRow: Serialize + DeserializeOwned {
    /// Name of the file.
    const FILE: &'static str;

    /// Returns the row as one line of JSON without a line break.
    ///
    /// # Errors
    ///
    /// No case is known; errors of the encoder are passed on.
    fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

/// Reads all rows of a run, and returns a remark on an incomplete file. A run may have none.
pub(crate) fn rows<Row: JsonRow>(folder: &Path) -> Result<(Vec<Row>, Option<String>), Error> {
    let Some(lines) = read(&folder.join(Row::FILE))? else { return Ok((Vec::new(), None)) };
    let remark =
        lines.is_half.then(|| format!("The last line of {} is half written and left out.", Row::FILE));
    Ok((lines.values.into_iter().map(|(_, row)| row).collect(), remark))
}

/// The lines of a file that grows while a run goes on.
#[derive(Debug)]
pub(crate) struct Lines<T> {
    /// One value per line, with the line's number from 1.
    pub(crate) values: Vec<(usize, T)>,
    /// True if the last line is incomplete and was left out.
    pub(crate) is_half: bool,
}

/// Reads a file of JSON lines; returns `None` if there is no file.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<Lines<T>>, Error> {
    let fail = |source| Error::Read { path: path.to_owned(), source };
    let file = match kolo_durable::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(fail)?,
    };
    let mut reader = BufReader::new(file);
    let mut lines = Lines { values: Vec::new(), is_half: false };
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(fail)? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(value) => lines.values.push((number, value)),
            // The run is still writing this line.
            Err(_) if line.last() != Some(&b'\n') => lines.is_half = true,
            Err(e) => return Err(Error::line(path, number, problem(&e))),
        }
    }
    Ok(Some(lines))
}

/// Returns the text of serde_json's error without its line number, which [`Error::Line`] names.
pub(crate) fn problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(message) => format!("{message} at column {}", error.column()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_last_line_is_left_out_and_any_other_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers.jsonl");
        assert!(read::<u64>(&path).unwrap().is_none());
        std::fs::write(&path, "1\n\n2\n[3").unwrap();
        let lines = read::<u64>(&path).unwrap().unwrap();
        assert_eq!((lines.values, lines.is_half), (vec![(1, 1), (3, 2)], true));
        std::fs::write(&path, "1\n{\"a\":\n3\n").unwrap();
        let error = read::<u64>(&path).unwrap_err().to_string();
        assert!(error.contains("numbers.jsonl line 2: ") && error.contains("mend that line"), "{error}");
        std::fs::write(&path, b"1\n\xff\xfe\n3\n").unwrap();
        assert!(read::<u64>(&path).unwrap_err().to_string().contains("line 2"));
    }
}
