//! Tables of comma-separated numbers below a line of names, as `kolo train` writes them.

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
    let is_whole = text.is_empty() || text.ends_with('\n');
    let mut lines: Vec<&str> = text.lines().collect();
    if !is_whole {
        lines.pop();
    }
    let Some((header, rows)) = lines.split_first() else {
        return Ok(Some((NumberTable::default(), !is_whole)));
    };
    let names: Vec<String> = header.split(',').map(Into::into).collect();
    let rows = rows
        .iter()
        .enumerate()
        .map(|(index, line)| row(line, names.len()).map_err(|problem| Error::line(path, index + 2, problem)));
    let rows = rows.collect::<Result<_, _>>()?;
    Ok(Some((NumberTable { names, rows }, !is_whole)))
}

fn row(line: &str, columns: usize) -> Result<Vec<Option<f64>>, String> {
    let cells: Vec<&str> = line.split(',').collect();
    if cells.len() != columns {
        return Err(format!("{} fields, the first line names {columns}", cells.len()));
    }
    let cell = |text: &&str| match text.trim() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| format!("`{text}` is no number")),
    };
    cells.iter().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for (text, message) in
            [("a,b\n1,x\n", "line 2: `x` is no number"), ("a\n1\n2,3\n", "line 3: 2 fields")]
        {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
