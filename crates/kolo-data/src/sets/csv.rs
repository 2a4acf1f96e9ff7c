//! The user's own table: numbers, and a column of classes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::augment::AugmentKey;
use crate::batch::Batch;
use crate::dataset::{DataSet, ImageDataSet, SampleShape};
use crate::entry::{DatasetEntry, Location};
use crate::error::DataError;
use crate::fingerprint::{ContentHash, Fingerprint};
use crate::format::csv::rows;
use crate::options::OpenOptions;
use crate::part::Part;

/// Column of the classes, if the table has it and the user names none.
const LABEL: &str = "label";

pub(super) const ENTRY: DatasetEntry = DatasetEntry {
    name: "csv",
    about: "your own table of numbers and a column of classes, for the model mlp",
    location: Location::Own("FILE"),
    takes: &["--label"],
    get: "a table with a header, or a folder with the tables train.csv, and if you like val.csv and test.csv",
    open: |folder, options| Ok(Arc::new(Table::open(&folder.path, options)?)),
};

/// A table in memory: each row is an image of one row of pixels, normalized by the training rows.
#[derive(Debug)]
struct Table {
    /// Names of the columns, that of the classes included.
    header: Vec<String>,
    columns: usize,
    classes: Vec<String>,
    parts: [Rows; 3],
}

#[derive(Debug, Default)]
struct Rows {
    numbers: Vec<f32>,
    labels: Vec<u32>,
}

/// A table as it stands in its file.
struct Text {
    path: PathBuf,
    /// Names of the columns.
    header: Vec<String>,
    /// In double precision until they are normalized: dates and identifiers differ in their last digits.
    numbers: Vec<f64>,
    /// Line and class of each row.
    classes: Vec<(usize, String)>,
}

impl Table {
    fn open(path: &Path, options: &OpenOptions) -> Result<Self, DataError> {
        let label = options.label.as_deref();
        if !path.is_dir() {
            return Table::of([Some(Text::read(path, label)?), None, None]);
        }
        // By the number of the part.
        let [train, test, val] = ["train", "test", "val"].map(|part| path.join(format!("{part}.csv")));
        let other = |path: PathBuf| path.exists().then(|| Text::read(&path, label)).transpose();
        Table::of([Some(Text::read(&train, label)?), other(test)?, other(val)?])
    }

    fn of(texts: [Option<Text>; 3]) -> Result<Self, DataError> {
        let mut table =
            Table { header: Vec::new(), columns: 0, classes: Vec::new(), parts: Default::default() };
        let mut first: Option<PathBuf> = None;
        let mut statistics = Vec::new();
        for (text, part) in texts.into_iter().zip(&mut table.parts) {
            let Some(text) = text else { continue };
            let columns = text.header.len() - 1;
            match &first {
                None => {
                    table.columns = columns;
                    table.classes = classes(&text);
                    statistics =
                        (0..columns).map(|column| mean_and_std(&text.numbers, column, columns)).collect();
                    (first, table.header) = (Some(text.path.clone()), text.header.clone());
                }
                Some(path) if table.header != text.header => {
                    let problem = format!("the header is not that of {}", path.display());
                    return Err(DataError::Table { path: text.path, line: 1, problem });
                }
                Some(_) => {}
            }
            let normalized = |(number, (mean, std)): (&f64, &(f64, f64))| ((number - mean) / std) as f32;
            part.numbers = text.numbers.iter().zip(statistics.iter().cycle()).map(normalized).collect();
            for (line, class) in &text.classes {
                let label = table.classes.iter().position(|known| known == class);
                let label = label.ok_or_else(|| DataError::Table {
                    path: text.path.clone(),
                    line: *line,
                    problem: format!("the class `{class}` is none of the training table"),
                })?;
                part.labels.push(label as u32);
            }
        }
        Ok(table)
    }
}

impl Text {
    fn read(path: &Path, label: Option<&str>) -> Result<Text, DataError> {
        let wrong = |line, problem: String| DataError::Table { path: path.into(), line, problem };
        let text = kolo_durable::read_to_string(path)
            .map_err(|source| DataError::Read { path: path.into(), source })?;
        let rows = rows(&text).map_err(|line| wrong(line, "a quote does not end".into()))?;
        let mut rows = rows.into_iter();
        let Some((_, header)) = rows.next() else {
            return Err(wrong(1, "there is no header; the first line names the columns".into()));
        };
        let at = |name: &str| header.iter().position(|column| column == name);
        if let Some((_, twice)) = header.iter().enumerate().find(|(column, name)| at(name) != Some(*column)) {
            return Err(wrong(1, format!("two columns have the name `{twice}`; rename one")));
        }
        let label = match label {
            Some(name) => at(name).ok_or_else(|| DataError::Option {
                option: "--label",
                value: name.into(),
                problem: format!("{} has no such column; it has {}", path.display(), header.join(", ")),
            })?,
            None => at(LABEL).unwrap_or(header.len() - 1),
        };
        if header.len() < 2 {
            return Err(wrong(1, "there is one column; a table has numbers and a column of classes".into()));
        }
        let (mut numbers, mut classes) = (Vec::new(), Vec::new());
        for (line, cells) in rows {
            if cells.len() != header.len() {
                let problem = format!("{} cells, but the header has {}", cells.len(), header.len());
                return Err(wrong(line, problem));
            }
            for (column, cell) in cells.iter().enumerate() {
                let (cell, name) = (cell.trim(), &header[column]);
                if cell.is_empty() {
                    return Err(wrong(
                        line,
                        format!("column `{name}` is empty; fill it, or remove the line"),
                    ));
                }
                if column == label {
                    if cell.parse::<f64>().is_ok() && cell.parse::<i64>().is_err() {
                        let problem = format!(
                            "`{cell}` in column `{name}` is no class: classes are whole numbers or names"
                        );
                        return Err(wrong(line, problem));
                    }
                    classes.push((line, cell.to_owned()));
                    continue;
                }
                match cell.parse::<f64>() {
                    Ok(number) if number.is_finite() => numbers.push(number),
                    Ok(_) => {
                        return Err(wrong(line, format!("`{cell}` in column `{name}` is not finite")));
                    }
                    Err(_) => return Err(wrong(line, format!("`{cell}` in column `{name}` is no number"))),
                }
            }
        }
        if classes.is_empty() {
            return Err(wrong(1, "there are no lines after the header".into()));
        }
        Ok(Text { path: path.into(), header, numbers, classes })
    }
}

/// Returns the classes, sorted: by number if all are numbers, else by name.
fn classes(text: &Text) -> Vec<String> {
    let mut names: Vec<String> = text.classes.iter().map(|(_, class)| class.clone()).collect();
    names.sort_unstable();
    names.dedup();
    if names.iter().all(|name| name.parse::<i64>().is_ok()) {
        names.sort_by_key(|name| name.parse::<i64>().unwrap_or_default());
    }
    names
}

/// Returns mean and standard deviation of a column; a column of one value has the deviation 1.
fn mean_and_std(numbers: &[f64], column: usize, columns: usize) -> (f64, f64) {
    let values = || numbers.iter().skip(column).step_by(columns);
    let count = values().count() as f64;
    let mean = values().sum::<f64>() / count;
    let variance = values().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count;
    (mean, if variance > 0.0 { variance.sqrt() } else { 1.0 })
}

impl DataSet for Table {
    type Batch = Batch;

    fn samples(&self, part: Part) -> usize {
        self.parts[part as usize].labels.len()
    }

    fn batch(&self, part: Part, indices: &[usize], _: Option<AugmentKey>) -> Result<Batch, DataError> {
        let Rows { numbers, labels } = &self.parts[part as usize];
        let row = |index: &usize| &numbers[index * self.columns..][..self.columns];
        Ok(Batch {
            images: indices.iter().flat_map(row).copied().collect(),
            labels: indices.iter().map(|&index| labels[index]).collect(),
            shape: [indices.len(), 1, 1, self.columns],
        })
    }

    /// Returns the fingerprint of all rows.
    fn fingerprint(&self, part: Part) -> Fingerprint {
        let (Rows { numbers, labels }, mut hash) = (&self.parts[part as usize], ContentHash::new());
        self.header.iter().chain(&self.classes).for_each(|name| hash.text(name));
        hash.numbers(numbers);
        hash.numbers(labels);
        Fingerprint::of_all(labels.len(), hash)
    }
}

impl ImageDataSet for Table {
    fn shape(&self) -> SampleShape {
        SampleShape { channels: 1, height: 1, width: self.columns, classes: self.classes.len() }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::open_with;

    fn opened(text: &str, label: Option<&str>) -> Result<Arc<dyn ImageDataSet>, String> {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("own.csv");
        fs::write(&path, text).unwrap();
        let options = OpenOptions { label: label.map(Into::into), ..OpenOptions::default() };
        let opened = open_with(&format!("csv:{}", path.display()), &options);
        opened.map_err(|error| error.to_string().replace(&path.display().to_string(), "own.csv"))
    }

    #[test]
    fn columns_are_normalized_and_classes_are_sorted() {
        let data = opened("a,kind,b\n1,red,5\n3,\"dark, blue\",5\n", Some("kind")).unwrap();
        assert_eq!(data.shape(), SampleShape { channels: 1, height: 1, width: 2, classes: 2 });
        let batch = data.batch(Part::Train, &[0, 1], None).unwrap();
        assert_eq!((batch.images, batch.labels), (vec![-1.0, 0.0, 1.0, 0.0], vec![1, 0]));
        assert_eq!(Part::ALL.map(|part| data.samples(part)), [2, 0, 0]);
        let by_number = opened("label,x\n10,1\n9,2\n10,3\n", None).unwrap();
        assert_eq!(by_number.batch(Part::Train, &[0, 1, 2], None).unwrap().labels, [1, 0, 1]);
        let last = opened("x,y\n1,b\n2,a\n", None).unwrap();
        assert_eq!(last.batch(Part::Train, &[0, 1], None).unwrap().labels, [1, 0]);
        let many: String = (0..300).map(|class| format!("1,{class}\n")).collect();
        let many = opened(&format!("x,y\n{many}"), None).unwrap();
        assert_eq!(many.batch(Part::Train, &[299], None).unwrap().labels, [299]);
    }

    /// Seconds since 1970 in single precision would all be the same.
    #[test]
    fn large_numbers_keep_their_differences() {
        let data = opened("time,label\n1700000000,a\n1700000002,b\n", None).unwrap();
        assert_eq!(data.batch(Part::Train, &[0, 1], None).unwrap().images, [-1.0, 1.0]);
        let other = opened("seconds,label\n1700000000,a\n1700000002,b\n", None).unwrap();
        assert_ne!(data.fingerprint(Part::Train), other.fingerprint(Part::Train), "other names of columns");
    }

    #[test]
    fn the_line_and_the_column_of_what_is_wrong_are_named() {
        let refused = |text: &str, label: Option<&str>| opened(text, label).err().unwrap();
        let missing = refused("a,b\n1,x\n", Some("class"));
        assert_eq!(missing, "--label class: own.csv has no such column; it has a, b");
        for (text, told) in [
            ("", "line 1: there is no header; the first line names the columns"),
            ("a,b\n", "line 1: there are no lines after the header"),
            ("b\nx\n", "line 1: there is one column; a table has numbers and a column of classes"),
            ("a,b\n1,x\n\n,y\n", "line 4: column `a` is empty; fill it, or remove the line"),
            ("a,b\n1,x\n2\n", "line 3: 1 cells, but the header has 2"),
            ("a,b\n1,x\ntwo,y\n", "line 3: `two` in column `a` is no number"),
            ("a,b\nNaN,x\n", "line 2: `NaN` in column `a` is not finite"),
            ("a,a,b\n1,2,x\n", "line 1: two columns have the name `a`; rename one"),
            ("a,b\n1,0.5\n", "line 2: `0.5` in column `b` is no class: classes are whole numbers or names"),
            ("a,b\n1,\"x\n", "line 2: a quote does not end"),
        ] {
            assert_eq!(refused(text, None), format!("own.csv, {told}"));
        }
    }

    #[test]
    fn parts_are_tables_of_their_own() {
        let folder = TempDir::new().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let open = || crate::open(&format!("csv:{}", folder.path().display()));
        assert!(open().err().unwrap().to_string().contains("train.csv: cannot be read"));
        write("train.csv", "x,y\n1,a\n3,b\n");
        write("val.csv", "x,y\n5,b\n");
        let data = open().unwrap();
        assert_eq!(Part::ALL.map(|part| data.samples(part)), [2, 0, 1]);
        let batch = data.batch(Part::Validation, &[0], None).unwrap();
        assert_eq!((batch.images, batch.labels), (vec![3.0], vec![1]), "by the training rows");
        write("test.csv", "x,y\n5,c\n");
        let told = open().err().unwrap().to_string();
        assert!(told.ends_with("test.csv, line 2: the class `c` is none of the training table"), "{told}");
        write("test.csv", "z,y\n5,b\n");
        let told = open().err().unwrap().to_string();
        assert!(told.contains("test.csv, line 1: the header is not that of "), "{told}");
    }
}
