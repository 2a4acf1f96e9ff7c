//! The plane of all pictures: where values stand on it, in units in which a letter is 13 high.

use super::axis::Axis;

pub(super) const WIDTH: f64 = 480.0;
pub(super) const HEIGHT: f64 = 270.0;
/// Where the axes begin.
pub(super) const LEFT: f64 = 66.0;
pub(super) const TOP: f64 = 30.0;
/// Where they end: half a tick's words have room beyond it.
pub(super) const RIGHT: f64 = WIDTH - 26.0;
pub(super) const BOTTOM: f64 = HEIGHT - 46.0;

/// Colours that there are.
pub(super) const SERIES: usize = 8;

/// Where a value stands in the picture, from its left.
pub(super) fn x_of(axis: &Axis, value: f64) -> f64 {
    LEFT + (RIGHT - LEFT) * axis.place(value)
}

/// Where a value stands in the picture, from its top. What the axis has no room for stands at its end.
pub(super) fn y_of(axis: &Axis, value: f64) -> f64 {
    TOP + (BOTTOM - TOP) * (1.0 - axis.place(value).clamp(0.0, 1.0))
}
