//! A plot of bus bandwidth against bytes, both on logarithmic axes, with one line for each algorithm.

use std::collections::BTreeMap;
use std::path::Path;

use kolo::Failure;
use plotters::prelude::*;

use super::report::Report;

const SIZE: (u32, u32) = (900, 560);

/// Distinct colors, also for readers who do not see red and green.
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 240),
    RGBColor(90, 90, 90),
];

pub(super) fn draw(report: &Report, file: &Path) -> Result<(), Failure> {
    let fail = |cause: &dyn std::fmt::Display| Failure::work(format!("--plot {}: {cause}", file.display()));
    let mut lines: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    let forced = report.algorithms().count() > 1;
    for (algorithm, bytes, busbw) in report.points() {
        let name = if forced { algorithm } else { "busbw" };
        lines.entry(name).or_default().push((bytes as f64, busbw));
    }
    let points = || lines.values().flatten();
    let bounds = |of: fn(&(f64, f64)) -> f64| {
        let least = points().map(of).fold(f64::INFINITY, f64::min);
        let most = points().map(of).fold(0.0, f64::max);
        if least < most { least..most } else { least / 2.0..least.max(1e-9) * 2.0 }
    };
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(|cause| fail(&cause))?;
    let Report { operation, dtype, world_size, transport, .. } = report;
    let title = format!("{operation} of {dtype}, {world_size} ranks over {transport}");
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(bounds(|point| point.0).log_scale(), bounds(|point| point.1).log_scale())
        .map_err(|cause| fail(&cause))?;
    chart
        .configure_mesh()
        .x_desc("bytes")
        .y_desc("bus bandwidth, GB/s")
        .x_label_formatter(&|bytes| size(*bytes))
        .draw()
        .map_err(|cause| fail(&cause))?;
    for ((name, points), color) in lines.iter().zip(COLORS.iter().cycle()) {
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3);
        let drawn = chart.draw_series(line).map_err(|cause| fail(&cause))?;
        drawn.label(*name).legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    if forced {
        let legend = chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw();
        legend.map_err(|cause| fail(&cause))?;
    }
    root.present().map_err(|cause| fail(&cause))
}

fn size(bytes: f64) -> String {
    match bytes {
        b if b >= 1e6 => format!("{:.0} MB", b / 1e6),
        b if b >= 1e3 => format!("{:.0} kB", b / 1e3),
        b => format!("{b:.0} B"),
    }
}
