//! Time of each rank, and the rank that it waits for.

use kolo_run_folder::{RankTimes, Run};

use super::section::{Ids, Section, beyond_top, gallery, paragraph, titled};
use crate::analysis::rank_times;
use crate::figures::{Axis, Bar, Figure, Table, bars};
use crate::html::Html;
use crate::units::{count, plural, seconds};

/// A part of a rank's step: its color, its name, and its seconds.
type Part = (usize, &'static str, fn(&RankTimes) -> f64);

const PARTS: [Part; 4] = [
    (0, "computing and all else", |times| times.compute_seconds),
    (3, "waiting for data", |times| times.data_seconds),
    (6, "stalls", |times| times.stalled_seconds),
    (1, "waiting for communication", |times| times.exposed_seconds),
];

pub(super) fn section(runs: &[&Run], ids: &mut Ids) -> Section {
    let mut body = Html::default();
    let known: Vec<(&Run, Vec<RankTimes>)> =
        runs.iter().map(|run| (*run, rank_times(run))).filter(|(_, times)| !times.is_empty()).collect();
    if known.is_empty() {
        body.push(paragraph(
            "The ranks have not compared their times: they do so every 20 steps, where there are several.",
        ));
    } else {
        body.push(paragraph(
            "Each column is the median step of a rank on its own clock, as the ranks have told one another. \
             The rank that computes longest waits least: the others wait for it.",
        ));
    }
    let figures = known.iter().map(|(run, times)| figure(run, runs.len(), times).html(&ids.next()));
    body.push(gallery(figures.collect::<Vec<_>>()));
    Section { id: "ranks", title: "Ranks", body }
}

fn figure(run: &Run, runs: usize, times: &[RankTimes]) -> Figure {
    let title = titled(&run.name, runs, "Step of each rank");
    let bar = |(rank, times): (usize, &RankTimes)| Bar {
        from: rank as f64 - 0.5,
        to: rank as f64 + 0.5,
        parts: PARTS.iter().map(|(_, _, value)| value(times)).collect(),
    };
    let all: Vec<Bar> = times.iter().enumerate().map(bar).collect();
    let heights: Vec<f64> = all.iter().map(|bar| bar.parts.iter().sum()).collect();
    let (x, y) = (Axis::numbers("rank", times.len()), Axis::times("median step", heights.clone()));
    let colors = PARTS.map(|(color, _, _)| color);
    Figure {
        about: format!("Stacked columns of {}: {}.", plural(times.len(), "rank"), longest_busy(times)),
        marks: bars(&x, &y, &all, &colors),
        legend: PARTS.iter().map(|(color, name, _)| (*color, (*name).into())).collect(),
        note: beyond_top("column", &heights, y.high(), seconds),
        table: table(&title, times),
        title,
        x,
        y,
    }
}

/// Names the rank that is busy longest.
fn longest_busy(times: &[RankTimes]) -> String {
    let busy = |times: &RankTimes| times.busy_seconds();
    let longest = times.iter().enumerate().max_by(|a, b| busy(a.1).total_cmp(&busy(b.1)));
    longest.map_or_else(String::new, |(rank, times)| {
        format!("rank {rank} is busy longest, for {}", seconds(busy(times)))
    })
}

fn table(title: &str, times: &[RankTimes]) -> Table {
    let parts = PARTS.iter().map(|(_, name, _)| *name);
    let header = ["rank", "shards"].into_iter().chain(parts).chain(["waits most for"]);
    let mut table = Table::new(title, header);
    for (rank, times) in times.iter().enumerate() {
        let parts = PARTS.iter().map(|(_, _, value)| seconds(value(times)));
        let whom = times.waited_for.map_or_else(
            || String::from("nobody"),
            |peer| format!("rank {peer}, {}", seconds(times.waited_seconds)),
        );
        table.add([count(rank), count(times.shards)].into_iter().chain(parts).chain([whom]));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_slow_rank_stands_out() {
        let mut run = example::run(100);
        let html = |run: &Run| section(&[run], &mut Ids::default()).html().into_string();
        assert!(html(&run).contains("have not compared their times"));
        run.ranks = example::comparisons(&[(0.03, 0.0), (0.01, 0.02)]);
        let text = html(&run);
        for part in [
            "rank 0 is busy longest, for 30 ms",
            "<td>10 ms</td><td>0 s</td><td>0 s</td><td>20 ms</td><td>rank 0, 20 ms</td>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("NaN"));
    }
}
