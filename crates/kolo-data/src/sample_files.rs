//! Files of a user as samples of a trained model, preprocessed as in its evaluation.

use std::path::Path;

use crate::batch::{Batch, Normalize};
use crate::dataset::SampleShape;
use crate::decode;
use crate::error::{DataError, TablePlace};
use crate::format::sheet::Sheet;
use crate::geometry::centered;
use crate::images::Images;
use crate::preprocessing::{Preprocessing, TableColumns};

/// Place of a table's row, and the row as a sample.
pub type TableRow = (TablePlace, Result<Batch, DataError>);

/// Reads files as samples of a trained model: an image, or the rows of a table. Labels are 0.
///
/// Images of a data set of one size are made as large, from their center, and of as many channels.
#[derive(Debug)]
pub struct SampleFiles {
    how: Preprocessing,
    normalize: Normalize,
}

impl SampleFiles {
    /// Creates the reader for a model's preprocessing.
    ///
    /// # Errors
    ///
    /// The preprocessing contradicts itself; the error says how.
    pub fn new(how: Preprocessing) -> Result<Self, String> {
        how.check()?;
        if how.table.is_some() {
            return Ok(SampleFiles { how, normalize: Normalize::new(&[], &[]) });
        }
        let [channels, height, width] = how.image_size;
        if ![1, 3].contains(&channels) || how.resize.is_some_and(|side| side < height.max(width)) {
            return Err(format!("image_size {:?} cannot be made of an image file", how.image_size));
        }
        let normalize = Normalize::new(&how.mean, &how.std);
        Ok(SampleFiles { how, normalize })
    }

    /// Returns the shape of a sample and the number of classes.
    pub fn shape(&self) -> SampleShape {
        let [channels, height, width] = self.how.input_size;
        SampleShape { channels, height, width, classes: self.how.num_classes, is_text: false }
    }

    /// Returns the names of the classes by label; their numbers if they have no names.
    pub fn classes(&self) -> Vec<String> {
        match self.how.label_names.is_empty() {
            true => (0..self.how.num_classes).map(|label| label.to_string()).collect(),
            false => self.how.label_names.clone(),
        }
    }

    /// Returns the columns of the table whose rows are samples; `None` if images are.
    pub fn table(&self) -> Option<&TableColumns> {
        self.how.table.as_ref()
    }

    /// Reads an image.
    ///
    /// # Errors
    ///
    /// The file cannot be read or decoded.
    pub fn image(&self, path: &Path) -> Result<Batch, DataError> {
        let [channels, height, width] = self.how.image_size;
        let picture = decode::read(path, channels)
            .map_err(|problem| DataError::NoImage { path: path.into(), problem })?;
        let covered = self.how.resize.map_or([height, width], |side| [side, side]);
        let picture = centered(picture, covered, [height, width]);
        let plane = |channel: usize| picture.bytes[channel..].iter().step_by(channels);
        let pixels = (0..channels).flat_map(plane).copied().collect();
        let image = Images { channels, height, width, pixels, labels: vec![0] };
        let [channels, height, width] = self.how.input_size;
        Ok(image.spread(channels, height.min(width)).batch(&[0], &self.normalize, None))
    }

    /// Reads the rows of a table, each with its place. The columns may be in any order, and others beside them.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a column is missing. A row has an error of its own.
    pub fn rows(&self, path: &Path) -> Result<Vec<TableRow>, DataError> {
        let sheet = Sheet::read(path)?;
        let columns = self.how.table.iter().flat_map(|table| &table.numbers);
        let columns = columns.map(|column| Ok((sheet.column(&column.name)?, column)));
        let columns = columns.collect::<Result<Vec<_>, DataError>>()?;
        let shape = [1, 1, 1, columns.len()];
        let rows = sheet.some_rows()?.iter().map(|row| {
            let numbers = columns.iter().map(|(at, column)| {
                let number = column.normalized(sheet.number(row, *at)?);
                number.map_err(|problem| sheet.wrong(row.0, problem))
            });
            let numbers = numbers.collect::<Result<Vec<f32>, DataError>>();
            (row.0, numbers.map(|images| Batch { images, labels: vec![0], shape }))
        });
        Ok(rows.collect())
    }
}
