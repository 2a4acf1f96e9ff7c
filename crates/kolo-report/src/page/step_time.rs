//! Parts of a step's time, and hidden communication.

use kolo_run_folder::Run;

use super::section::{Ids, Section, beyond_top, gallery, paragraph, titled};
use crate::analysis::{Column, columns};
use crate::figures::{Axis, Bar, Figure, Table, bars};
use crate::html::Html;
use crate::units::{percent, seconds};

/// Maximum number of columns of a figure.
const MOST: usize = 240;

/// A part of a stacked column: its color, its name, and its seconds. Adjacent colors differ also for
/// readers who cannot tell red from green.
type Part = (usize, &'static str, fn(&Column) -> f64);

const COMPUTE: Part = (0, "computing and all else", |column| column.compute);
const FORWARD: Part = (0, "forward pass, data and all else", |column| {
    (column.compute - column.backward - column.optimizer).max(0.0)
});
const BACKWARD: Part = (3, "backward pass", |column| column.backward);
const OPTIMIZER: Part = (6, "optimizer", |column| column.optimizer);
const WIRE_WAIT: Part = (1, "waiting, buckets on the wire", |column| column.wire_wait);
const RANK_WAIT: Part = (2, "waiting for other ranks, nothing on the wire", |column| column.rank_wait);
const HIDDEN: Part = (5, "hidden communication", |column| column.hidden);

pub(super) fn section(runs: &[&Run], ids: &mut Ids) -> Section {
    let mut figures = Vec::new();
    for run in runs.iter().filter(|run| !run.steps.is_empty()) {
        let columns = columns(&run.steps, MOST);
        let of = |title, parts: &[Part]| stacked(&titled(&run.name, runs.len(), title), &columns, parts);
        // Runs of the first versions have no such columns.
        let is_split = columns.iter().any(|column| column.backward > 0.0);
        let computing: &[Part] = if is_split { &[FORWARD, BACKWARD, OPTIMIZER] } else { &[COMPUTE] };
        figures.push(of("Time of a step", &[computing, &[WIRE_WAIT, RANK_WAIT]].concat()));
        figures.push(of("Communication, hidden and waited for", &[HIDDEN, WIRE_WAIT, RANK_WAIT]));
    }
    let mut body = Html::default();
    if figures.is_empty() {
        body.push(paragraph("No step is written yet."));
    }
    body.push(gallery(figures.into_iter().map(|figure| figure.html(&ids.next())).collect::<Vec<_>>()));
    Section { id: "time", title: "Where the time goes", body }
}

fn stacked(title: &str, columns: &[Column], parts: &[Part]) -> Figure {
    let values = |column: &Column| parts.iter().map(|(_, _, value)| value(column)).collect::<Vec<f64>>();
    let all: Vec<Bar> = columns
        .iter()
        .map(|column| Bar { from: column.first as f64, to: column.last as f64 + 1.0, parts: values(column) })
        .collect();
    let heights: Vec<f64> = all.iter().map(|bar| bar.parts.iter().sum()).collect();
    let ends = all.first().map(|bar| bar.from).into_iter().chain(all.last().map(|bar| bar.to));
    let (x, y) = (Axis::linear("step", ends, false), Axis::times("mean of a step", heights.clone()));
    let colors: Vec<usize> = parts.iter().map(|(color, _, _)| *color).collect();
    let names = parts.iter().map(|(_, name, _)| *name);
    let mut table = Table::new(title, std::iter::once("steps").chain(names.clone()));
    for column in columns {
        table.add(std::iter::once(column.name()).chain(values(column).into_iter().map(seconds)));
    }
    Figure {
        title: title.into(),
        about: about(columns, parts),
        marks: bars(&x, &y, &all, &colors),
        legend: colors.into_iter().zip(names.map(String::from)).collect(),
        note: beyond_top("column", &heights, y.high(), seconds),
        x,
        y,
        table,
    }
}

/// Describes the share of each part.
fn about(columns: &[Column], parts: &[Part]) -> String {
    let total = |value: &dyn Fn(&Column) -> f64| columns.iter().map(value).sum::<f64>();
    let whole: f64 = parts.iter().map(|(_, _, value)| total(value)).sum();
    let share = |(_, name, value): &Part| format!("{name} {}", percent(total(value) / whole.max(1e-12)));
    format!("Stacked columns over steps: {}.", parts.iter().map(share).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_run_that_has_not_measured_its_passes_has_computed() {
        let mut run = example::run(200);
        run.steps.iter_mut().for_each(|step| (step.backward_seconds, step.optimizer_seconds) = (0.0, 0.0));
        let text = section(&[&run], &mut Ids::default()).html().into_string();
        assert!(text.contains("computing and all else") && !text.contains("backward pass"), "{text}");
    }

    #[test]
    fn hidden_and_exposed_communication_are_separate() {
        let mut run = example::run(200);
        run.steps[0].seconds = 3.0;
        let text = section(&[&run], &mut Ids::default()).html().into_string();
        assert_eq!(text.matches("<figure>").count(), 2);
        for part in [
            "hidden communication 83.3 %, waiting, buckets on the wire 16.7 %",
            "forward pass, data and all else 56.4 %, backward pass 34.9 %, optimizer 6.5 %",
            "1 column goes on beyond the top, the largest up to 3 s.",
            "mean of a step, ms",
            "<th scope=\"row\">199</th>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
