//! Coordinates of all figures, in units in which a letter is 13 high.

use super::axis::Axis;

pub(super) const WIDTH: f64 = 480.0;
pub(super) const HEIGHT: f64 = 270.0;
/// Left and upper ends of the axes.
pub(super) const LEFT: f64 = 66.0;
pub(super) const TOP: f64 = 30.0;
/// Right and lower ends of the axes; half a tick's label fits beyond the right one.
pub(super) const RIGHT: f64 = WIDTH - 26.0;
pub(super) const BOTTOM: f64 = HEIGHT - 46.0;

pub(super) const SERIES: usize = 8;

/// Position of a value from the left of the figure.
pub(super) fn x_of(axis: &Axis, value: f64) -> f64 {
    LEFT + (RIGHT - LEFT) * axis.place(value)
}

/// Position of a value from the top of the figure, limited to the ends of the axis.
pub(super) fn y_of(axis: &Axis, value: f64) -> f64 {
    TOP + (BOTTOM - TOP) * (1.0 - axis.place(value).clamp(0.0, 1.0))
}
