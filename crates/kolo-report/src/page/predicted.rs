//! Predicted steps beside measured ones.

use kolo_run_folder::Run;

use super::section::{Section, paragraph};
use crate::figures::Table;
use crate::html::Html;
use crate::predicted::{Outcome, PredictedStep};
use crate::units::{count, percent, seconds};

/// Returns `None` if there are no predictions.
pub(super) fn section(runs: &[&Run], predicted: &[PredictedStep]) -> Option<Section> {
    if predicted.is_empty() {
        return None;
    }
    let columns =
        ["run", "workers", "step, predicted", "measured", "error", "waiting, predicted", "measured"];
    let mut table = Table::new("Predicted and measured", columns);
    let mut body = Html::default();
    for run in runs {
        match Outcome::of(run, predicted) {
            Some(outcome) => table.add(row(run, &outcome)),
            None => body.push(paragraph(&format!("{}: {}", run.name, why_not(run, predicted)))),
        }
    }
    if !table.rows.is_empty() {
        body.push(table.html());
        body.push(paragraph("Medians of rank 0's steps. Waiting is what of a step waits for communication."));
    }
    Some(Section { id: "predicted", title: "Predicted and measured", body })
}

fn row(run: &Run, outcome: &Outcome) -> [String; 7] {
    let Outcome { predicted, seconds: step, exposed } = *outcome;
    let error = outcome.error();
    let sign = if error < 0.0 { "−" } else { "+" };
    [
        run.name.clone(),
        count(predicted.workers),
        seconds(predicted.seconds),
        seconds(step),
        format!("{sign}{}", percent(error.abs())),
        seconds(predicted.exposed),
        seconds(exposed),
    ]
}

fn why_not(run: &Run, predicted: &[PredictedStep]) -> String {
    match run.world_size() {
        Some(workers) if predicted.iter().any(|step| step.workers == workers) => {
            "it has too few steps to be compared.".into()
        }
        Some(workers) => format!(
            "nothing was predicted for {workers} workers; give --workers {workers} to kolo plan step."
        ),
        None => "it is not known how many workers it has.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn predictions_stand_beside_measurements() {
        let step = |workers| PredictedStep { workers, seconds: 0.0248, exposed: 0.0005 };
        let text = |predicted: &[PredictedStep]| {
            section(&[&example::run(100)], predicted).unwrap().html().into_string()
        };
        let cells = "<td>2</td><td>24.8 ms</td><td>31 ms</td><td>−20 %</td><td>500 µs</td><td>1 ms</td>";
        assert!(text(&[step(1), step(2)]).contains(cells), "{}", text(&[step(1), step(2)]));
        assert!(text(&[step(4)]).contains("0001: nothing was predicted for 2 workers; give --workers 2"));
        assert!(section(&[&example::run(100)], &[]).is_none());
    }
}
