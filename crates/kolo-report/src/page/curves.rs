//! Loss, test metrics, throughput and learning rate, all runs in one figure each.

use kolo_run_folder::Run;

use super::section::{Ids, Section, beyond_top, gallery, paragraph};
use crate::analysis::{Column, columns};
use crate::figures::{Axis, Figure, Table, dots, polyline};
use crate::html::Html;
use crate::units::number;

/// Maximum number of points of a curve.
const MOST: usize = 300;

/// Definition of a figure over the steps of each run.
struct Curve<'a> {
    title: &'a str,
    unit: String,
    axis: fn(String, &[Vec<f64>]) -> Axis,
    value: fn(&Column) -> Option<f64>,
}

pub(super) fn section(runs: &[&Run], ids: &mut Ids) -> Section {
    let all: Vec<(&str, Vec<Column>)> =
        runs.iter().map(|run| (run.name.as_str(), columns(&run.steps, MOST))).collect();
    let mut body = Html::default();
    if all.iter().all(|(_, columns)| columns.is_empty()) {
        body.push(paragraph("No step is written yet."));
        return Section { id: "curves", title: "Curves", body };
    }
    let unit =
        runs.first().map(|run| run.unit.as_str()).filter(|unit| runs.iter().all(|run| run.unit == *unit));
    let unit = unit.unwrap_or("samples");
    let curves = [
        Curve {
            title: "Loss",
            unit: "mean loss".into(),
            axis: |title, runs| Axis::linear(title, runs.concat(), false),
            value: |column| column.loss,
        },
        Curve {
            title: "Throughput",
            unit: format!("{unit}/s"),
            axis: |title, runs| Axis::of_most(title, runs),
            value: |column| Some(column.samples_per_second),
        },
        Curve {
            title: "Learning rate",
            unit: "learning rate".into(),
            axis: |title, runs| Axis::linear(title, runs.concat(), true),
            value: |column| Some(column.learning_rate),
        },
    ];
    let [loss, rest @ ..] = curves.map(|curve| over_steps(&curve, &all));
    let figures = std::iter::once(loss).chain(scores(runs)).chain(rest);
    body.push(gallery(figures.map(|figure| figure.html(&ids.next())).collect::<Vec<_>>()));
    Section { id: "curves", title: "Curves", body }
}

fn over_steps(curve: &Curve<'_>, runs: &[(&str, Vec<Column>)]) -> Figure {
    let points = |columns: &[Column]| -> Vec<(f64, Option<f64>)> {
        columns.iter().map(|column| (column.middle(), (curve.value)(column))).collect()
    };
    let values: Vec<Vec<f64>> = runs
        .iter()
        .map(|(_, columns)| columns.iter().filter_map(|column| (curve.value)(column)).collect())
        .collect();
    let x = Axis::counts("step", runs.iter().flat_map(|(_, columns)| columns).map(Column::middle));
    let y = (curve.axis)(curve.unit.clone(), &values);
    let lines =
        runs.iter().enumerate().map(|(series, (_, columns))| polyline(&x, &y, &points(columns), series));
    let mut table = Table::new(curve.title, header(runs.len(), "steps", &curve.unit));
    for (name, columns) in runs {
        for column in columns {
            let value = (curve.value)(column).map_or_else(|| "–".into(), number);
            table.rows.push(named(name, runs.len(), [column.name(), value]));
        }
    }
    Figure {
        about: about(curve.title, "steps", runs.iter().map(|(name, columns)| (*name, points(columns)))),
        title: curve.title.into(),
        marks: lines.collect(),
        legend: legend(runs.iter().map(|(name, _)| *name)),
        note: beyond_top("point", &values.concat(), y.high(), number),
        x,
        y,
        table,
    }
}

/// Returns a figure for each column with a test metric.
fn scores(runs: &[&Run]) -> Vec<Figure> {
    let mut names: Vec<&str> = Vec::new();
    for name in runs
        .iter()
        .flat_map(|run| &run.epochs.names)
        .filter(|name| name.starts_with("test_") || name.starts_with("val_"))
    {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.into_iter().map(|name| over_epochs(name, runs)).collect()
}

fn over_epochs(column: &str, runs: &[&Run]) -> Figure {
    let points = |run: &Run| -> Vec<(f64, f64)> {
        let (epochs, values) = (run.epochs.column("epoch"), run.epochs.column(column));
        let pairs = epochs.into_iter().flatten().zip(values.into_iter().flatten());
        pairs.filter_map(|(epoch, value)| Some((epoch?, value.filter(|value| value.is_finite())?))).collect()
    };
    let all: Vec<(&str, Vec<(f64, f64)>)> = runs.iter().map(|run| (run.name.as_str(), points(run))).collect();
    let title = column.replacen("test_", "Test ", 1).replacen("val_", "Validation ", 1);
    let x = Axis::counts("epoch", all.iter().flat_map(|(_, points)| points).map(|(epoch, _)| *epoch));
    let y = Axis::linear(
        title.clone(),
        all.iter().flat_map(|(_, points)| points).map(|(_, value)| *value),
        false,
    );
    let mut marks = Html::default();
    let mut table = Table::new(title.clone(), header(runs.len(), "epoch", &title));
    for (series, (name, points)) in all.iter().enumerate() {
        let line: Vec<(f64, Option<f64>)> =
            points.iter().map(|(epoch, value)| (*epoch, Some(*value))).collect();
        marks.push(polyline(&x, &y, &line, series));
        let dot = |(epoch, value): &(f64, f64)| {
            (*epoch, *value, format!("{name}, epoch {epoch}: {}", number(*value)))
        };
        marks.push(dots(&x, &y, &points.iter().map(dot).collect::<Vec<_>>(), series));
        for (epoch, value) in points {
            table.rows.push(named(name, runs.len(), [number(*epoch), number(*value)]));
        }
    }
    let series = all
        .iter()
        .map(|(name, points)| (*name, points.iter().map(|(at, value)| (*at, Some(*value))).collect()));
    let about = about(&title, "epochs", series);
    Figure { title, about, x, y, marks, legend: legend(all.iter().map(|(name, _)| *name)), note: None, table }
}

/// Describes each curve by its first and last value.
fn about<'a>(
    title: &str,
    over: &str,
    series: impl Iterator<Item = (&'a str, Vec<(f64, Option<f64>)>)>,
) -> String {
    let mut text = format!("{title} over {over}.");
    for (name, points) in series {
        let values: Vec<f64> = points.into_iter().filter_map(|(_, value)| value).collect();
        if let (Some(first), Some(last)) = (values.first(), values.last()) {
            text += &format!(" {name}: from {} to {}.", number(*first), number(*last));
        }
    }
    text
}

fn legend<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Vec<(usize, String)> {
    if names.len() < 2 {
        return Vec::new();
    }
    names.map(String::from).enumerate().collect()
}

/// Returns a row; the name of the run is its first column if there are several runs.
fn named(name: &str, runs: usize, values: [String; 2]) -> Vec<String> {
    (runs > 1).then(|| name.to_owned()).into_iter().chain(values).collect()
}

fn header(runs: usize, at: &str, value: &str) -> Vec<String> {
    named("run", runs, [at.into(), value.into()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn runs_are_laid_over_each_other() {
        let (one, mut two) = (example::run(1000), example::run(20));
        two.name = "two".into();
        let text = section(&[&one, &two], &mut Ids::default()).html().into_string();
        assert_eq!(text.matches("<figure>").count(), 4);
        assert_eq!(text.matches("class=\"line s1\"").count(), 4);
        for part in [">images/s</text>", ">Test accuracy</text>", "two: from 2.3 to"] {
            assert!(text.contains(part), "{part}");
        }
        let text = section(&[&one], &mut Ids::default()).html().into_string();
        assert!(!text.contains("class=\"legend\"") && text.contains("<th scope=\"row\">0–3</th>"));
    }
}
