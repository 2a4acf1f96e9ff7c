//! The noise scale at the end of a run, and its meaning for the choice of a batch size.

use kolo_ddp::{BatchMeaning, NoiseScale};
use serde::Serialize;

use crate::progress::Progress;

/// The run's batch size compared to the noise of its gradient.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NoiseSummary {
    /// Number of units that the loss counts in a step, such as 64 images: the largest step of the last epoch.
    pub batch: u64,
    /// Meaning of the noise scale; `None` if the gradient could not be told from its noise.
    #[serde(flatten)]
    pub meaning: Option<BatchMeaning>,
}

impl NoiseSummary {
    /// Compares the noise scale to the batch of the last epoch.
    pub fn of(noise: &NoiseScale, progress: &Progress) -> Self {
        let epoch = progress.steps().last().map_or(0, |row| row.epoch);
        let rows = progress.steps().iter().filter(|row| row.epoch == epoch);
        let batch = rows.map(|row| row.count).max().unwrap_or(0);
        NoiseSummary { batch, meaning: noise.meaning(batch as f64) }
    }

    /// Describes the noise scale of a loss that counts `unit`.
    pub fn words(&self, unit: &str) -> String {
        let Some(BatchMeaning { critical, share, doubled_samples, doubled_steps }) = self.meaning else {
            return format!(
                "unknown: the gradient cannot be told from its noise with {} {unit} a step",
                self.batch
            );
        };
        format!(
            "{critical:.0} {unit}: a step of {} is {share:.2} of the critical batch; twice the batch takes \
             {doubled_samples:.2} times the {unit} and {doubled_steps:.2} times the steps",
            self.batch
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_to_do_with_it() {
        let meaning =
            BatchMeaning { critical: 160.2, share: 0.4, doubled_samples: 1.286, doubled_steps: 0.643 };
        let known = NoiseSummary { batch: 64, meaning: Some(meaning) };
        assert_eq!(
            known.words("images"),
            "160 images: a step of 64 is 0.40 of the critical batch; twice the batch takes 1.29 times the images and \
             0.64 times the steps"
        );
        let json = serde_json::to_value(&known).unwrap();
        assert_eq!((&json["batch"], &json["share"]), (&64.into(), &0.4.into()));
        let unknown = NoiseSummary { batch: 64, meaning: None };
        assert!(unknown.words("images").starts_with("unknown: "));
        assert_eq!(serde_json::to_string(&unknown).unwrap(), r#"{"batch":64}"#);
    }
}
