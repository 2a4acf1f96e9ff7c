//! Workers over time: the generations of an elastic job.

use kolo_run_folder::{GenerationRow, Run};

use super::section::{Ids, Section, gallery, paragraph, titled};
use crate::figures::{Axis, Figure, Table, dots, polyline};
use crate::html::Html;
use crate::units::{count, plural, seconds};

pub(super) fn section(runs: &[&Run], ids: &mut Ids) -> Section {
    let mut body = Html::default();
    let mut figures = Vec::new();
    for run in runs {
        match run.generations.len() {
            0 => body.push(paragraph(&titled(
                &run.name,
                runs.len(),
                "There is no generations.jsonl: the job was not elastic.",
            ))),
            1 => {
                let text = format!(
                    "One generation with {}, from the first step on.",
                    plural(run.generations[0].world_size, "worker")
                );
                body.push(paragraph(&titled(&run.name, runs.len(), &text)));
            }
            _ => figures.push(figure(run, runs.len()).html(&ids.next())),
        }
    }
    if !figures.is_empty() {
        body.push(gallery(figures));
    }
    Section { id: "generations", title: "Generations and recoveries", body }
}

fn figure(run: &Run, runs: usize) -> Figure {
    let title = titled(&run.name, runs, "Workers over steps");
    let end = run.steps.last().map_or(0, |step| step.step.saturating_add(1));
    let last = run.generations.iter().map(|row| row.first_step).max().unwrap_or(0).max(end) as f64;
    let x = Axis::linear("step", [0.0, last], true);
    let y = Axis::counts("workers", run.generations.iter().map(|row| row.world_size as f64 + 0.5));
    let mut line = Vec::new();
    for (index, row) in run.generations.iter().enumerate() {
        let next = run.generations.get(index + 1).map_or(last, |next| next.first_step as f64);
        let workers = Some(row.world_size as f64);
        line.extend([(row.first_step as f64, workers), (next, workers)]);
    }
    let mut marks = polyline(&x, &y, &line, 0);
    let points =
        run.generations.iter().map(|row| (row.first_step as f64, row.world_size as f64, description(row)));
    marks.push(dots(&x, &y, &points.collect::<Vec<_>>(), 0));
    let about = run.generations.iter().map(description).collect::<Vec<_>>().join("; ");
    Figure {
        title: title.clone(),
        about,
        x,
        y,
        marks,
        legend: Vec::new(),
        note: None,
        table: table(&title, run),
    }
}

fn description(row: &GenerationRow) -> String {
    format!(
        "generation {} from step {}: {}, {}",
        row.generation,
        row.first_step,
        plural(row.world_size, "worker"),
        row.reason
    )
}

fn table(title: &str, run: &Run) -> Table {
    let mut table =
        Table::new(title, ["generation", "workers", "first step", "until its first step was done", "why"]);
    for row in &run.generations {
        table.add([
            row.generation.to_string(),
            count(row.world_size),
            row.first_step.to_string(),
            seconds(row.seconds_to_first_step()),
            row.reason.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn several_generations_have_a_picture() {
        let mut run = example::run(100);
        let text = |run: &Run| section(&[run], &mut Ids::default()).html().into_string();
        assert!(text(&run).contains("the job was not elastic"));
        let row = |generation: u64, world_size, reason: &str| GenerationRow {
            generation,
            world_size,
            reason: reason.into(),
            formed_unix: 10.0,
            first_step: generation * 30,
            first_step_unix: 10.5,
        };
        run.generations = vec![row(0, 2, "the job begins")];
        assert!(text(&run).contains("One generation with 2 workers"));
        run.generations.push(row(1, 1, "rank 1 died"));
        let text = text(&run);
        assert!(text.contains("<figure>") && text.contains("<td>500 ms</td><td>rank 1 died</td>"), "{text}");
    }
}
