//! The numbers and the classes of a table's file, and what a training table teaches about its columns.

use std::path::{Path, PathBuf};

use crate::error::{DataError, TablePlace};
use crate::format::sheet::{Sheet, composed};
use crate::options::OpenOptions;
use crate::preprocessing::{NumberColumn, TableColumns};
use crate::split::split;

/// Column of the classes, if the table has it and the user names none.
const LABEL: &str = "label";

/// The numbers and classes of a file.
pub(super) struct TableFile {
    pub(super) path: PathBuf,
    /// Names of the columns, that of the classes included.
    pub(super) header: Vec<String>,
    /// Place of those names.
    pub(super) header_place: TablePlace,
    /// Place of the classes among them.
    label: usize,
    /// In double precision until they are normalized: dates and identifiers differ in their last digits.
    pub(super) numbers: Vec<f64>,
    /// Place and class of each row.
    pub(super) classes: Vec<(TablePlace, String)>,
}

/// Returns the columns of the training table, and its classes. Rows that become validation samples take no
/// part in means and deviations.
pub(super) fn fitted(
    texts: &[Option<TableFile>; 3],
    options: &OpenOptions,
) -> Result<(TableColumns, Vec<String>), DataError> {
    let [Some(text), _, validation] = texts else {
        return Ok((TableColumns { numbers: Vec::new(), label: String::new() }, Vec::new()));
    };
    if let Some(other) = texts.iter().flatten().find(|other| other.header != text.header) {
        let problem = format!("the header is not that of {}", text.path.display());
        return Err(DataError::Table { path: other.path.clone(), place: other.header_place, problem });
    }
    let rows = match options.val_split.filter(|_| validation.is_none()) {
        Some(share) => split(text.classes.len(), "training sample", share, options.seed)?[0].clone(),
        None => (0..text.classes.len()).collect(),
    };
    let count = text.header.len() - 1;
    let names = text.header.iter().enumerate().filter(|(at, _)| *at != text.label);
    let numbers = names.enumerate().map(|(column, (_, name))| {
        let (mean, std) = mean_and_std(|| rows.iter().map(|row| text.numbers[row * count + column]));
        NumberColumn { name: name.clone(), mean, std }
    });
    let columns = TableColumns { numbers: numbers.collect(), label: text.header[text.label].clone() };
    Ok((columns, classes(text)))
}

impl TableFile {
    /// Reads the classes from the column `label`, and numbers from all others.
    pub(super) fn of_all_columns(path: &Path, label: Option<&str>) -> Result<TableFile, DataError> {
        let sheet = Sheet::read(path)?;
        let has = || sheet.header.join(", ");
        let at = match label {
            Some(name) => sheet.position(name).ok_or_else(|| DataError::Option {
                option: "--label",
                value: name.into(),
                problem: format!("{} has no such column; it has {}", path.display(), has()),
            })?,
            None => sheet.position(LABEL).unwrap_or(sheet.header.len().saturating_sub(1)),
        };
        if sheet.header.len() < 2 {
            let problem = "there is one column; a table has numbers and a column of classes";
            return Err(sheet.wrong(sheet.header_place, problem.to_owned() + &sheet.separator_hint()));
        }
        let numbers: Vec<usize> = (0..sheet.header.len()).filter(|column| *column != at).collect();
        let hint = match label {
            Some(_) => String::new(),
            None => format!("; name their column with --label: {}", has()),
        };
        let header = sheet.header.clone();
        TableFile::read(&sheet, header, &numbers, at, &hint)
    }

    /// Reads the columns that a model was trained on, by their names.
    pub(super) fn of_columns(path: &Path, columns: &TableColumns) -> Result<TableFile, DataError> {
        let sheet = Sheet::read(path)?;
        let numbers = columns.numbers.iter().map(|column| sheet.column(&column.name));
        let numbers = numbers.collect::<Result<Vec<_>, _>>()?;
        let label = sheet.column(&columns.label)?;
        // In the order of the file, as in training: fingerprints cover it.
        let is_used = |at: &usize| *at == label || numbers.contains(at);
        let header = (0..sheet.header.len()).filter(is_used).map(|at| sheet.header[at].clone()).collect();
        TableFile::read(&sheet, header, &numbers, label, "")
    }

    /// Reads columns of a sheet. `hint` follows the refusal of a number that is no class.
    fn read(
        sheet: &Sheet,
        header: Vec<String>,
        columns: &[usize],
        label: usize,
        hint: &str,
    ) -> Result<TableFile, DataError> {
        let (mut numbers, mut classes) = (Vec::new(), Vec::new());
        for row in sheet.some_rows()? {
            for column in columns {
                let cell = sheet.cell(row, *column)?;
                let is_name = !hint.is_empty() && cell.parse::<f64>().is_err();
                let number = sheet.number(row, *column);
                numbers.push(number.map_err(|error| match is_name {
                    true => with_label_hint(error, &sheet.header[*column]),
                    false => error,
                })?);
            }
            let (cell, name) = (sheet.cell(row, label)?, &sheet.header[label]);
            if cell.parse::<f64>().is_ok() && cell.parse::<i64>().is_err() {
                let problem = format!(
                    "`{cell}` in column `{name}` is not a class: classes are whole numbers or names{hint}"
                );
                return Err(sheet.wrong(row.0, problem));
            }
            classes.push((row.0, composed(cell)));
        }
        let (path, header_place) = (sheet.path.clone(), sheet.header_place);
        Ok(TableFile { path, header, header_place, label, numbers, classes })
    }
}

/// Adds to the refusal of a cell that is not a number how its column becomes that of the classes, if the user
/// has named none.
fn with_label_hint(error: DataError, column: &str) -> DataError {
    match error {
        DataError::Table { path, place, problem } => {
            let problem = format!("{problem}; if `{column}` has the classes, give --label {column}");
            DataError::Table { path, place, problem }
        }
        error => error,
    }
}

/// Returns the classes, sorted: by number if all are numbers, else by name.
fn classes(text: &TableFile) -> Vec<String> {
    let mut names: Vec<String> = text.classes.iter().map(|(_, class)| class.clone()).collect();
    names.sort_unstable();
    names.dedup();
    if names.iter().all(|name| name.parse::<i64>().is_ok()) {
        names.sort_by_key(|name| name.parse::<i64>().unwrap_or_default());
    }
    names
}

/// Returns mean and standard deviation of a column; a column of one value has the deviation 1.
fn mean_and_std<I: Iterator<Item = f64>>(values: impl Fn() -> I) -> (f64, f64) {
    let count = values().count() as f64;
    let mean = values().sum::<f64>() / count;
    let variance = values().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count;
    (mean, if variance > 0.0 { variance.sqrt() } else { 1.0 })
}
