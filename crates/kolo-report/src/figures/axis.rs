//! Axes: map values to positions, with ticks at round numbers.

use kolo_run_folder::percentile;

use crate::units::{bytes, number, seconds};

/// Approximate number of ticks.
const TICKS: f64 = 5.0;

/// Ratio of the axis's end to the 97th percentile of a series; the few larger values are cut off.
const HEADROOM: f64 = 1.6;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Labels {
    /// Number in a unit of this size; the axis's title names the unit.
    Scaled(f64),
    /// Time with its unit.
    Seconds,
    /// Size in bytes with its unit.
    Bytes,
}

#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// Quantity and unit of the axis.
    pub(crate) title: String,
    low: f64,
    high: f64,
    is_log: bool,
    is_whole: bool,
    labels: Labels,
}

impl Axis {
    /// Creates an axis from 0 or the smallest value to the largest.
    pub(crate) fn linear(
        title: impl Into<String>,
        values: impl IntoIterator<Item = f64>,
        from_zero: bool,
    ) -> Self {
        let (mut low, mut high) = range(values).unwrap_or((0.0, 1.0));
        if from_zero {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if high - low <= 1e-9 * high.abs().max(low.abs()) {
            let apart = if high == 0.0 { 1.0 } else { 0.1 * high.abs() };
            (low, high) = (if from_zero { low } else { low - apart }, high + apart);
        }
        Axis { title: title.into(), low, high, is_log: false, is_whole: false, labels: Labels::Scaled(1.0) }
    }

    /// Creates an axis from 0 with ticks at whole numbers only.
    pub(crate) fn counts(title: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        Axis { is_whole: true, ..Axis::linear(title, values, true) }
    }

    /// Creates an axis of `count` numbered things from 0, each in the middle of its interval.
    pub(crate) fn numbers(title: impl Into<String>, count: usize) -> Self {
        let (low, high) = (-0.5, count.max(1) as f64 - 0.5);
        Axis { low, high, is_whole: true, ..Axis::linear(title, [], false) }
    }

    /// Creates an axis from 0 that cuts off a few values which are much larger than the others of their
    /// series.
    pub(crate) fn of_most(title: impl Into<String>, series: &[Vec<f64>]) -> Self {
        let high = |values: &Vec<f64>| {
            let high = percentile(values.iter().copied(), 97.0).unwrap_or(0.0) * HEADROOM;
            high.min(values.iter().copied().fold(0.0, f64::max))
        };
        Axis::linear(title, series.iter().map(high), true)
    }

    /// Creates an axis of times per step, in a suitable unit. It cuts off a few times that are much longer
    /// than the others.
    pub(crate) fn times(title: &str, values: Vec<f64>) -> Self {
        let axis = Axis::of_most("", &[values]);
        let (unit, name) = match axis.high {
            high if high < 1e-3 => (1e-6, "µs"),
            high if high < 1.0 => (1e-3, "ms"),
            _ => (1.0, "s"),
        };
        Axis { title: format!("{title}, {name}"), labels: Labels::Scaled(unit), ..axis }
    }

    /// Creates a logarithmic axis; values of 0 or less are ignored.
    pub(crate) fn logarithmic(title: &str, values: impl IntoIterator<Item = f64>, labels: Labels) -> Self {
        let (low, high) = range(values.into_iter().filter(|value| *value > 0.0)).unwrap_or((1.0, 10.0));
        Axis { title: title.into(), low: low / 1.3, high: high * 1.3, is_log: true, is_whole: false, labels }
    }

    /// Position of a value, from 0 to 1 within the axis.
    pub(crate) fn place(&self, value: f64) -> f64 {
        if self.is_log {
            return (value.max(1e-300) / self.low).ln() / (self.high / self.low).ln();
        }
        (value - self.low) / (self.high - self.low)
    }

    /// Largest value within the axis.
    pub(crate) fn high(&self) -> f64 {
        self.high
    }

    /// Returns round numbers within the axis, with their labels.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        let values = if self.is_log { self.powers() } else { self.multiples() };
        values.into_iter().map(|value| (value, self.label(value))).collect()
    }

    fn label(&self, value: f64) -> String {
        match self.labels {
            Labels::Scaled(unit) => short(value / unit),
            Labels::Seconds => seconds(value),
            Labels::Bytes => bytes(value),
        }
    }

    fn multiples(&self) -> Vec<f64> {
        let unit = if let Labels::Scaled(unit) = self.labels { unit } else { 1.0 };
        let (low, high) = (self.low / unit, self.high / unit);
        let least = if self.is_whole { 1.0 } else { 0.0 };
        let rough = f64::max((high - low) / TICKS, least);
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * power);
        let first = (low / step - 1e-9).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        (first..=last.min(first.saturating_add(20))).map(|tick| tick as f64 * step * unit).collect()
    }

    fn powers(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let factors: &[f64] = if decades < 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let every = (((last - first) as f64 / TICKS).floor() as usize).max(1);
        let powers = (first..=last).step_by(every);
        let values = powers.flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
        values.filter(|value| (self.low..=self.high).contains(value)).collect()
    }
}

fn range(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

/// Formats a number in little space.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1e9 => format!("{} G", number(value / 1e9)),
        size if size >= 1e6 => format!("{} M", number(value / 1e6)),
        size if size >= 1e4 => format!("{} k", number(value / 1e3)),
        // Rounding errors around 0.
        size if size < 1e-12 => "0".into(),
        _ => number(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_numbers_within_the_axis() {
        let axis = Axis::linear("step", [0.0, 627.0], false);
        assert_eq!(labels(&axis), ["0", "200", "400", "600"]);
        assert_eq!((axis.place(0.0), axis.place(627.0)), (0.0, 1.0));
        assert_eq!(labels(&Axis::linear("loss", [0.31, 2.29], false)), ["0.5", "1", "1.5", "2"]);
        assert_eq!(
            labels(&Axis::linear("rate", [0.0, 24_000.0], true)),
            ["0", "5,000", "10 k", "15 k", "20 k"]
        );
        assert_eq!(labels(&Axis::counts("epoch", [1.0, 2.5])), ["0", "1", "2"]);
        assert!(!labels(&Axis::linear("same", [5.0, 5.0], false)).is_empty());
        assert!(!labels(&Axis::linear("none", [], true)).is_empty());
    }

    #[test]
    fn logarithmic_ticks_are_powers() {
        let axis = Axis::logarithmic("bytes", [4096.0, 4e6], Labels::Bytes);
        assert_eq!(labels(&axis), ["10 kB", "100 kB", "1 MB"]);
        let near = Axis::logarithmic("latency", [2e-3, 9e-3], Labels::Seconds);
        assert_eq!(labels(&near), ["2 ms", "5 ms", "10 ms"]);
    }

    #[test]
    fn a_few_long_times_stand_out_of_the_axis() {
        let mut times = vec![0.010; 99];
        times.push(3.0);
        let axis = Axis::times("a step", times);
        assert!(axis.high() < 0.02 && axis.title == "a step, ms", "{axis:?}");
        assert_eq!(labels(&axis).last().map(String::as_str), Some("15"));
    }
}
