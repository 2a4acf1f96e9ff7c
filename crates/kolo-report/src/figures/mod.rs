//! Pictures: axes, marks, and a picture with its legend and the table of its numbers.
//!
//! All of them have the same width, in which letters can be read on a phone. Colours are classes: the page's
//! style sheet decides them, by day and by night.

mod axis;
mod figure;
mod marks;
mod plane;
mod table;

pub(crate) use axis::{Axis, Words};
pub(crate) use figure::Figure;
pub(crate) use marks::{Bar, bars, dots, polyline, whisker};
pub(crate) use table::Table;
