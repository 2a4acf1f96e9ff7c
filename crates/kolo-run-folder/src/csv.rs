//! Tables of comma-separated numbers below a line of names, as `kolo train` writes them. Names may be any
//! text: cells with commas, quotes or line breaks are quoted as in RFC 4180.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::path::Path;

use crate::error::Error;

/// A table of numbers; an empty cell is an unknown number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NumberTable {
    /// Names of the columns.
    pub names: Vec<String>,
    /// The rows, each as long as the names.
    pub rows: Vec<Vec<Option<f64>>>,
}

impl NumberTable {
    /// Returns the numbers of a column, one per row; `None` if there is no such column.
    pub fn column(&self, name: &str) -> Option<impl Iterator<Item = Option<f64>>> {
        let index = self.names.iter().position(|known| known == name)?;
        Some(self.rows.iter().map(move |row| row.get(index).copied().flatten()))
    }
}

/// A table, and true if its last line is incomplete and was left out.
pub(crate) type Read = (NumberTable, bool);

/// Reads a table; returns `None` if there is no file. The last line may be incomplete.
pub(crate) fn read(path: &Path) -> Result<Option<Read>, Error> {
    let text = match kolo_durable::read_to_string(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|source| Error::Read { path: path.to_owned(), source })?,
    };
    let (records, is_half) = records(&text);
    let mut records = records.into_iter();
    let Some((_, names)) = records.next() else { return Ok(Some((NumberTable::default(), is_half))) };
    let rows = records
        .map(|(line, cells)| row(&cells, names.len()).map_err(|problem| Error::line(path, line, problem)));
    let rows = rows.collect::<Result<_, _>>()?;
    Ok(Some((NumberTable { names, rows }, is_half)))
}

/// Returns a text as a cell: in quotes if it would end a cell or a line, or begin a quoted one.
pub(crate) fn cell(text: &str) -> Cow<'_, str> {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")).into(),
        false => text.into(),
    }
}

/// A record's cells, with the number of its first line from 1.
type Cells = (usize, Vec<String>);

/// Splits a text into whole records, each of which a line break ends. Returns true if there is a rest.
fn records(text: &str) -> (Vec<Cells>, bool) {
    let (mut records, mut cells, mut cell) = (Vec::new(), Vec::new(), String::new());
    let (mut line, mut first, mut is_quoted) = (1, 1, false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        line += usize::from(letter == '\n');
        match letter {
            '"' if is_quoted && letters.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' if is_quoted || cell.is_empty() => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(std::mem::take(&mut cell)),
            '\r' if !is_quoted && letters.peek() == Some(&'\n') => {}
            '\n' if !is_quoted => {
                cells.push(std::mem::take(&mut cell));
                records.push((first, std::mem::take(&mut cells)));
                first = line;
            }
            letter => cell.push(letter),
        }
    }
    (records, !text.is_empty() && (is_quoted || !text.ends_with('\n')))
}

fn row(cells: &[String], columns: usize) -> Result<Vec<Option<f64>>, String> {
    if cells.len() != columns {
        return Err(format!("{} fields, the first line names {columns}", cells.len()));
    }
    let cell = |text: &String| match text.trim() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| format!("`{text}` is not a number")),
    };
    cells.iter().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 4180, section 2.
    #[test]
    fn cells_may_be_quoted() {
        let text = "\"aaa\",\"b\r\nbb\",ccc\r\nzzz,\"b\"\"bb\",\n1,\"\",3";
        let expected = vec![(1, vec!["aaa", "b\r\nbb", "ccc"]), (3, vec!["zzz", "b\"bb", ""])];
        let (found, is_half) = records(text);
        let found: Vec<(usize, Vec<&str>)> =
            found.iter().map(|(line, cells)| (*line, cells.iter().map(String::as_str).collect())).collect();
        assert_eq!((found, is_half), (expected, true));
        for name in ["a,b", "\"", "a\nb", "", "a\"b\",\r\n", "plain", "ä; b"] {
            let line = format!("{},{0}\n", cell(name));
            assert_eq!(records(&line), (vec![(1, vec![name.to_string(); 2])], false), "{line:?}");
        }
        // Cut within quotes.
        assert_eq!(records("a,\"b\n"), (vec![], true));
    }

    #[test]
    fn tables_are_read_by_the_names_of_their_columns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.csv");
        assert_eq!(read(&path).unwrap(), None);
        std::fs::write(&path, "epoch,noise\n1,\n2,NaN\n3,0.5\n4,0.").unwrap();
        let (table, is_half) = read(&path).unwrap().unwrap();
        assert!(is_half && table.rows.len() == 3);
        let epochs: Vec<_> = table.column("epoch").unwrap().collect();
        assert_eq!(epochs, [Some(1.0), Some(2.0), Some(3.0)]);
        assert!(table.column("loss").is_none());
        for (text, message) in [
            ("a,b\n1,x\n", "line 2: `x` is not a number"),
            ("a\n1\n2,3\n", "line 3: 2 fields"),
            ("\"a\nb\"\n1\n2,3\n", "line 4: 2 fields"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
