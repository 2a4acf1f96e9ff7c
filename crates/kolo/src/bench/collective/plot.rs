//! A plot of bus bandwidth against bytes, both on logarithmic axes, with one line for each algorithm.

use std::collections::BTreeMap;
use std::path::Path;

use kolo::Failure;
use kolo_comm::schedule::words::counted;
use kolo_program::chart::{Axis, COLORS, Chart, Line};

use super::report::Report;

pub(super) fn draw(report: &Report, file: &Path) -> Result<(), Failure> {
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
    let axis = |name, range, label| Axis { name, range, is_logarithmic: true, label };
    let Report { operation, dtype, world_size, transport, .. } = report;
    let line = |((name, points), color): ((&&str, &Vec<(f64, f64)>), &_)| Line {
        name: name.to_string(),
        points: points.clone(),
        color: *color,
    };
    let chart = Chart {
        title: format!("{operation} of {dtype}, {} over {transport}", counted(*world_size, "rank")),
        x: axis("bytes", bounds(|point| point.0), Some(size)),
        y: axis("bus bandwidth, GB/s", bounds(|point| point.1), None),
        lines: lines.iter().zip(COLORS.iter().cycle()).map(line).collect(),
        point_size: 3,
        has_legend: forced,
    };
    chart.write(file).map_err(|cause| Failure::work(format!("--plot {}: {cause}", file.display())))
}

fn size(bytes: &f64) -> String {
    match *bytes {
        b if b >= 1e6 => format!("{:.0} MB", b / 1e6),
        b if b >= 1e3 => format!("{:.0} kB", b / 1e3),
        b => format!("{b:.0} B"),
    }
}
