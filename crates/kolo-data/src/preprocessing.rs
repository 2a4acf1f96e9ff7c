//! The preprocessing of an image, in numbers that a file can hold: every other program that uses the
//! trained model has to repeat it.

use serde::{Deserialize, Serialize};

/// Preprocessing of the images of a data set, in this order. An image that lacks channels repeats its
/// first one, black margins are added, and bytes become numbers from 0 to 1. From each channel the mean is
/// subtracted, and the result is divided by the standard deviation.
///
/// A row of a [`table`](Preprocessing::table) is an image of one row without channels' means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preprocessing {
    /// Length to which the shorter side of an image is resized at first (bilinear, antialiased), before the
    /// center of `image_size` is cut out; `None` if all images have that size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<usize>,
    /// Channels, rows and columns of an image in the data set.
    pub image_size: [usize; 3],
    /// Channels, rows and columns of an image as input of the model.
    pub input_size: [usize; 3],
    /// Black pixels added at the left, the top, the right and the bottom (the order of torchvision's `Pad`).
    pub padding: [usize; 4],
    /// Mean of each channel over the training images, margins included; a pixel is a number from 0 to 1.
    pub mean: Vec<f32>,
    /// Standard deviation of each channel over the same pixels.
    pub std: Vec<f32>,
    /// Number of classes.
    pub num_classes: usize,
    /// Names of the classes by label; empty if they are not known.
    pub label_names: Vec<String>,
    /// Columns of a table; `None` for images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableColumns>,
}

/// Most pixels of a model's input.
const MOST_PIXELS: usize = 1 << 26;

impl Preprocessing {
    /// Returns the noun for a sample: `image`, or `row` of a table.
    pub fn noun(&self) -> &'static str {
        if self.table.is_some() { "row" } else { "image" }
    }

    /// Checks values that may come from an edited file.
    ///
    /// # Errors
    ///
    /// A field contradicts another, or gives no numbers; the error names it.
    pub fn check(&self) -> Result<(), String> {
        let sizes = [self.image_size, self.input_size];
        let is_size = |size: [usize; 3]| {
            let pixels = size.iter().try_fold(1_usize, |all, length| all.checked_mul(*length));
            pixels.is_some_and(|pixels| (1..=MOST_PIXELS).contains(&pixels))
        };
        if !sizes.into_iter().all(is_size) || self.resize.is_some_and(|side| !is_size([1, side, side])) {
            return Err(format!("image_size {:?} or input_size {:?} is no size", sizes[0], sizes[1]));
        }
        let names = self.label_names.len();
        if self.num_classes == 0 || names > 0 && names != self.num_classes {
            return Err(format!("num_classes is {}, and label_names has {names}", self.num_classes));
        }
        if self.label_names.iter().any(|name| name.is_empty()) {
            return Err("label_names has an empty name".into());
        }
        if let Some(name) = twice(&self.label_names) {
            return Err(format!("label_names has `{name}` twice"));
        }
        if let Some(table) = &self.table {
            if self.input_size != [1, 1, table.numbers.len()] {
                return Err("input_size is not the number of columns".into());
            }
            let names = table.numbers.iter().map(|column| &column.name).chain([&table.label]);
            if let Some(name) = twice(names) {
                return Err(format!("table has the column `{name}` twice"));
            }
            return table.numbers.iter().try_for_each(NumberColumn::check);
        }
        if self.mean.len() != self.input_size[0] || self.std.len() != self.input_size[0] {
            return Err("mean and std are not those of each channel".into());
        }
        if let Some(mean) = self.mean.iter().find(|mean| !mean.is_finite()) {
            return Err(format!("mean is {mean}, which is not finite"));
        }
        self.std.iter().try_for_each(|std| check_std("std", f64::from(*std)))
    }
}

fn check_std(field: &str, std: f64) -> Result<(), String> {
    match std > 0.0 && std.is_finite() {
        true => Ok(()),
        false => Err(format!("{field} is {std}, which is not a finite number above 0")),
    }
}

/// Returns the first name that an earlier one equals.
fn twice<'a>(names: impl IntoIterator<Item = &'a String>) -> Option<&'a String> {
    let mut known = std::collections::BTreeSet::new();
    names.into_iter().find(|name| !known.insert(*name))
}

/// Columns of a table, and what becomes of their numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableColumns {
    /// Columns of numbers, in the order in which the model takes them.
    pub numbers: Vec<NumberColumn>,
    /// Name of the column with the classes.
    pub label: String,
}

/// A column of numbers. From each number the mean is subtracted, and the result is divided by the standard
/// deviation, in double precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NumberColumn {
    /// Name in the header.
    pub name: String,
    /// Mean over the training rows. A file has it as text, because JSON readers round the last digit.
    #[serde(with = "as_text")]
    pub mean: f64,
    /// Standard deviation over the training rows, also as text.
    #[serde(with = "as_text")]
    pub std: f64,
}

impl NumberColumn {
    /// Returns a number of this column as the model takes it. Errors: it is too far from the mean for single
    /// precision.
    pub(crate) fn normalized(&self, number: f64) -> Result<f32, String> {
        let normalized = ((number - self.mean) / self.std) as f32;
        match normalized.is_finite() {
            true => Ok(normalized),
            false => Err(format!(
                "a number in column `{}` is too far from the training rows' mean for single precision",
                self.name
            )),
        }
    }

    fn check(&self) -> Result<(), String> {
        let NumberColumn { name, mean, std } = self;
        check_std(&format!("std of column `{name}`"), *std)?;
        match (*mean as f32).is_finite() {
            true => Ok(()),
            false => {
                Err(format!("mean of column `{name}` is {mean:e}, which is too large for single precision"))
            }
        }
    }
}

/// Numbers as text, which keeps all digits.
mod as_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| D::Error::custom(format!("`{text}` is not a number")))
    }
}

/// Returns the margins that bring `size` to `padded` (both: rows, columns), in the order of
/// [`Preprocessing::padding`]. If they cannot be equal, the right and the bottom margin are one pixel larger.
pub(crate) fn margins(size: [usize; 2], padded: [usize; 2]) -> [usize; 4] {
    let [rows, columns] = [0, 1].map(|axis| padded[axis].saturating_sub(size[axis]));
    let (top, left) = (rows / 2, columns / 2);
    [left, top, columns - left, rows - top]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_are_left_top_right_bottom() {
        assert_eq!(margins([28, 28], [32, 32]), [2, 2, 2, 2]);
        assert_eq!(margins([28, 30], [33, 30]), [0, 2, 0, 3]);
        assert_eq!(margins([40, 31], [32, 32]), [0, 0, 1, 0]);
    }
}
