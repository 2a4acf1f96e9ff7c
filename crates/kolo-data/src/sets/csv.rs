//! The user's own table, as text or as a Parquet file: numbers, and a column of classes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::augment::AugmentKey;
use crate::batch::Batch;
use crate::dataset::{DataSet, ImageDataSet, SampleShape};
use crate::entry::{DatasetEntry, Location};
use crate::error::{DataError, TablePlace};
use crate::fingerprint::{ContentHash, Fingerprint};
use crate::format::sheet::composed;
use crate::options::OpenOptions;
use crate::part::Part;
use crate::preprocessing::{Preprocessing, TableColumns};
use crate::sets::folder::one_class;
use crate::sets::table_file::{TableFile, fitted};
use crate::split::without_validation;

pub(super) const ENTRY: DatasetEntry = DatasetEntry {
    name: "csv",
    about: "your own table of numbers and a column of classes, for the model mlp",
    location: Location::Own("FILE"),
    takes: &["--label"],
    get: "a table with a header, or a folder with the tables train.csv, and if you like val.csv and test.csv",
    open: |folder, options| Ok(Arc::new(Table::open(&folder.path, "csv", options)?)),
};

pub(super) const PARQUET: DatasetEntry = DatasetEntry {
    name: "parquet",
    about: "the same as Parquet files, in a build with the feature parquet",
    get: "a Parquet file of such a table, or a folder with train.parquet, and if you like val.parquet and test.parquet",
    open: |folder, options| Ok(Arc::new(Table::open(&folder.path, "parquet", options)?)),
    ..ENTRY
};

/// A table in memory: each row is an image of one row of pixels, normalized by the training rows.
#[derive(Debug)]
struct Table {
    /// Names of the columns, that of the classes included.
    header: Vec<String>,
    columns: TableColumns,
    classes: Vec<String>,
    parts: [Rows; 3],
    path: PathBuf,
}

#[derive(Debug, Default)]
struct Rows {
    numbers: Vec<f32>,
    labels: Vec<u32>,
    /// Place of each row in its file.
    places: Vec<TablePlace>,
}

impl Table {
    /// Opens a file, or the files of a folder that end with `ending`.
    fn open(path: &Path, ending: &str, options: &OpenOptions) -> Result<Self, DataError> {
        let trained = options.trained.as_ref().and_then(|how| Some((how.table.as_ref()?, &how.label_names)));
        let read = |path: &Path| match trained {
            Some((columns, _)) => TableFile::of_columns(path, columns),
            None => TableFile::of_all_columns(path, options.label.as_deref()),
        };
        // By the number of the part.
        let mut texts = [None, None, None];
        if path.is_dir() {
            let is_needed = |part: &str| part == "train" && trained.is_none();
            for (text, part) in texts.iter_mut().zip(["train", "test", "val"]) {
                let path = path.join(format!("{part}.{ending}"));
                *text = (is_needed(part) || path.exists()).then(|| read(&path)).transpose()?;
            }
        } else {
            let part = if trained.is_some() && options.whole_is_test { Part::Test } else { Part::Train };
            texts[part as usize] = Some(read(path)?);
        }
        match trained {
            Some((columns, classes)) => Table::of(path, texts, columns.clone(), classes.clone()),
            None => {
                let (columns, classes) = fitted(&texts, options)?;
                Table::of(path, texts, columns, classes)
            }
        }
    }

    fn of(
        path: &Path,
        texts: [Option<TableFile>; 3],
        columns: TableColumns,
        classes: Vec<String>,
    ) -> Result<Self, DataError> {
        let mut table =
            Table { header: Vec::new(), columns, classes, parts: Default::default(), path: path.into() };
        let known: Vec<String> = table.classes.iter().map(|class| composed(class)).collect();
        for (text, part) in texts.into_iter().zip(&mut table.parts) {
            let Some(text) = text else { continue };
            if table.header.is_empty() {
                table.header.clone_from(&text.header);
            }
            let columns = table.columns.numbers.iter().cycle();
            for (at, (number, column)) in text.numbers.iter().zip(columns).enumerate() {
                let number = column.normalized(*number).map_err(|problem| {
                    let place = text.classes[at / table.columns.numbers.len()].0;
                    DataError::Table { path: text.path.clone(), place, problem }
                })?;
                part.numbers.push(number);
            }
            for (place, class) in &text.classes {
                let label = known.iter().position(|known| known == class);
                let label = label.ok_or_else(|| DataError::Table {
                    path: text.path.clone(),
                    place: *place,
                    problem: format!("the training table has no class `{class}`"),
                })?;
                part.labels.push(label as u32);
                part.places.push(*place);
            }
        }
        Ok(table)
    }
}

impl DataSet for Table {
    type Batch = Batch;

    fn samples(&self, part: Part) -> usize {
        self.parts[part as usize].labels.len()
    }

    fn batch(&self, part: Part, indices: &[usize], _: Option<AugmentKey>) -> Result<Batch, DataError> {
        let Rows { numbers, labels, .. } = &self.parts[part as usize];
        let columns = self.columns.numbers.len();
        let row = |index: &usize| &numbers[index * columns..][..columns];
        Ok(Batch {
            images: indices.iter().flat_map(row).copied().collect(),
            labels: indices.iter().map(|&index| labels[index]).collect(),
            shape: [indices.len(), 1, 1, columns],
        })
    }

    /// Returns the fingerprint of all rows.
    fn fingerprint(&self, part: Part) -> Fingerprint {
        let (Rows { numbers, labels, .. }, mut hash) = (&self.parts[part as usize], ContentHash::new());
        self.header.iter().chain(&self.classes).for_each(|name| hash.text(name));
        hash.numbers(numbers);
        hash.numbers(labels);
        Fingerprint::of_all(labels.len(), hash)
    }

    fn label(&self, part: Part, index: usize) -> Option<u32> {
        self.parts[part as usize].labels.get(index).copied()
    }

    fn sample_name(&self, part: Part, index: usize) -> Option<String> {
        self.parts[part as usize].places.get(index).map(TablePlace::to_string)
    }

    fn preprocessing(&self) -> Option<Preprocessing> {
        let size = [1, 1, self.columns.numbers.len()];
        Some(Preprocessing {
            resize: None,
            image_size: size,
            input_size: size,
            padding: [0; 4],
            mean: Vec::new(),
            std: Vec::new(),
            num_classes: self.classes.len(),
            label_names: self.classes.clone(),
            table: Some(self.columns.clone()),
        })
    }

    fn warnings(&self) -> Vec<String> {
        let [class] = &*self.classes else { return without_validation(self).into_iter().collect() };
        let column = &self.columns.label;
        vec![one_class(&self.path, class) + &format!("; name another column than `{column}` with --label")]
    }
}

impl ImageDataSet for Table {
    fn shape(&self) -> SampleShape {
        let (width, classes) = (self.columns.numbers.len(), self.classes.len());
        SampleShape { channels: 1, height: 1, width, classes, is_text: false }
    }
}
