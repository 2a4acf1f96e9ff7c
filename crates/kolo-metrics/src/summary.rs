//! A few figures about the whole run.

use std::fmt;
use std::path::Path;

use kolo_data::{DataSet, Part};
use kolo_ddp::checkpoint;
use kolo_recipe::RunFolder;
use kolo_run_folder::Classification;
use kolo_run_folder::units::counted;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::metric::Scores;
use crate::noise_summary::NoiseSummary;
use crate::staleness_summary::StalenessSummary;

/// The result of a run, and its speed. Times, speed, communication and sums are those of the steps that the
/// worker that writes the summary has seen: of a resumed run, those since its last start.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Version of Kolo.
    pub kolo: &'static str,
    /// Workers at the end, without summation servers.
    pub world_size: usize,
    /// Workers for each core of the fullest host at the end, at least 1.
    pub workers_per_core: f64,
    /// Shards of a step.
    pub shards: usize,
    /// Transport between the workers.
    pub transport: &'static str,
    /// Name of the model.
    pub model: String,
    /// Name of the data set.
    pub data: String,
    /// Number of samples of each part, and of classes.
    pub samples: SampleCounts,
    /// Trained parameters of the model.
    pub parameters: usize,
    /// Epochs begun.
    pub epochs: usize,
    /// Steps done.
    pub steps: u64,
    /// Reason of an end before the last step: `callback`, if one returned `Flow::Stop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<&'static str>,
    /// Steps that changed nothing because they overflowed, summed over islands if there are some; only with
    /// --precision f16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped_steps: Option<u64>,
    /// Seconds since this worker began: steps, evaluations, and all else.
    pub train_seconds: f64,
    /// Seconds of the steps since the run was last started, which the speed counts.
    pub steps_seconds: f64,
    /// Samples of all workers, divided by the time of the steps since the run was last started.
    #[serde(flatten)]
    pub speed: Speed,
    /// Median of the times of the steps since the run was last started.
    pub step_seconds_p50: f64,
    /// 95th percentile of the times of the steps since the run was last started.
    pub step_seconds_p95: f64,
    /// See [`EpochRow::comm_fraction`](crate::EpochRow); over the steps since the run was last started.
    pub comm_fraction: f64,
    /// See [`EpochRow::exposed_comm_fraction`](crate::EpochRow); over the steps since the run was last
    /// started.
    pub exposed_comm_fraction: f64,
    /// Synchronization mode.
    pub sync: String,
    /// Steps seen by this worker in which all shards, or all islands, were summed.
    pub synchronized_steps: u64,
    /// Bytes summed in those steps: four for each element, whatever the encoding on the wire.
    pub summed_bytes: u64,
    /// Staleness of the weights that workers pulled; only with --sync stale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness: Option<StalenessSummary>,
    /// Mean loss of the last epoch.
    pub train_loss: f64,
    /// Scores on the test samples, after the last step.
    #[serde(flatten)]
    pub scores: Scores,
    /// The best evaluation by the deciding metric; only with --best-metric or --patience.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<BestScore>,
    /// Scores of each class on the test samples, or on validation samples if there are none; only of a tally
    /// that [counts classes](crate::Tally::classification).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classification: Option<Classification>,
    /// The batch size compared to the noise of the gradient, if that is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_scale: Option<NoiseSummary>,
    /// SHA-256 of all trained parameters, without running statistics.
    pub weights_sha256: String,
    /// Peak memory of a worker; the largest of all workers.
    pub peak_rss_bytes: u64,
    /// Warnings during the run: an unused parameter, a checkpoint that could not be written, a worker that
    /// held the others up.
    pub warnings: Vec<String>,
}

/// The best evaluation of a run, by the metric that decides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BestScore {
    /// Steps done at the evaluation.
    pub step: u64,
    /// Its score by that metric.
    #[serde(flatten)]
    pub scores: Scores,
}

impl BestScore {
    /// Returns the path of its checkpoint within the run folder, if it is there.
    pub(crate) fn checkpoint(&self, folder: &Path) -> Option<String> {
        let path = checkpoint::path(&RunFolder::at(folder.to_owned()).best(), self.step);
        let within = path.strip_prefix(folder).ok()?;
        path.is_dir().then(|| within.display().to_string())
    }
}

/// Size of a data set.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SampleCounts {
    /// Samples to train on.
    pub train: usize,
    /// Samples by which decisions were made.
    pub validation: usize,
    /// Samples to test on.
    pub test: usize,
    /// Classes, if the data set describes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<usize>,
}

impl SampleCounts {
    /// Counts the samples of a data set.
    pub fn of<D: DataSet + ?Sized>(data: &D) -> Self {
        let [train, test, validation] = Part::ALL.map(|part| data.samples(part));
        let classes = data.preprocessing().map(|how| how.num_classes);
        SampleCounts { train, validation, test, classes }
    }
}

impl fmt::Display for SampleCounts {
    /// Formats the counts as `24 training, 6 validation and 9 test samples of 3 classes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [(self.train, "training"), (self.validation, "validation"), (self.test, "test")];
        let mut parts: Vec<(usize, &str)> = parts.into_iter().filter(|(count, _)| *count > 0).collect();
        let last = match parts.pop() {
            Some((count, name)) => counted(count, &format!("{name} sample")),
            None => "no samples".into(),
        };
        let parts: Vec<String> = parts.into_iter().map(|(count, name)| format!("{count} {name}")).collect();
        let first = if parts.is_empty() { String::new() } else { parts.join(", ") + " and " };
        write!(f, "{first}{last}")?;
        self.classes.map_or(Ok(()), |classes| write!(f, " of {}", counted(classes, "class")))
    }
}

/// Throughput in the loss's unit, serialized as a field such as `images_per_second`.
#[derive(Clone, Debug)]
pub struct Speed {
    /// Unit, such as `images`.
    pub unit: String,
    /// Units of all workers, divided by the time of the steps.
    pub per_second: f64,
}

impl Serialize for Speed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(&format!("{}_per_second", self.unit), &self.per_second)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{Metric, Score};

    #[test]
    fn the_best_checkpoint_is_named_if_it_is_there() {
        let score = Score { metric: Metric::ACCURACY, value: 0.75 };
        let best = BestScore { step: 400, scores: Scores(vec![score]) };
        let json = serde_json::to_value(&best).unwrap();
        assert_eq!(json, serde_json::json!({ "step": 400, "test_accuracy": 0.75 }));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(best.checkpoint(folder.path()), None);
        std::fs::create_dir_all(folder.path().join("best/step-00000400")).unwrap();
        assert_eq!(best.checkpoint(folder.path()).as_deref(), Some("best/step-00000400"));
    }

    #[test]
    fn samples_are_counted_in_words() {
        let counts =
            |train, validation, test, classes| SampleCounts { train, validation, test, classes }.to_string();
        assert_eq!(counts(24, 6, 9, Some(3)), "24 training, 6 validation and 9 test samples of 3 classes");
        assert_eq!(counts(24, 0, 9, Some(3)), "24 training and 9 test samples of 3 classes");
        assert_eq!(counts(24, 0, 0, None), "24 training samples");
    }
}
