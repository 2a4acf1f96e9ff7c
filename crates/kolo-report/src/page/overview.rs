//! The runs and their results, side by side.

use std::collections::BTreeSet;

use kolo_run_folder::{Run, StepRow, Summary, percentile};

use super::section::{Section, paragraph};
use crate::figures::Table;
use crate::html::Html;
use crate::units::{bytes, count, grouped, number, percent, seconds};

/// Text for a figure that a run does not have.
const NONE: &str = "–";

/// A row of the table: its name, and its value for a run.
type Row = (&'static str, fn(&Run) -> Option<String>);

/// Rows of every report.
const ROWS: &[Row] = &[
    ("state", |run| Some(state(run).into())),
    ("model", |run| run.settings.text("model")),
    ("data", |run| run.settings.text("data")),
    ("trained parameters", |run| run.summary.as_ref()?.parameters.map(grouped)),
    ("workers at the end", |run| run.world_size().map(count)),
    ("connected by", |run| run.summary.as_ref()?.transport.clone()),
    ("shards a step", |run| run.settings.text("shards")),
    ("batch of a shard", |run| run.settings.text("batch_size")),
    ("optimizer", |run| run.settings.text("optimizer.name")),
    ("steps", |run| Some(count(run.steps.len()))),
    ("training time since the last start", |run| Some(seconds(run.summary.as_ref()?.train_seconds?))),
    ("time of all steps", |run| Some(seconds(total(run, |step| step.seconds)))),
    ("step, median", |run| step_percentile(run, 50.0)),
    ("step, 95 % are shorter", |run| step_percentile(run, 95.0)),
    ("samples a second, over all steps", |run| {
        Some(format!("{} {}/s", number(samples_per_second(run)?), run.unit))
    }),
    ("waiting for communication", |run| share(run, |step| step.exposed_seconds)),
    ("hidden communication", |run| share(run, |step| step.hidden_seconds())),
    ("train loss of the last epoch", |run| last_of(run, "train_loss").map(number)),
    ("critical batch", |run| {
        let noise = run.summary.as_ref()?.others.get("noise_scale")?;
        Some(format!("{} {}", number(noise.get("critical")?.as_f64()?), run.unit))
    }),
    ("most memory of a worker since the last start", |run| run.summary.as_ref()?.peak_rss_bytes.map(bytes)),
    ("weights, SHA-256", |run| {
        Some(run.summary.as_ref()?.weights_sha256.as_ref()?.chars().take(16).collect())
    }),
];

pub(super) fn section(runs: &[&Run]) -> Section {
    let mut body = Html::default();
    let header = || std::iter::once(String::from("run")).chain(runs.iter().map(|run| run.name.clone()));
    let mut table = Table::new("What ran", header());
    for (name, value) in ROWS {
        let values: Vec<Option<String>> = runs.iter().map(|run| value(run)).collect();
        if values.iter().any(Option::is_some) {
            table.add(row(name, values));
        }
    }
    for name in scores(runs) {
        table.add(row(&name.replacen('_', " ", 1), runs.iter().map(|run| score(run, &name).map(number))));
    }
    if runs.len() > 1 {
        table.add(row("speed beside the first run", runs.iter().map(|run| speed_beside(run, runs[0]))));
    }
    body.push(table.html());
    if let Some(sentence) = same_bits(runs) {
        body.push(paragraph(&sentence));
    }
    let (differing, all) = settings(runs, header);
    if runs.len() > 1 {
        let text =
            if differing.rows.is_empty() { "All settings are the same." } else { "Settings that differ:" };
        body.push(paragraph(text));
        if !differing.rows.is_empty() {
            body.push(differing.html());
        }
    }
    body.push(all.details("All settings"));
    Section { id: "runs", title: if runs.len() > 1 { "What ran, side by side" } else { "What ran" }, body }
}

fn row(name: &str, values: impl IntoIterator<Item = Option<String>>) -> Vec<String> {
    let values = values.into_iter().map(|value| value.unwrap_or_else(|| NONE.into()));
    std::iter::once(name.to_owned()).chain(values).collect()
}

fn state(run: &Run) -> &'static str {
    match (&run.summary, run.steps.is_empty()) {
        (Some(_), _) => "complete",
        (None, false) => "not complete: it is still training, or has ended early",
        (None, true) => "no step is written yet",
    }
}

fn step_percentile(run: &Run, percent: f64) -> Option<String> {
    percentile(run.steps.iter().map(|step| step.seconds), percent).map(seconds)
}

fn total(run: &Run, value: impl Fn(&StepRow) -> f64) -> f64 {
    run.steps.iter().map(value).sum()
}

/// Samples of all workers per second of step time.
fn samples_per_second(run: &Run) -> Option<f64> {
    let time = total(run, |step| step.seconds);
    (time > 0.0).then(|| total(run, |step| step.samples) / time)
}

fn share(run: &Run, value: fn(&StepRow) -> f64) -> Option<String> {
    let time = total(run, |step| step.seconds);
    (time > 0.0).then(|| format!("{} of the time", percent(total(run, value) / time)))
}

fn last_of(run: &Run, column: &str) -> Option<f64> {
    run.epochs.column(column)?.flatten().last()
}

/// Returns the names of all metrics of validation or test samples. With validation samples, `metrics.csv` has
/// none of the test samples: only the summary has.
fn scores(runs: &[&Run]) -> BTreeSet<String> {
    let columns = runs.iter().flat_map(|run| &run.epochs.names).cloned();
    let columns = columns.filter(|name| name.starts_with("test_") || name.starts_with("val_"));
    let at_end = runs.iter().filter_map(|run| run.summary.as_ref()).flat_map(Summary::scores);
    columns.chain(at_end.map(|(name, _)| format!("test_{name}"))).collect()
}

/// Returns a metric at the end of the run, or else after its last whole epoch.
fn score(run: &Run, name: &str) -> Option<f64> {
    let at_end = || run.summary.as_ref()?.others.get(name)?.as_f64();
    at_end().or_else(|| last_of(run, name))
}

fn speed_beside(run: &Run, first: &Run) -> Option<String> {
    if run.unit != first.unit {
        return None;
    }
    let (own, first) = (samples_per_second(run)?, samples_per_second(first)?);
    (first > 0.0).then(|| format!("{} ×", number(own / first)))
}

/// Returns a sentence about whether several runs ended in the same weights.
fn same_bits(runs: &[&Run]) -> Option<String> {
    let hash = |run: &&Run| run.summary.as_ref()?.weights_sha256.clone();
    let hashes: Vec<String> = runs.iter().map(hash).collect::<Option<_>>()?;
    let first = hashes.first().filter(|_| hashes.len() > 1)?;
    let subject = if hashes.iter().all(|hash| hash == first) { "All runs have" } else { "Not all runs have" };
    Some(format!("{subject} ended in the same weights, bit for bit."))
}

/// Returns a table of the settings that differ, and one of all settings.
fn settings<H: Iterator<Item = String>>(runs: &[&Run], header: impl Fn() -> H) -> (Table, Table) {
    let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.settings.0.keys()).collect();
    let (mut differing, mut all) =
        (Table::new("Settings that differ", header()), Table::new("All settings", header()));
    for name in names {
        let values: Vec<Option<String>> = runs.iter().map(|run| run.settings.text(name)).collect();
        let row = row(name, values.clone());
        if values.iter().any(|value| *value != values[0]) {
            differing.rows.push(row.clone());
        }
        all.rows.push(row);
    }
    (differing, all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn runs_are_compared() {
        let (mut one, mut two) = (example::run(100), example::run(100));
        (one.name, two.name) = ("one".into(), "two".into());
        two.settings.0.insert("shards".into(), 4.into());
        two.steps.iter_mut().for_each(|step| step.seconds /= 2.0);
        for run in [&mut one, &mut two] {
            run.summary.as_mut().unwrap().weights_sha256 = Some("ab".into());
        }
        let text = section(&[&one, &two]).html().into_string();
        for part in [
            "<th scope=\"row\">shards</th><td>–</td><td>4</td>",
            "Settings that differ:",
            "<td>1 ×</td><td>2 ×</td>",
            "All runs have ended in the same weights",
            "<th scope=\"row\">test accuracy</th><td>0.8</td><td>0.8</td>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        two.summary.as_mut().unwrap().weights_sha256 = Some("cd".into());
        assert!(same_bits(&[&one, &two]).unwrap().starts_with("Not all"));
        assert_eq!(same_bits(&[&one]), None);
    }

    #[test]
    fn test_scores_of_a_run_with_validation_are_those_of_its_summary() {
        let mut run = example::run(100);
        run.epochs.names[2] = "val_accuracy".into();
        run.summary.as_mut().unwrap().others.insert("test_accuracy".into(), 0.75.into());
        let text = section(&[&run]).html().into_string();
        for part in ["test accuracy</th><td>0.75</td>", "val accuracy</th><td>0.8</td>"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    /// 160 steps of 64 samples, 0.5 s each, of which the last part did some in 12 s.
    #[test]
    fn figures_of_a_resumed_run_say_what_they_are_of() {
        let mut run = example::run(160);
        run.steps.iter_mut().for_each(|step| step.seconds = 0.5);
        run.summary.as_mut().unwrap().train_seconds = Some(12.0);
        let text = section(&[&run]).html().into_string();
        for part in [
            "steps</th><td>160</td>",
            "training time since the last start</th><td>12 s</td>",
            "time of all steps</th><td>80 s</td>",
            "samples a second, over all steps</th><td>128 images/s</td>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
