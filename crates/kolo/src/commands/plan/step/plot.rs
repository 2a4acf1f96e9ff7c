//! A plot of the speedup by number of workers.

use std::path::Path;

use kolo_plan::step::Outlook;
use plotters::prelude::*;

use kolo::Failure;

const SIZE: (u32, u32) = (900, 560);
const STEP: RGBColor = RGBColor(0, 114, 178);
const ALONE: RGBColor = RGBColor(90, 90, 90);

/// Draws the speedup by workers on logarithmic axes, beside the ideal one.
pub(super) fn draw(rows: &[Outlook], file: &Path) -> Result<(), Failure> {
    let fail = |cause: &dyn std::fmt::Display| Failure::work(format!("--plot {}: {cause}", file.display()));
    let mut points: Vec<(f64, f64)> =
        rows.iter().map(|row| (row.prediction.workers as f64, row.speedup)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let most = points.iter().map(|point| point.0).fold(2.0, f64::max);
    let least = points.iter().map(|point| point.0.min(point.1)).fold(1.0, f64::min);
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(|cause| fail(&cause))?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Samples a second on more workers, by those of one", ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((1.0..most).log_scale(), (least..most).log_scale())
        .map_err(|cause| fail(&cause))?;
    let mesh = &mut chart.configure_mesh();
    mesh.x_desc("workers").y_desc("times one worker").draw().map_err(|cause| fail(&cause))?;
    for (name, points, color) in
        [("no time for communication", vec![(1.0, 1.0), (most, most)], ALONE), ("predicted", points, STEP)]
    {
        let line = LineSeries::new(points, color.stroke_width(2)).point_size(3);
        let drawn = chart.draw_series(line).map_err(|cause| fail(&cause))?;
        drawn
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    let labels = &mut chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE).border_style(BLACK);
    labels.draw().map_err(|cause| fail(&cause))?;
    root.present().map_err(|cause| fail(&cause))
}
