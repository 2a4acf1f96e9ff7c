//! The result of a run, read from its folder, or from the trace of a user's own program.

use std::collections::BTreeMap;
use std::path::Path;

use kolo_comm::hash::fnv1a;
use kolo_comm::schedule::words::counted;
use kolo_ddp::verify::trace::{self, Step};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use kolo_run_folder::GenerationRow;

/// The fields of `summary.json` by which runs are compared, or their equivalents from a trace.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct RunRecord {
    /// SHA-256 of the weights; for a user's own program, a hash of their fingerprints after the last step.
    #[serde(rename = "weights_sha256")]
    pub(super) weights: String,
    pub(super) steps: u64,
    pub(super) train_seconds: f64,
    /// Steps in the trace of a user's own program, by number.
    #[serde(skip)]
    trace: BTreeMap<u64, Step>,
    /// All other fields, of which the scores are compared: with averaged weights they are the averages'.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct StepLine {
    step: u64,
}

impl RunRecord {
    /// Reads the record of the run in `folder`; the error names a step missing or repeated in `steps.jsonl`.
    pub(super) fn of(folder: &Path) -> Result<RunRecord, String> {
        let path = folder.join("summary.json");
        let text = kolo_durable::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let ended: RunRecord = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut told: Vec<u64> =
            lines::<StepLine>(&folder.join("steps.jsonl"))?.iter().map(|line| line.step).collect();
        told.sort_unstable();
        match (0..ended.steps).zip(&told).find(|(step, told)| step != *told) {
            Some((step, told)) if *told > step => Err(format!("steps.jsonl lacks step {step}")),
            Some((_, told)) => Err(format!("steps.jsonl has step {told} twice")),
            None if told.len() as u64 == ended.steps => Ok(ended),
            None => Err(format!(
                "steps.jsonl has {} for {}",
                counted(told.len(), "line"),
                counted(ended.steps, "step")
            )),
        }
    }

    /// Reads the record of a user's own program, which took `train_seconds`, from its trace; the error names
    /// a step with two different results.
    pub(super) fn of_trace(file: &Path, train_seconds: f64) -> Result<RunRecord, String> {
        let mut told = BTreeMap::new();
        for step in trace::read(file).map_err(|e| e.to_string())?.steps {
            let before = told.insert(step.step, step.clone());
            if before.is_some_and(|before| before != step) {
                return Err(format!("step {} was done twice, with different results", step.step));
            }
        }
        let (last, step) = told.last_key_value().ok_or("no step was done")?;
        let weights = format!("{:016x}", fnv1a(format!("{:?}", step.prints).as_bytes()));
        let others = BTreeMap::new();
        Ok(RunRecord { weights, steps: last + 1, train_seconds, trace: told, others })
    }

    /// Compares the record with the undisturbed run's; the error names the difference.
    pub(super) fn compare(&self, undisturbed: &RunRecord) -> Result<(), String> {
        if self.steps != undisturbed.steps {
            return Err(format!("{} instead of {}", counted(self.steps, "step"), undisturbed.steps));
        }
        let differs = |(number, step): &(&u64, &Step)| undisturbed.trace.get(number) != Some(step);
        if let Some((number, _)) = self.trace.iter().find(differs) {
            return Err(format!("step {number} ended in other values than in the undisturbed run"));
        }
        if self.weights != undisturbed.weights {
            return Err("other weights than the undisturbed run's".into());
        }
        match self.scores().eq(undisturbed.scores()) {
            true => Ok(()),
            false => Err("other scores than the undisturbed run's".into()),
        }
    }

    /// Scores on validation and test samples, and those of each class.
    fn scores(&self) -> impl Iterator<Item = (&String, &Value)> {
        let is_score =
            |name: &str| ["test_", "val_", "classification"].iter().any(|start| name.starts_with(start));
        self.others.iter().filter(move |(name, _)| is_score(name))
    }
}

/// Reads the generations of a run in which at least one step was done.
pub(super) fn generations(folder: &Path) -> Result<Vec<GenerationRow>, String> {
    lines(&folder.join("generations.jsonl"))
}

/// End of a fault that ended a generation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Recovery {
    /// Seconds from the fault until a later generation had done its first step.
    Seconds(f64),
    /// The job was ended on purpose before such a step: the resumed job's first step is no recovery.
    JobEnded,
}

/// Returns the recovery from a fault at `unix`, which ended a generation, where the job was signaled to end
/// at the times `ends`; `None` if no later step was done at all.
pub(super) fn recovery(unix: f64, ends: &[f64], generations: &[GenerationRow]) -> Option<Recovery> {
    let end = ends.iter().copied().filter(|end| *end > unix).min_by(f64::total_cmp);
    let later = generations.iter().filter(|row| row.formed_unix > unix);
    let step = later.map(|row| row.first_step_unix).min_by(f64::total_cmp);
    match (step, end) {
        (step, Some(end)) if step.is_none_or(|step| step > end) => Some(Recovery::JobEnded),
        (step, _) => step.map(|step| Recovery::Seconds(step - unix)),
    }
}

/// Returns true if a run's folder tells of a step of a generation that formed after a fault at `unix`.
pub(super) fn has_recovered(unix: f64, folder: &Path) -> bool {
    generations(folder).is_ok_and(|rows| recovery(unix, &[], &rows).is_some())
}

fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, String> {
    let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let text = kolo_durable::read_to_string(path).map_err(|e| wrong(&e))?;
    text.lines().map(|line| serde_json::from_str(line).map_err(|e| wrong(&e))).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns the record of a run of four steps whose `steps.jsonl` has lines for `steps`.
    fn ended(steps: &[u64]) -> Result<RunRecord, String> {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"{"weights_sha256": "ab", "steps": 4, "train_seconds": 1.5, "model": "x"}"#;
        fs::write(folder.path().join("summary.json"), text).unwrap();
        let lines: String =
            steps.iter().map(|step| format!("{{\"step\": {step}, \"loss\": 1.0}}\n")).collect();
        fs::write(folder.path().join("steps.jsonl"), lines).unwrap();
        RunRecord::of(folder.path())
    }

    #[test]
    fn every_step_is_told_once() {
        assert_eq!(ended(&[0, 1, 2, 3]).unwrap().steps, 4);
        for (steps, words) in [
            (&[0, 1, 3][..], "lacks step 2"),
            (&[0, 1, 1, 2, 3], "step 1 twice"),
            (&[0, 1, 2], "3 lines for 4"),
            (&[0, 1, 2, 3, 3], "5 lines for 4"),
            (&[], "0 lines for 4"),
        ] {
            let error = ended(steps).unwrap_err();
            assert!(error.contains(words), "{steps:?}: {error}");
        }
    }

    #[test]
    fn weights_and_steps_are_compared() {
        let one = ended(&[0, 1, 2, 3]).unwrap();
        assert_eq!(one.compare(&RunRecord { train_seconds: 9.0, ..one.clone() }), Ok(()));
        assert!(one.compare(&RunRecord { steps: 5, ..one.clone() }).is_err());
        assert!(one.compare(&RunRecord { weights: "cd".into(), ..one.clone() }).is_err());
        let scored = |name: &str| RunRecord { others: [(name.into(), 0.5.into())].into(), ..one.clone() };
        assert!(one.compare(&scored("test_accuracy")).unwrap_err().contains("other scores"));
        assert_eq!(one.compare(&scored("images_per_second")), Ok(()));
    }

    /// Returns the record of a trace with these steps and results.
    fn traced(steps: &[(u64, u64)]) -> Result<RunRecord, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.jsonl");
        let mut text = String::from(
            r#"{"world_size":2,"shards":2,"transport":"shm","tensors":[{"name":"a","statistic":false,"print":"0"}]}"#,
        );
        for (step, print) in steps {
            text += &format!(
                "\n{{\"step\":{step},\"loss\":1.0,\"loss_bits\":\"0\",\"count\":1.0,\"prints\":[\"{print:x}\"]}}"
            );
        }
        fs::write(&file, text + "\n").unwrap();
        RunRecord::of_trace(&file, 1.0)
    }

    #[test]
    fn traces_are_compared_step_by_step() {
        let undisturbed = traced(&[(0, 5), (1, 6), (2, 7)]).unwrap();
        // A step twice with the same result, steps out of order, and a step that a dead rank 0 omitted.
        for steps in [&[(0, 5), (1, 6), (1, 6), (2, 7)][..], &[(0, 5), (2, 7), (1, 6)], &[(0, 5), (2, 7)]] {
            assert_eq!(traced(steps).unwrap().compare(&undisturbed), Ok(()), "{steps:?}");
        }
        for (steps, words) in [
            (&[(0, 5), (1, 6)][..], "2 steps instead of 3"),
            (&[(0, 5), (1, 9), (2, 7)], "step 1 ended in other values"),
            (&[(0, 5), (1, 6), (2, 8)], "step 2 ended in other values"),
        ] {
            let error = traced(steps).unwrap().compare(&undisturbed).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        assert!(traced(&[(0, 5), (0, 6)]).unwrap_err().contains("step 0 was done twice"));
        assert!(traced(&[]).unwrap_err().contains("no step"));
    }

    #[test]
    fn recovery_ends_with_the_next_generations_first_step() {
        let row = |generation: u32, formed: f64, stepped: f64| GenerationRow {
            generation: generation.into(),
            world_size: 3,
            reason: String::new(),
            formed_unix: formed,
            first_step: 0,
            first_step_unix: stepped,
        };
        let rows = [row(1, 10.0, 11.0), row(2, 20.5, 20.75), row(3, 22.0, 23.0)];
        let seconds = |unix| recovery(unix, &[], &rows);
        assert_eq!(seconds(20.0), Some(Recovery::Seconds(0.75)));
        assert_eq!(seconds(21.0), Some(Recovery::Seconds(2.0)));
        assert_eq!(seconds(24.0), None);
        let place = tempfile::tempdir().unwrap();
        assert!(!has_recovered(20.0, place.path()), "there is no file yet");
        let lines = rows.iter().map(|row| serde_json::to_string(row).unwrap() + "\n");
        fs::write(place.path().join("generations.jsonl"), lines.collect::<String>()).unwrap();
        assert!(has_recovered(20.0, place.path()) && !has_recovered(24.0, place.path()));
        // Ends before the fault and after the step change nothing; one between them leaves no recovery.
        assert_eq!(recovery(20.0, &[19.0, 20.8], &rows), Some(Recovery::Seconds(0.75)));
        assert_eq!(recovery(20.0, &[20.25, 22.5], &rows), Some(Recovery::JobEnded));
        assert_eq!(recovery(24.0, &[25.0], &rows), Some(Recovery::JobEnded));
    }
}
