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
    /// Returns a number of this column as the model takes it.
    pub(crate) fn normalized(&self, number: f64) -> f32 {
        ((number - self.mean) / self.std) as f32
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
        number.ok_or_else(|| D::Error::custom(format!("`{text}` is no number")))
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
