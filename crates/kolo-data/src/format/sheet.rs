//! A table in a file: its header and its rows, with the place of what is wrong.

use std::path::{Path, PathBuf};

use unicode_normalization::UnicodeNormalization;

#[cfg(not(feature = "parquet"))]
use super::no_parquet as parquet;
#[cfg(feature = "parquet")]
use super::parquet;
use super::{csv, documents};
use crate::error::{DataError, TablePlace};

/// First bytes of a Parquet file.
const PARQUET: &[u8] = b"PAR1";

/// The cells of a row as text, and the row's place.
pub(crate) type Row = (TablePlace, Vec<String>);

/// Returns a name in the form in which names are compared: an umlaut may be one character or two.
pub(crate) fn composed(name: &str) -> String {
    name.nfc().collect()
}

/// A table as text.
#[derive(Debug)]
pub(crate) struct Sheet {
    pub path: PathBuf,
    /// Names of the columns, of which no two are equal.
    pub header: Vec<String>,
    /// Place of those names.
    pub header_place: TablePlace,
    pub rows: Vec<Row>,
}

impl Sheet {
    /// Reads a table, in the format that its content shows.
    pub fn read(path: &Path) -> Result<Sheet, DataError> {
        let unreadable = |source| DataError::Unreadable { path: path.into(), source };
        let bytes = kolo_durable::read(path).map_err(unreadable)?;
        let sheet = match bytes.starts_with(PARQUET) {
            true => {
                let (header, rows) = parquet::table(path, bytes)?;
                let rows = rows.into_iter().zip(1..).map(|(cells, row)| (TablePlace::Row(row), cells));
                let header_place = TablePlace::Schema;
                Sheet { path: path.into(), header, header_place, rows: rows.collect() }
            }
            false => Sheet::of_text(path, &documents::text(path, bytes)?)?,
        };
        let header = sheet.header.iter().map(|name| composed(name)).collect();
        let sheet = Sheet { header, ..sheet };
        let mut columns = sheet.header.iter().enumerate();
        match columns.find(|(column, name)| sheet.position(name) != Some(*column)) {
            Some((_, twice)) => {
                Err(sheet
                    .wrong(sheet.header_place, format!("two columns have the name `{twice}`; rename one")))
            }
            None => Ok(sheet),
        }
    }

    fn of_text(path: &Path, text: &str) -> Result<Sheet, DataError> {
        let first = TablePlace::Line(1);
        let mut sheet =
            Sheet { path: path.into(), header: Vec::new(), header_place: first, rows: Vec::new() };
        let rows = csv::rows(text);
        let mut rows =
            rows.map_err(|line| sheet.wrong(TablePlace::Line(line), "a quote does not end"))?.into_iter();
        let Some((_, header)) = rows.next() else {
            return Err(sheet.wrong(first, "there is no header; the first line names the columns"));
        };
        let is_fraction = |cell: &&String| cell.contains('.') && cell.trim().parse::<f64>().is_ok();
        if let Some(number) = header.iter().find(is_fraction) {
            let problem =
                format!("`{number}` is a number, but the first line names the columns; add such a line");
            return Err(sheet.wrong(first, problem));
        }
        sheet.header = header;
        sheet.rows = rows.map(|(line, cells)| (TablePlace::Line(line), cells)).collect();
        Ok(sheet)
    }

    /// Returns the error of a place.
    pub fn wrong(&self, place: TablePlace, problem: impl Into<String>) -> DataError {
        DataError::Table { path: self.path.clone(), place, problem: problem.into() }
    }

    /// Returns the place of a column.
    pub fn position(&self, name: &str) -> Option<usize> {
        let name = composed(name);
        self.header.iter().position(|column| *column == name)
    }

    /// Returns the place of a column that must be there.
    pub fn column(&self, name: &str) -> Result<usize, DataError> {
        let has = || self.header.join(", ") + &self.separator_hint();
        let problem = || format!("there is no column `{name}`; the table has {}", has());
        self.position(name).ok_or_else(|| self.wrong(self.header_place, problem()))
    }

    /// Says what separates the cells of a text that has one column because they are not between commas.
    pub fn separator_hint(&self) -> String {
        let [header] = &*self.header else { return String::new() };
        let known = [(';', "semicolons"), ('\t', "tabs"), ('|', "vertical bars")];
        let found = known.iter().find(|(separator, _)| header.contains(*separator));
        found.map_or(String::new(), |(_, name)| {
            format!("; its cells are separated by {name}: put commas between them, and write 0.5, not 0,5")
        })
    }

    /// Returns the rows, of which there must be one.
    pub fn some_rows(&self) -> Result<&[Row], DataError> {
        let problem = match self.header_place {
            TablePlace::Line(_) => "there are no lines after the header",
            _ => "there are no rows",
        };
        if self.rows.is_empty() { Err(self.wrong(self.header_place, problem)) } else { Ok(&self.rows) }
    }

    /// Returns a cell of a row, which must have as many as the header and not be empty there.
    pub fn cell<'a>(&self, (place, cells): &'a Row, column: usize) -> Result<&'a str, DataError> {
        if cells.len() != self.header.len() {
            let problem = format!("{} cells, but the header has {}", cells.len(), self.header.len());
            return Err(self.wrong(*place, problem));
        }
        match cells[column].trim() {
            "" => {
                let name = &self.header[column];
                let unit = if let TablePlace::Line(_) = place { "line" } else { "row" };
                Err(self.wrong(*place, format!("column `{name}` is empty; fill it, or remove the {unit}")))
            }
            cell => Ok(cell),
        }
    }

    /// Returns the number in a cell, which single precision can hold: models compute in it.
    pub fn number(&self, row: &Row, column: usize) -> Result<f64, DataError> {
        let (cell, name) = (self.cell(row, column)?, &self.header[column]);
        match cell.parse::<f64>() {
            Ok(number) if (number as f32).is_finite() => Ok(number),
            Ok(number) if number.is_finite() => {
                let problem = format!("`{cell}` in column `{name}` is too large for single precision");
                Err(self.wrong(row.0, problem))
            }
            Ok(_) => Err(self.wrong(row.0, format!("`{cell}` in column `{name}` is not finite"))),
            Err(_) => Err(self.wrong(row.0, format!("`{cell}` in column `{name}` is not a number"))),
        }
    }
}
