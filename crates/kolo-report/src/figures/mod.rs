//! Figures: axes, marks, legend, and the table of the numbers.
//!
//! All figures have the same width, at which text can be read on a phone. Colors are CSS classes: the
//! page's style sheet defines them for light and dark mode.

mod axis;
mod figure;
mod marks;
mod matrix;
mod plane;
mod table;

pub(crate) use axis::{Axis, Labels};
pub(crate) use figure::Figure;
pub(crate) use marks::{Bar, bars, dots, polyline, whisker};
pub(crate) use matrix::Matrix;
pub(crate) use table::Table;
