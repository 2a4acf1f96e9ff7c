//! Robust regression.

use kolo_run_folder::median;

/// A line y = at_zero + slope · x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) at_zero: f64,
    pub(crate) slope: f64,
}

/// Maximum number of points; the number of pairs is half its square.
const MOST_POINTS: usize = 400;

/// Minimum ratio between two x; closer points do not determine the slope.
const APART: f64 = 1.5;

/// Returns the line whose slope is the median of the slopes of all pairs (Theil 1950, Sen 1968), which a
/// few outliers do not move. `None` if all x are about the same.
pub(crate) fn line_through(points: &[(f64, f64)]) -> Option<Line> {
    let step = points.len().div_ceil(MOST_POINTS).max(1);
    let points: Vec<(f64, f64)> = points.iter().step_by(step).copied().collect();
    let mut slopes = Vec::new();
    for (index, (x, y)) in points.iter().enumerate() {
        for (other_x, other_y) in &points[index + 1..] {
            if x.max(*other_x) >= APART * x.min(*other_x) && x != other_x {
                slopes.push((other_y - y) / (other_x - x));
            }
        }
    }
    let slope = median(slopes)?;
    let at_zero = median(points.iter().map(|(x, y)| y - slope * x))?;
    Some(Line { at_zero, slope })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_point_aside_does_not_move_the_line() {
        let mut points: Vec<(f64, f64)> = (1..9).map(|x| (f64::from(x), 3.0 + 2.0 * f64::from(x))).collect();
        points.push((1.0, 1000.0));
        let line = line_through(&points).unwrap();
        assert!((line.slope - 2.0).abs() < 1e-9 && (line.at_zero - 3.0).abs() < 1e-9, "{line:?}");
        assert_eq!(line_through(&[(8.0, 1.0), (9.0, 2.0)]), None);
    }
}
