//! The trace of a run: the result of every step, as JSON Lines, for `kolo verify` to compare.
//!
//! With [`FILE`] in the environment rank 0 writes that file: first a [`Start`], then a [`Step`] for each
//! step. The ranks are compared with one another after every step then. All workers must have the same
//! variables.
//!
//! In an elastic job the current rank 0 writes. A step in which rank 0 dies may be in the file twice, from
//! both, or not at all, if the others had done it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};

use kolo_reduction::{BucketCaps, Error};

/// The file to write to; it must not exist.
pub const FILE: &str = "KOLO_VERIFY_FILE";
/// Number of steps in the file; the run itself continues until the process that has started it ends it
/// ([`is_complete`]). Without it all are written.
pub const STEPS: &str = "KOLO_VERIFY_STEPS";
/// Size of buckets in MiB, in place of the program's own.
pub const BUCKET_CAP_MB: &str = "KOLO_VERIFY_BUCKET_CAP_MB";
/// Number of steps after which the run is restarted: rank 0 writes a checkpoint into a folder beside the
/// file, every rank clears its state, reads it back as a resumed job does, and continues. Without it there
/// is no restart.
pub const RESUME: &str = "KOLO_VERIFY_RESUME";
/// Number of steps after which a job whose updates are one step late makes all of them, because other runs
/// of it are restarted there ([`RESUME`]), which is possible only then: otherwise the runs would differ.
pub const END_ROUND: &str = "KOLO_VERIFY_END_ROUND";
/// `1`: steps are [tuned](crate::Tuner) where possible, independent of the program, and each is run with
/// another setting. Works without [`FILE`], too.
pub const TUNE: &str = "KOLO_VERIFY_TUNE";

/// 64 bits: of a number, or of a hash. Hexadecimal in the file, because JSON's numbers are not exact
/// everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Bits(pub u64);

impl From<Bits> for String {
    fn from(bits: Bits) -> String {
        format!("{:016x}", bits.0)
    }
}

impl TryFrom<String> for Bits {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u64::from_str_radix(&text, 16).map(Bits)
    }
}

/// Beginning of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Number of ranks.
    pub world_size: usize,
    /// Shards of every step; of an outer step its islands.
    pub shards: usize,
    /// True if they synchronize rarely, as islands.
    #[serde(default)]
    pub islands: bool,
    /// True if each worker holds a part of the optimizer's state only.
    #[serde(default)]
    pub sharded: bool,
    /// True if the steps are not those of Kolo's replicas, but of torch: they have neither servers nor
    /// tuning.
    #[serde(default)]
    pub foreign: bool,
    /// True if steps can be tuned ([`TUNE`]).
    #[serde(default)]
    pub tunable: bool,
    /// Transport between the ranks.
    pub transport: String,
    /// The model's tensors, with their values before the first step.
    pub tensors: Vec<Tensor>,
}

/// A tensor of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    /// Its path in the model.
    pub name: String,
    /// True if the forward pass changes it, not the optimizer.
    pub statistic: bool,
    /// Hash of its values.
    pub print: Bits,
}

/// Result of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its number, from 0.
    pub step: u64,
    /// Mean loss over the global batch; `null` in the file if it is not finite.
    #[serde(deserialize_with = "number_or_null")]
    pub loss: f64,
    /// The bits of the loss, which are exact.
    pub loss_bits: Bits,
    /// Samples of the global batch.
    pub count: f64,
    /// Hash of each tensor's values after it.
    pub prints: Vec<Bits>,
}

/// Reads `null` as NaN: JSON has no other form for a loss that is not finite; its bits are exact.
fn number_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// A whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Its beginning.
    pub start: Start,
    /// Its steps, in their order.
    pub steps: Vec<Step>,
}

/// Returns true if the trace has the run's beginning and `steps` steps.
pub fn is_complete(path: &Path, steps: u64) -> bool {
    let lines = kolo_durable::read(path).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count());
    lines as u64 > steps
}

/// Reads a trace.
///
/// # Errors
///
/// Names the file, and the line that is invalid.
pub fn read(path: &Path) -> Result<Trace, Error> {
    let text = kolo_durable::read_to_string(path).map_err(|e| Error::file(path, e))?;
    let fail = |line: usize, problem: &dyn std::fmt::Display| {
        Error::file(path, format!("line {} is no part of a trace: {problem}", line + 1))
    };
    let mut lines = text.lines().enumerate();
    let (_, first) = lines.next().ok_or_else(|| Error::file(path, "is empty: the run did not begin"))?;
    let start: Start = serde_json::from_str(first).map_err(|e| fail(0, &e))?;
    let step = |(number, line): (usize, &str)| {
        let step: Step = serde_json::from_str(line).map_err(|e| fail(number, &e))?;
        match (step.prints.len(), start.tensors.len()) {
            (found, needed) if found != needed => {
                Err(fail(number, &format!("{found} hashes for {needed} tensors")))
            }
            _ => Ok(step),
        }
    };
    let steps = lines.map(step).collect::<Result<_, _>>()?;
    Ok(Trace { start, steps })
}

/// Returns true if [`TUNE`] requests tuning.
///
/// # Errors
///
/// It is neither 0 nor 1.
pub fn tunes() -> Result<bool, Error> {
    match std::env::var(TUNE).as_deref() {
        Err(_) | Ok("" | "0") => Ok(false),
        Ok("1") => Ok(true),
        Ok(text) => Err(Error::Setting(format!("{TUNE} is `{text}`; it must be 0 or 1"))),
    }
}

/// Requests of the environment.
#[derive(Debug)]
pub struct TraceOptions {
    /// Value of [`FILE`].
    pub file: PathBuf,
    /// Value of [`STEPS`].
    pub steps: Option<u64>,
    /// Value of [`BUCKET_CAP_MB`].
    pub caps: Option<BucketCaps>,
    /// Value of [`RESUME`].
    pub resume: Option<u64>,
    /// Value of [`END_ROUND`].
    pub end_round: Option<u64>,
}

impl TraceOptions {
    /// Reads the variables; `None` without [`FILE`].
    ///
    /// # Errors
    ///
    /// Names the variable that is invalid.
    pub fn from_env() -> Result<Option<Self>, Error> {
        Self::from(|name| std::env::var_os(name)?.into_string().ok().filter(|value| !value.is_empty()))
    }

    fn from(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, Error> {
        let Some(file) = variable(FILE) else { return Ok(None) };
        let wrong = |name: &str, text: &str, needed: &str| {
            Error::Setting(format!("{name} is `{text}`; it must be {needed}"))
        };
        let count = |name: &str| {
            let count = variable(name).map(|text| {
                let count = text.parse().ok().filter(|count: &u64| *count > 0);
                count.ok_or_else(|| wrong(name, &text, "a whole number of at least 1"))
            });
            count.transpose()
        };
        let caps = variable(BUCKET_CAP_MB).map(|text| {
            let mib = text.parse().ok().filter(|mib: &f64| *mib > 0.0 && mib.is_finite());
            let mib = mib.ok_or_else(|| wrong(BUCKET_CAP_MB, &text, "a finite number of MiB greater than 0"));
            mib.map(BucketCaps::of_mib)
        });
        let (steps, resume, end_round) = (count(STEPS)?, count(RESUME)?, count(END_ROUND)?);
        Ok(Some(TraceOptions { file: file.into(), steps, caps: caps.transpose()?, resume, end_round }))
    }
}

/// Writer of the file on rank 0.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    /// Creates the file with the beginning of a run.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be written.
    pub fn create(path: &Path, start: &Start) -> Result<Self, Error> {
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let file = file.map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => Error::file(
                path,
                format!("exists; every run, and every model of it, needs a file of its own ({FILE})"),
            ),
            _ => Error::file(path, e),
        })?;
        let mut writer = Writer { path: path.into(), file };
        writer.line(start)?;
        Ok(writer)
    }

    /// Continues the trace of a rank 0 that has died.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn resume(path: &Path) -> Result<Self, Error> {
        let opened = kolo_durable::open_with(path, OpenOptions::new().append(true));
        let file = opened.map_err(|e| Error::file(path, e))?;
        Ok(Writer { path: path.into(), file })
    }

    /// Adds a step.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn add(&mut self, step: &Step) -> Result<(), Error> {
        self.line(step)
    }

    fn line(&mut self, content: &impl Serialize) -> Result<(), Error> {
        let mut text = serde_json::to_string(content).map_err(|e| Error::file(&self.path, e))?;
        text.push('\n');
        self.file.write_all(text.as_bytes()).map_err(|e| Error::file(&self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Trace {
        let tensor = |name: &str, print| Tensor { name: name.into(), statistic: false, print: Bits(print) };
        let step = |step, loss: f64| Step {
            step,
            loss,
            loss_bits: Bits(loss.to_bits()),
            count: 32.0,
            prints: vec![Bits(u64::MAX), Bits(step)],
        };
        let tensors = vec![tensor("a.weight", 1), tensor("a.bias", u64::MAX - 1)];
        let start = Start {
            world_size: 2,
            shards: 8,
            islands: true,
            sharded: true,
            foreign: true,
            tunable: true,
            transport: "shm".into(),
            tensors,
        };
        Trace { start, steps: vec![step(0, 2.5), step(1, 0.1)] }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (path, trace) = (folder.path().join("trace.jsonl"), example());
        let mut writer = Writer::create(&path, &trace.start).unwrap();
        trace.steps.iter().for_each(|step| writer.add(step).unwrap());
        assert_eq!(read(&path).unwrap(), trace);
        let (mut next, mut whole) = (Writer::resume(&path).unwrap(), trace.clone());
        next.add(&trace.steps[1]).unwrap();
        whole.steps.push(trace.steps[1].clone());
        assert_eq!(read(&path).unwrap(), whole);
        let again = Writer::create(&path, &trace.start).err().unwrap().to_string();
        assert!(again.contains("trace.jsonl") && again.contains("exists"), "{again}");
    }

    #[test]
    fn broken_files_are_named_with_their_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.jsonl");
        assert!(read(&path).unwrap_err().to_string().contains("trace.jsonl"));
        let start = serde_json::to_string(&example().start).unwrap();
        for (text, expected) in [
            (String::new(), "did not begin"),
            ("{}".into(), "line 1"),
            (format!("{start}\n{{\"step\": 0"), "line 2"),
            (
                format!(
                    "{start}\n{{\"step\":0,\"loss\":1.0,\"loss_bits\":\"0\",\"count\":1.0,\"prints\":[\"0\"]}}"
                ),
                "1 hashes for 2 tensors",
            ),
        ] {
            std::fs::write(&path, &text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_environment_is_read_or_refused() {
        let read = |pairs: &[(&str, &str)]| {
            TraceOptions::from(|name| {
                pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string())
            })
        };
        assert!(read(&[(STEPS, "3")]).unwrap().is_none());
        let options = [(FILE, "a"), (STEPS, "3"), (BUCKET_CAP_MB, "0.5"), (RESUME, "2"), (END_ROUND, "1")];
        let options = read(&options).unwrap().unwrap();
        assert_eq!((options.steps, options.caps), (Some(3), Some(BucketCaps::of_mib(0.5))));
        assert_eq!((options.resume, options.end_round), (Some(2), Some(1)));
        for (name, value) in
            [(STEPS, "0"), (RESUME, "-1"), (STEPS, "many"), (BUCKET_CAP_MB, "-1"), (BUCKET_CAP_MB, "inf")]
        {
            let error = read(&[(FILE, "a"), (name, value)]).err().unwrap().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }
}
