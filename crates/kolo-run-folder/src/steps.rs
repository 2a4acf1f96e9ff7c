//! `steps.jsonl`: the duration and results of each step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::error::Error;
use crate::lines;

/// Name of the file.
pub const STEPS: &str = "steps.jsonl";

/// Names of the fixed fields of a line. The unit that the loss counts is a further field with another name.
pub const STEP_FIELDS: [&str; 15] = [
    "step", "epoch", "loss", "learning_rate", "seconds", "comm_seconds", "exposed_comm_seconds",
    "backward_seconds", "optimizer_seconds", "gradient_norm", "noise_scale", "gradient_squared",
    "noise_trace", "loss_scale", "skipped",
];

/// A step of a run. Times are rank 0's, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepRow {
    /// Number of the step, from 0.
    pub step: u64,
    /// Number of its epoch, from 0.
    pub epoch: u64,
    /// Mean loss over the global batch; `None` if it is not a number.
    pub loss: Option<f64>,
    /// Samples (or other units that the loss counts) of the global batch.
    pub samples: f64,
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// Duration of the step.
    pub seconds: f64,
    /// Time during which at least one bucket was being reduced.
    pub comm_seconds: f64,
    /// Time that the training thread waited for communication.
    pub exposed_seconds: f64,
    /// Time of the training thread's backward passes; 0 if unknown.
    pub backward_seconds: f64,
    /// Time of the training thread's parameter updates; 0 if unknown.
    pub optimizer_seconds: f64,
    /// Global norm of the gradient before clipping, if it is clipped.
    pub gradient_norm: Option<f64>,
    /// Noise of the gradient after the step, if it is measured.
    pub noise: Option<NoiseRow>,
    /// Factor by which its losses were multiplied, if they were and it is known.
    pub loss_scale: Option<f64>,
    /// True if the step changed nothing, because it overflowed.
    pub skipped: bool,
}

/// Noise of the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseRow {
    /// Noise scale in samples; `None` if the gradient cannot be distinguished from its noise.
    pub samples: Option<f64>,
    /// Estimate of the squared norm of the gradient without noise.
    pub gradient_squared: f64,
    /// Estimate of the trace of the noise's covariance, of one sample.
    pub noise_trace: f64,
}

impl StepRow {
    /// Returns the row as one line of JSON without a line break. The unit that the loss counts, such as
    /// `images`, is the name of its field.
    ///
    /// # Errors
    ///
    /// No case is known; errors of the encoder are passed on.
    pub fn json(&self, unit: &str) -> Result<String, serde_json::Error> {
        serde_json::to_string(&Line { row: self, unit })
    }

    /// Time of communication while the training thread did other work, at most the step's other work.
    /// Communication in progress at a step's end counts in that step, although the next one waits for it.
    pub fn hidden_seconds(&self) -> f64 {
        (self.comm_seconds - self.exposed_seconds).clamp(0.0, self.compute_seconds())
    }

    /// Time of waiting while a bucket was being reduced.
    pub fn wire_wait_seconds(&self) -> f64 {
        self.exposed_seconds.min(self.comm_seconds)
    }

    /// Time of waiting while no bucket was being reduced: another rank was late.
    pub fn rank_wait_seconds(&self) -> f64 {
        (self.exposed_seconds - self.comm_seconds).max(0.0)
    }

    /// Time in which the training thread did not wait for communication.
    pub fn compute_seconds(&self) -> f64 {
        (self.seconds - self.exposed_seconds).max(0.0)
    }
}

struct Line<'a> {
    row: &'a StepRow,
    unit: &'a str,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = self.row;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("step", &row.step)?;
        map.serialize_entry("epoch", &row.epoch)?;
        map.serialize_entry("loss", &row.loss)?;
        map.serialize_entry(self.unit, &(row.samples as u64))?;
        map.serialize_entry("learning_rate", &row.learning_rate)?;
        map.serialize_entry("seconds", &row.seconds)?;
        map.serialize_entry("comm_seconds", &row.comm_seconds)?;
        map.serialize_entry("exposed_comm_seconds", &row.exposed_seconds)?;
        map.serialize_entry("backward_seconds", &row.backward_seconds)?;
        map.serialize_entry("optimizer_seconds", &row.optimizer_seconds)?;
        if let Some(norm) = row.gradient_norm {
            map.serialize_entry("gradient_norm", &norm)?;
        }
        if let Some(noise) = row.noise {
            map.serialize_entry("noise_scale", &noise.samples)?;
            map.serialize_entry("gradient_squared", &noise.gradient_squared)?;
            map.serialize_entry("noise_trace", &noise.noise_trace)?;
        }
        if let Some(scale) = row.loss_scale {
            map.serialize_entry("loss_scale", &scale)?;
        }
        if row.skipped {
            map.serialize_entry("skipped", &true)?;
        }
        map.end()
    }
}

/// All steps of a run, in order.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) rows: Vec<StepRow>,
    /// Unit that the loss counts, such as `images`.
    pub(crate) unit: Option<String>,
    pub(crate) remarks: Vec<String>,
}

#[derive(Deserialize)]
struct Fields {
    step: u64,
    epoch: u64,
    loss: Option<f64>,
    learning_rate: f64,
    seconds: f64,
    comm_seconds: f64,
    exposed_comm_seconds: f64,
    #[serde(default)]
    backward_seconds: f64,
    #[serde(default)]
    optimizer_seconds: f64,
    gradient_norm: Option<f64>,
    noise_scale: Option<f64>,
    gradient_squared: Option<f64>,
    noise_trace: Option<f64>,
    loss_scale: Option<f64>,
    #[serde(default)]
    skipped: bool,
    /// The unit that the loss counts is the name of its field.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

impl Fields {
    fn noise(&self) -> Option<NoiseRow> {
        let (gradient_squared, noise_trace) = self.gradient_squared.zip(self.noise_trace)?;
        Some(NoiseRow { samples: self.noise_scale, gradient_squared, noise_trace })
    }
}

pub(crate) fn read(folder: &Path) -> Result<Steps, Error> {
    let path = folder.join(STEPS);
    let Some(lines) = lines::read::<Fields>(&path)? else {
        let remark =
            format!("There is no {STEPS}: the run has not written a step yet, or the file was removed.");
        return Ok(Steps { remarks: vec![remark], ..Steps::default() });
    };
    let mut steps = Steps::default();
    let mut rows: BTreeMap<u64, StepRow> = BTreeMap::new();
    let mut again = BTreeSet::new();
    for (number, fields) in lines.values {
        let (row, unit) = row(fields).map_err(|problem| Error::line(&path, number, problem))?;
        steps.unit = steps.unit.or(unit);
        again.extend(rows.insert(row.step, row).map(|earlier| earlier.step));
    }
    steps.rows = rows.into_values().collect();
    if steps.rows.is_empty() {
        steps.remarks.push(format!("{STEPS} is empty: the run has not written a step yet."));
    }
    if lines.is_half {
        steps.remarks.push(format!(
            "The last line of {STEPS} is half written and left out: the run still writes, or was killed while it \
             wrote."
        ));
    }
    if !again.is_empty() {
        let steps_are = if again.len() == 1 { "step is" } else { "steps are" };
        let remark = format!("{} {steps_are} in {STEPS} more than once; the last lines count.", again.len());
        steps.remarks.push(remark);
    }
    Ok(steps)
}

/// Returns the row of a line, and the unit that its loss counts.
fn row(fields: Fields) -> Result<(StepRow, Option<String>), String> {
    for (name, value) in [
        ("seconds", fields.seconds),
        ("comm_seconds", fields.comm_seconds),
        ("exposed_comm_seconds", fields.exposed_comm_seconds),
        ("backward_seconds", fields.backward_seconds),
        ("optimizer_seconds", fields.optimizer_seconds),
    ] {
        if value < 0.0 {
            return Err(format!("{name} is {value}, below 0"));
        }
    }
    let counted = fields.others.iter().find(|(_, value)| value.is_u64());
    let row = StepRow {
        step: fields.step,
        epoch: fields.epoch,
        loss: fields.loss,
        samples: counted.and_then(|(_, value)| value.as_f64()).unwrap_or(0.0),
        learning_rate: fields.learning_rate,
        seconds: fields.seconds,
        comm_seconds: fields.comm_seconds,
        exposed_seconds: fields.exposed_comm_seconds,
        backward_seconds: fields.backward_seconds,
        optimizer_seconds: fields.optimizer_seconds,
        gradient_norm: fields.gradient_norm,
        noise: fields.noise(),
        loss_scale: fields.loss_scale,
        skipped: fields.skipped,
    };
    Ok((row, counted.map(|(name, _)| name.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64, loss: &str) -> String {
        format!(
            "{{\"step\":{step},\"epoch\":0,\"loss\":{loss},\"tokens\":64,\"learning_rate\":0.1,\"seconds\":0.5,\
             \"comm_seconds\":0.2,\"exposed_comm_seconds\":0.1,\"gradient_norm\":2.0}}\n"
        )
    }

    fn read_text(text: &str) -> Result<Steps, Error> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(STEPS), text).unwrap();
        read(folder.path())
    }

    #[test]
    fn the_unit_is_found_by_its_value() {
        let steps = read_text(&(line(0, "2.5") + &line(1, "null"))).unwrap();
        assert_eq!((steps.unit.as_deref(), steps.rows.len()), (Some("tokens"), 2));
        assert_eq!((steps.rows[0].loss, steps.rows[1].loss), (Some(2.5), None));
        let row = &steps.rows[0];
        assert!((row.hidden_seconds() - 0.1).abs() < 1e-12 && (row.compute_seconds() - 0.4).abs() < 1e-12);
        assert!(steps.remarks.is_empty());
    }

    #[test]
    fn written_rows_are_read_back() {
        let noise = NoiseRow { samples: None, gradient_squared: 0.5, noise_trace: 2.0 };
        let row = StepRow {
            step: 7,
            epoch: 1,
            loss: None,
            samples: 64.0,
            learning_rate: 0.1,
            seconds: 0.5,
            comm_seconds: 0.25,
            exposed_seconds: 0.125,
            backward_seconds: 0.2,
            optimizer_seconds: 0.05,
            gradient_norm: Some(1.5),
            noise: Some(noise),
            loss_scale: Some(65536.0),
            skipped: true,
        };
        let line = row.json("images").unwrap();
        let fields: BTreeMap<String, Value> = serde_json::from_str(&line).unwrap();
        let mut names: Vec<&str> = STEP_FIELDS.into_iter().chain(["images"]).collect();
        names.sort_unstable();
        assert!(fields.keys().eq(names));
        let steps = read_text(&(line + "\n")).unwrap();
        assert_eq!((steps.rows, steps.unit.as_deref()), (vec![row], Some("images")));
    }

    #[test]
    fn odd_files_are_reported() {
        let half = read_text(&(line(0, "1") + &line(1, "1")[..40])).unwrap();
        assert!(half.rows.len() == 1 && half.remarks[0].contains("half written"));
        let again = read_text(&(line(3, "1") + &line(2, "1") + &line(3, "5") + &line(3, "7"))).unwrap();
        assert_eq!((again.rows.len(), again.rows[1].loss), (2, Some(7.0)));
        assert!(again.remarks[0].starts_with("1 step is in"), "{:?}", again.remarks);
        let two = read_text(&(line(2, "1") + &line(3, "1")).repeat(3)).unwrap();
        assert!(two.remarks[0].starts_with("2 steps are in"), "{:?}", two.remarks);
        assert!(read_text("").unwrap().remarks[0].contains("empty"));
        let error = read_text(&(line(0, "1") + "{\"step\":1}\n")).unwrap_err().to_string();
        assert!(error.contains("steps.jsonl line 2: missing field `epoch`"), "{error}");
        let error = read_text(&line(0, "1").replace("0.5", "-0.5")).unwrap_err().to_string();
        assert!(error.contains("line 1: seconds is -0.5"), "{error}");
        assert!(read(tempfile::tempdir().unwrap().path()).unwrap().remarks[0].contains("no steps.jsonl"));
    }
}
