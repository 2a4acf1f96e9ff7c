//! The facts that decide which samples come in which step: the data, and the numbers that divide and order
//! it. A checkpoint holds them, and a run continues from it with the same facts, or reports the difference.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use kolo_comm::schedule::words::counted;
use kolo_data::{DataSet, Fingerprint, Part};
use kolo_ddp::BatchGrowth;
use kolo_ddp::checkpoint::Position;
use kolo_recipe::{Recipe, TokenizerNote};
use serde::{Deserialize, Serialize};

use crate::error::{Error, SampleChange};

const TRAINING: &str = "the training data";
/// Key in a position's notes.
const SAMPLING: &str = "sampling";

/// The facts that decide which samples come in which step of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sampling {
    batch_size: usize,
    shards: usize,
    seed: u64,
    /// In the syntax of `--grow-batch`.
    grow_batch: String,
    train: DataNote,
    test: DataNote,
    /// `None` without such samples, as in checkpoints of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    validation: Option<DataNote>,
    /// A checkpoint has it beside these facts, for those who use the weights.
    #[serde(skip)]
    tokenizer: Option<TokenizerNote>,
}

/// A [`Fingerprint`] in a checkpoint. The hash is text, because JSON's numbers may lose bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct DataNote {
    samples: usize,
    hashed: usize,
    content: Option<String>,
    words: String,
}

impl Sampling {
    /// Collects the facts of a run of `config` over `data`.
    pub(crate) fn of<D: DataSet + ?Sized>(config: &Recipe, data: &D) -> Self {
        let grow_batch = config.large_batch.grow_batch.iter().map(BatchGrowth::to_string);
        let note = |part| DataNote::of(fingerprint(data, part));
        Sampling {
            batch_size: config.batch_size,
            shards: config.shards,
            seed: config.seed,
            grow_batch: grow_batch.collect::<Vec<_>>().join(","),
            train: note(Part::Train),
            test: note(Part::Test),
            validation: (data.samples(Part::Validation) > 0).then(|| note(Part::Validation)),
            tokenizer: data.tokenizer().map(|tokenizer| TokenizerNote::of(config, tokenizer)),
        }
    }

    /// Writes the facts into the notes of a checkpoint.
    pub(crate) fn write(&self, position: &mut Position) {
        position.notes[SAMPLING] = serde_json::json!(self);
        self.tokenizer.iter().for_each(|note| note.write(position));
    }

    /// Returns the names and descriptions of the data, for the workers to compare. Another tokenizer makes
    /// other data of the same text, so it comes first.
    pub(crate) fn stated_data(&self) -> Vec<(String, String)> {
        let words = |note: Option<&DataNote>| note.map_or("none".into(), |note| note.words.clone());
        let tokenizer = self.tokenizer.iter().map(|note| ("the tokenizer".into(), note.content().into()));
        tokenizer.chain(self.data().map(|(name, note)| (name.into(), words(note)))).collect()
    }

    /// Returns the name of the part that judges trained weights, with its samples in a checkpoint and now, in
    /// words, if they differ: the test data, or without it the validation data, as of a text.
    pub(crate) fn other_tests<D: DataSet + ?Sized>(
        position: &Position,
        data: &D,
    ) -> Option<(&'static str, String, String)> {
        let noted: Sampling = serde_json::from_value(position.notes[SAMPLING].clone()).ok()?;
        let part = match noted.test.samples + data.samples(Part::Test) {
            0 => Part::Validation,
            _ => Part::Test,
        };
        let (name, there) = noted.data()[part as usize];
        let (there, here) = (there?, DataNote::of(fingerprint(data, part)));
        // Validation samples of a split may be among the training samples here, and judge nothing then.
        let judges = part == Part::Test || here.samples > 0;
        (judges && there.differs(&here)).then(|| (name, there.words.clone(), here.words))
    }

    /// The parts of the data by name.
    fn data(&self) -> [(&'static str, Option<&DataNote>); 3] {
        [
            (TRAINING, Some(&self.train)),
            ("the test data", Some(&self.test)),
            ("the validation data", self.validation.as_ref()),
        ]
    }

    /// Returns the reason that a change of samples would remain unnoticed if their number stays the same;
    /// `None` if it would be noticed.
    pub(crate) fn blind_spot(&self) -> Option<&'static str> {
        let is_blind = |note: &DataNote| note.samples > 0 && note.content.is_none();
        self.data().into_iter().filter_map(|(_, note)| note).any(is_blind).then_some(
            "the samples of this data set are compared by their number only: workers, or parts of a run, that have \
             other samples are not found; implement `DataSet::fingerprint` for it",
        )
    }

    /// Refuses a checkpoint of other samples, or of another order. A checkpoint of an older version without
    /// such notes is judged by its epoch and step; `expected` is the position that follows from its step.
    /// [`Error::OtherSamples`] names the first setting that differs.
    pub(crate) fn check(
        &self,
        checkpoint: &Path,
        position: &Position,
        expected: &Position,
    ) -> Result<(), Error> {
        let noted = serde_json::from_value(position.notes[SAMPLING].clone()).ok();
        let found = match noted {
            Some(noted) => self.difference(&noted),
            None => {
                let place = |position: &Position| (position.epoch, position.step_in_epoch);
                let words = |position: &Position| {
                    format!(
                        "{} and {}",
                        counted(position.epoch, "epoch"),
                        counted(position.step_in_epoch, "step")
                    )
                };
                (place(position) != place(expected)).then(|| {
                    let what = format!("step {}", position.step);
                    let [done, after] = [position, expected].map(words);
                    (what, format!("{done} done"), format!("after {after}"), SampleChange::Order)
                })
            }
        };
        found.map_or(Ok(()), |(setting, there, here, change)| {
            Err(Error::OtherSamples { checkpoint: checkpoint.to_owned(), setting, there, here, change })
        })
    }

    /// Settings of the sampler, by their names in `config.toml`.
    fn settings(&self) -> [(&'static str, String); 4] {
        let Sampling { batch_size, shards, seed, grow_batch, .. } = self;
        let grow_batch = if grow_batch.is_empty() { "none" } else { grow_batch };
        [
            ("batch_size", batch_size.to_string()),
            ("shards", shards.to_string()),
            ("seed", seed.to_string()),
            ("large_batch.grow_batch", grow_batch.to_string()),
        ]
    }

    /// Returns the first difference: its name, its values in the checkpoint and here, and its kind. Other
    /// training samples may make others of all parts, as they decide on means.
    fn difference(&self, noted: &Sampling) -> Option<(String, String, String, SampleChange)> {
        let settings = noted.settings().into_iter().zip(self.settings());
        let mut settings = settings.filter(|((_, there), (_, here))| there != here);
        if let Some(((name, there), (_, here))) = settings.next() {
            return Some((name.into(), there, here, SampleChange::Order));
        }
        let mut data = noted.data().into_iter().zip(self.data());
        let ((name, there), (_, here)) = data.find(|((_, there), (_, here))| match (there, here) {
            (Some(there), Some(here)) => there.differs(here),
            (there, here) => there.is_some() != here.is_some(),
        })?;
        let change = match name {
            TRAINING if noted.train.samples == self.train.samples => SampleChange::Content,
            TRAINING => SampleChange::Order,
            _ => SampleChange::Judging,
        };
        let words = |note: Option<&DataNote>| note.map_or("none".into(), |note| note.words.clone());
        Some((name.into(), words(there), words(here), change))
    }
}

impl DataNote {
    fn of(print: Fingerprint) -> Self {
        DataNote {
            samples: print.samples,
            hashed: print.hashed,
            content: print.content.map(|content| format!("{content:016x}")),
            words: print.to_string(),
        }
    }

    /// True if the samples certainly differ. Hashes of different numbers of samples cannot be compared.
    fn differs(&self, other: &DataNote) -> bool {
        let comparable = self.hashed == other.hashed && self.content.is_some() && other.content.is_some();
        self.samples != other.samples || (comparable && self.content != other.content)
    }
}

/// Returns the fingerprint of a part, without content if a sample cannot be read; training reports that
/// sample when it needs it.
fn fingerprint<D: DataSet + ?Sized>(data: &D, part: Part) -> Fingerprint {
    let read = catch_unwind(AssertUnwindSafe(|| data.fingerprint(part)));
    read.unwrap_or_else(|_| Fingerprint { samples: data.samples(part), hashed: 0, content: None })
}

#[cfg(test)]
mod tests {
    use kolo_data::ItemSet;

    use super::*;

    fn note(samples: usize, hashed: usize, content: Option<u64>) -> DataNote {
        DataNote::of(Fingerprint { samples, hashed, content })
    }

    fn sampling() -> Sampling {
        let (train, test) = (note(100, 64, Some(7)), note(10, 10, Some(8)));
        let grow_batch = String::new();
        let (validation, tokenizer) = (None, None);
        Sampling { batch_size: 8, shards: 2, seed: 3, grow_batch, train, test, validation, tokenizer }
    }

    fn position(epoch: usize, notes: serde_json::Value) -> Position {
        Position { step: 10, epoch, step_in_epoch: 3, notes }
    }

    /// Error after a change from a checkpoint of `noted` to `sampling`.
    fn refused(noted: &Sampling, sampling: &Sampling) -> String {
        let there = position(1, serde_json::json!({ SAMPLING: noted }));
        let checked = sampling.check(Path::new("step-10"), &there, &position(1, serde_json::Value::Null));
        checked.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn each_thing_that_decides_the_samples_is_named_with_both_values() {
        let here = sampling();
        assert_eq!(refused(&here, &here), "");
        for (noted, words) in [
            (
                Sampling { batch_size: 9, ..sampling() },
                "batch_size = 9, and this run has 8: it would train on",
            ),
            (Sampling { shards: 4, ..sampling() }, "shards = 4, and this run has 2: it would train on"),
            (Sampling { seed: 0, ..sampling() }, "seed = 0, and this run has 3: it would train on"),
            (Sampling { grow_batch: "2:2".into(), ..sampling() }, "grow_batch = 2:2, and this run has none"),
            (
                Sampling { train: note(101, 64, Some(7)), ..sampling() },
                "the training data = 101 samples (64 of them with content 0000000000000007), and this run has \
                 100 samples (64 of them with content 0000000000000007): it would train on some samples twice",
            ),
            (
                Sampling { train: note(100, 64, Some(6)), ..sampling() },
                "the training data = 100 samples (64 of them with content 0000000000000006), and this run has \
                 100 samples (64 of them with content 0000000000000007): their number is the same, and their",
            ),
            (
                Sampling { test: note(10, 10, Some(7)), ..sampling() },
                "the test data = 10 samples (content 0000000000000007), and this run has 10 samples (content \
                 0000000000000008): no step learns from them",
            ),
            (
                Sampling { test: note(9, 9, Some(8)), ..sampling() },
                "the test data = 9 samples (content 0000000000000008), and this run has 10 samples (content \
                 0000000000000008): no step learns from them",
            ),
            (
                Sampling { validation: Some(note(9, 9, Some(7))), ..sampling() },
                "the validation data = 9 samples (content 0000000000000007), and this run has none: no step",
            ),
        ] {
            let error = refused(&noted, &here);
            assert!(error.starts_with("step-10") && error.contains(words), "{error}");
            assert!(error.contains("--accept-changed-data"), "{error}");
        }
    }

    /// A text without a part for tests is evaluated on that for validation.
    #[test]
    fn the_part_that_judges_is_compared_with_that_of_the_checkpoint() {
        let data = |tests: usize, validation: usize| {
            let counted = ItemSet::new(|items: Vec<u32>| items).with(Part::Train, 9, |_| Some(1));
            let counted = counted.with(Part::Test, tests, |_| Some(2));
            counted.with(Part::Validation, validation, |_| Some(3))
        };
        let of = |tests, validation| Sampling::of(&Recipe::default(), &data(tests, validation));
        let other = |noted: Sampling, tests, validation| {
            let there = position(1, serde_json::json!({ SAMPLING: noted }));
            Sampling::other_tests(&there, &data(tests, validation)).map(|(name, ..)| name)
        };
        assert_eq!(other(of(5, 3), 5, 4), None, "validation samples judge nothing here");
        assert_eq!(other(of(5, 3), 4, 3), Some("the test data"));
        assert_eq!(other(of(5, 3), 0, 3), Some("the test data"));
        assert_eq!(other(of(0, 3), 0, 3), None);
        assert_eq!(other(of(0, 3), 0, 4), Some("the validation data"));
        assert_eq!(other(of(0, 3), 0, 0), None);
        let changed = Sampling { test: note(5, 5, Some(1)), ..of(5, 0) };
        assert_eq!(other(changed, 5, 0), Some("the test data"), "the same number, other content");
        let old = position(1, serde_json::json!({ "recorded": true }));
        assert_eq!(Sampling::other_tests(&old, &data(5, 3)), None);
    }

    #[test]
    fn what_cannot_be_compared_is_taken() {
        let here = sampling();
        // A data set that is hashed in another way than before, or not at all.
        assert_eq!(refused(&Sampling { train: note(100, 100, Some(6)), ..sampling() }, &here), "");
        assert_eq!(refused(&Sampling { train: note(100, 0, None), ..sampling() }, &here), "");
        assert!(here.blind_spot().is_none());
        assert!(Sampling { test: note(10, 0, None), ..sampling() }.blind_spot().is_some());
        // No test samples are no blind spot.
        assert!(Sampling { test: note(0, 0, None), ..sampling() }.blind_spot().is_none());
    }

    #[test]
    fn a_checkpoint_of_an_older_version_is_judged_by_its_epoch() {
        let check = |epoch| {
            let old = position(epoch, serde_json::json!({ "recorded": true }));
            sampling().check(Path::new("step-10"), &old, &position(1, serde_json::Value::Null))
        };
        check(1).unwrap();
        let error = check(2).unwrap_err().to_string();
        assert!(error.contains("step 10 = 2 epochs and 3 steps done, and this run has"), "{error}");
    }
}
