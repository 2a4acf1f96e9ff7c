//! Metrics that judge a model on validation or test samples.

use kolo_data::Part;
use kolo_ddp::binding::Loss;
use kolo_run_folder::in_line;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

/// A figure of the samples of a part: a mean over all of them, or a value of a [`Tally`](crate::Tally).
///
/// ```
/// use kolo_metrics::{Better, Metric};
///
/// const WER: Metric = Metric::lower_is_better("word errors");
/// assert_eq!(WER.column(), "test_word errors");
/// assert_eq!(Metric::named(format!("top {}", 5), Better::Higher).name, "top 5");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name; the column in `metrics.csv` and `summary.json` is `test_<name>` or `val_<name>`.
    pub name: &'static str,
    /// Direction of better values.
    pub better: Better,
    /// True for a share, which people read in percent.
    pub is_share: bool,
    /// Part that it is measured on. A run sets it: [`Part::Validation`] if the data has such samples.
    pub part: Part,
}

/// Direction of a metric's better values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Higher values are better, as of an accuracy.
    Higher,
    /// Lower values are better, as of a loss.
    Lower,
}

impl Metric {
    /// Makes a metric of which higher values are better.
    pub const fn higher_is_better(name: &'static str) -> Self {
        Metric { name, better: Better::Higher, is_share: false, part: Part::Test }
    }

    /// Makes a metric of which lower values are better.
    pub const fn lower_is_better(name: &'static str) -> Self {
        Metric { name, better: Better::Lower, is_share: false, part: Part::Test }
    }

    /// Share of correctly classified samples.
    pub const ACCURACY: Metric = Metric { is_share: true, ..Metric::higher_is_better("accuracy") };

    /// Mean loss.
    pub const LOSS: Metric = Metric::lower_is_better("loss");

    /// Exponential of the mean loss ([`Perplexity`](crate::Perplexity)).
    pub const PERPLEXITY: Metric = Metric::lower_is_better("perplexity");

    /// Loss of a text in bits, divided by its bytes: models with different tokenizers compare by it.
    pub const BITS_PER_BYTE: Metric = Metric::lower_is_better("bits_per_byte");

    /// Makes a metric with a name that is only known when the program runs, as that of a class. The name is
    /// kept as long as the process lives.
    pub fn named(name: impl Into<String>, better: Better) -> Self {
        Metric { name: name.into().leak(), better, is_share: false, part: Part::Test }
    }

    /// Returns the name of its column: `test_accuracy`, `val_accuracy`.
    pub fn column(&self) -> String {
        format!("{}_{}", self.part_name(), self.name)
    }

    /// Returns its name in a line of text: `test accuracy`.
    pub(crate) fn label(&self) -> String {
        format!("{} {}", self.part_name(), in_line(self.name))
    }

    pub(crate) fn part_name(&self) -> &'static str {
        part_name(self.part)
    }

    /// True if `value` is better than `other`. NaN never is.
    pub(crate) fn is_better(&self, value: f64, other: f64) -> bool {
        match self.better {
            Better::Higher => value > other || other.is_nan() && !value.is_nan(),
            Better::Lower => value < other || other.is_nan() && !value.is_nan(),
        }
    }
}

/// Returns the part's name in columns.
pub(crate) fn part_name(part: Part) -> &'static str {
    match part {
        Part::Train => "train",
        Part::Test => "test",
        Part::Validation => "val",
    }
}

/// One batch's part of a metric: means of batches are added as sums and counts.
///
/// ```
/// use kolo_metrics::{Mean, Tally};
///
/// let mut right = Mean::share(3, 4);
/// right.merge(Mean::share(1, 4));
/// assert_eq!(right.finish(), [0.5]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// Sum over the counted items.
    pub sum: f64,
    /// Number of samples, tokens, or other items of the mean.
    pub count: f64,
}

impl Mean {
    /// Makes the mean of `right` in `count` samples.
    pub fn share(right: usize, count: usize) -> Self {
        Mean { sum: right as f64, count: count as f64 }
    }
}

impl<L: Loss> From<L> for Mean {
    /// Converts the loss, and may wait for a device.
    fn from(loss: L) -> Self {
        Mean { sum: loss.sum(), count: loss.count() }
    }
}

/// A metric's value after some steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The metric.
    pub metric: Metric,
    /// Its value.
    pub value: f64,
}

impl Score {
    /// Formats the value for people: `89.95 %`, or `1.2345`.
    pub fn shown(&self) -> String {
        match self.metric.is_share {
            true => format!("{:.2} %", 100.0 * self.value),
            false => format!("{:.4}", self.value),
        }
    }
}

/// A model's scores, serialized as fields of an object: `"test_accuracy": 0.8995`.
///
/// ```
/// use kolo_metrics::{Metric, Score, Scores};
///
/// let scores = Scores(vec![Score { metric: Metric::ACCURACY, value: 0.8995 }]);
/// assert_eq!(scores.get("accuracy"), Some(0.8995));
/// assert_eq!(scores.0[0].shown(), "89.95 %");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores(pub Vec<Score>);

impl Scores {
    /// Value of the metric `name`, if it was measured; the first one, if on several parts.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|score| score.metric.name == name).map(|score| score.value)
    }
}

impl Serialize for Scores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for Score { metric, value } in &self.0 {
            map.serialize_entry(&metric.column(), value)?;
        }
        map.end()
    }
}
