//! A plot of the speedup by number of workers.

use std::path::Path;

use kolo_plan::step::Outlook;
use kolo_program::chart::{Axis, COLORS, Chart, Line};

use kolo::Failure;

/// Draws the speedup by workers on logarithmic axes, beside the ideal one.
pub(super) fn draw(rows: &[Outlook], file: &Path) -> Result<(), Failure> {
    let mut points: Vec<(f64, f64)> =
        rows.iter().map(|row| (row.prediction.workers as f64, row.speedup)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let most = points.iter().map(|point| point.0).fold(2.0, f64::max);
    let least = points.iter().map(|point| point.0.min(point.1)).fold(1.0, f64::min);
    let axis = |name, range| Axis { name, range, is_logarithmic: true, label: None };
    let line = |name: &str, points, color| Line { name: name.into(), points, color };
    let ideal = vec![(1.0, 1.0), (most, most)];
    let chart = Chart {
        title: "Samples a second on more workers, by those of one".into(),
        x: axis("workers", 1.0..most),
        y: axis("times one worker", least..most),
        lines: vec![
            line("no time for communication", ideal, COLORS[7]),
            line("predicted", points, COLORS[0]),
        ],
        point_size: 3,
        has_legend: true,
    };
    chart.write(file).map_err(|cause| Failure::work(format!("--plot {}: {cause}", file.display())))
}
