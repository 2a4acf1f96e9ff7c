//! A table in a file: its header and its rows, with the line of what is wrong.

use std::path::{Path, PathBuf};

use super::csv::{Row, rows};
use crate::error::DataError;

/// A table as text.
pub(crate) struct Sheet {
    pub path: PathBuf,
    /// Names of the columns, of which no two are equal.
    pub header: Vec<String>,
    pub rows: Vec<Row>,
}

impl Sheet {
    pub fn read(path: &Path) -> Result<Sheet, DataError> {
        let text = kolo_durable::read_to_string(path)
            .map_err(|source| DataError::Unreadable { path: path.into(), source })?;
        let mut sheet = Sheet { path: path.into(), header: Vec::new(), rows: Vec::new() };
        sheet.rows = rows(&text).map_err(|line| sheet.wrong(line, "a quote does not end"))?;
        if sheet.rows.is_empty() {
            return Err(sheet.wrong(1, "there is no header; the first line names the columns"));
        }
        sheet.header = sheet.rows.remove(0).1;
        let mut columns = sheet.header.iter().enumerate();
        match columns.find(|(column, name)| sheet.position(name) != Some(*column)) {
            Some((_, twice)) => {
                Err(sheet.wrong(1, format!("two columns have the name `{twice}`; rename one")))
            }
            None => Ok(sheet),
        }
    }

    /// Returns the error of a line.
    pub fn wrong(&self, line: usize, problem: impl Into<String>) -> DataError {
        DataError::Table { path: self.path.clone(), line, problem: problem.into() }
    }

    /// Returns the place of a column.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|column| column == name)
    }

    /// Returns the place of a column that must be there.
    pub fn column(&self, name: &str) -> Result<usize, DataError> {
        let problem = || format!("there is no column `{name}`; the table has {}", self.header.join(", "));
        self.position(name).ok_or_else(|| self.wrong(1, problem()))
    }

    /// Returns a cell of a row, which must have as many as the header and not be empty there.
    pub fn cell<'a>(&self, (line, cells): &'a Row, column: usize) -> Result<&'a str, DataError> {
        if cells.len() != self.header.len() {
            let problem = format!("{} cells, but the header has {}", cells.len(), self.header.len());
            return Err(self.wrong(*line, problem));
        }
        match cells[column].trim() {
            "" => {
                let name = &self.header[column];
                Err(self.wrong(*line, format!("column `{name}` is empty; fill it, or remove the line")))
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
            Err(_) => Err(self.wrong(row.0, format!("`{cell}` in column `{name}` is no number"))),
        }
    }
}
