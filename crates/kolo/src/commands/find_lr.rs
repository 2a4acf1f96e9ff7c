//! `kolo train --find-lr`: the files and the words of a learning-rate range test.

use std::path::Path;
use std::time::SystemTime;

use kolo::Failure;
use kolo_burn_train::{LogFormat, RangeCurve, RangeTest};
use kolo_program::chart::{Axis, COLORS, Chart, Line};
use kolo_program::output::say;
use kolo_run_folder::{RANGE_PICTURE, RANGE_TABLE, unix_seconds};

/// Fewest steps of a test: fewer leave more than a factor of 7 between two rates.
const LEAST_STEPS: u64 = 10;

/// Writes the curve of a range test into the run folder, and prints the suggested rate: on the worker that
/// has the losses.
pub(super) fn show(test: &RangeTest, folder: &Path, format: LogFormat) -> Result<(), Failure> {
    let Some(curve) = test.curve()? else { return Ok(()) };
    if curve.points.is_empty() {
        return Err(Failure::work("--find-lr: the first loss is not finite; look at the data and the model"));
    }
    let fail =
        |path: &Path, cause: &dyn std::fmt::Display| Failure::work(format!("{}: {cause}", path.display()));
    let (table, picture) = (folder.join(RANGE_TABLE), folder.join(RANGE_PICTURE));
    kolo_durable::replace(&table, curve.csv().as_bytes()).map_err(|error| fail(&table, &error))?;
    let drawn = draw(&curve).map_err(|cause| fail(&picture, &cause))?;
    kolo_durable::replace(&picture, drawn.as_bytes()).map_err(|error| fail(&picture, &error))?;
    match format {
        LogFormat::Text => {
            say!("{}\npicture: {}, table: {}", curve.words(), picture.display(), table.display())
        }
        LogFormat::Json => say!("{}", event(&curve, &picture, &table)),
    }
    Ok(())
}

/// Returns the result as a line of `--log-format json`.
fn event(curve: &RangeCurve, picture: &Path, table: &Path) -> serde_json::Value {
    serde_json::json!({
        "time_unix": unix_seconds(SystemTime::now()),
        "event": "range_test",
        "suggested_lr": curve.suggestion().filter(|_| !curve.is_mostly_skipped()),
        "steps": curve.points.len(),
        "skipped": curve.skipped,
        "picture": picture.display().to_string(),
        "table": table.display().to_string(),
    })
}

/// Parses the number of steps of a test.
pub(super) fn steps(text: &str) -> Result<u64, String> {
    let steps = text.parse().ok().filter(|steps| *steps >= LEAST_STEPS);
    steps.ok_or_else(|| format!("a range test takes a number of steps, at least {LEAST_STEPS}"))
}

/// Draws the smoothed loss over the learning rate, on a logarithmic axis.
fn draw(curve: &RangeCurve) -> Result<String, String> {
    let points: Vec<(f64, f64)> = curve.points.iter().map(|point| (point.rate, point.smoothed)).collect();
    let least = points.iter().map(|(_, loss)| *loss).fold(f64::INFINITY, f64::min);
    let most = points.iter().map(|(_, loss)| *loss).fold(f64::NEG_INFINITY, f64::max);
    let room = (0.05 * (most - least)).max(1e-3 * most.abs()).max(1e-9);
    let losses = least - room..most + room;
    let first = points.first().map_or(1e-7, |(rate, _)| *rate);
    let last = points.last().map_or(1.0, |(rate, _)| *rate).max(2.0 * first);
    let suggested = curve.suggestion().map(|rate| Line {
        name: format!("suggested: {rate:.1e}"),
        points: vec![(rate, losses.start), (rate, losses.end)],
        color: COLORS[1],
    });
    let smoothed = Line { name: "smoothed loss".into(), points, color: COLORS[0] };
    let chart = Chart {
        title: "Learning-rate range test".into(),
        x: Axis {
            name: "learning rate",
            range: first..last,
            is_logarithmic: true,
            label: Some(|rate| format!("{rate:.0e}")),
        },
        y: Axis { name: "smoothed loss", range: losses, is_logarithmic: false, label: None },
        lines: std::iter::once(smoothed).chain(suggested).collect(),
        point_size: 0,
        has_legend: true,
    };
    chart.svg()
}
