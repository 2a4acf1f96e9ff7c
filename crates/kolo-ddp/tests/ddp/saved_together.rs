//! Checkpoints whose values come from their owners while rank 0 writes them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::common::checkpoints::at;
use crate::common::groups::{alone, config, replica_with, train, two_generations};
use crate::common::{bits, noise};
use kolo_comm::{Group, threads};
use kolo_ddp::checkpoint::{self, Outline, Source};
use kolo_ddp::optimizer::{self, Averaged, Optimizer, Settings};
use kolo_ddp::{CheckpointError, Config, Error, Replica, Sharding, reduction};

const CUT: u64 = 4;
const STEPS: u64 = 6;

/// Adam with averages, or an optimizer that steps whole tensors.
fn optimizer(name: &str) -> Averaged<Box<dyn Optimizer>> {
    Averaged::new(optimizer::named(name, &Settings::default()).unwrap(), 0.9, true)
}

fn of(sharding: Sharding, redundancy: usize, base: &Config) -> Config {
    Config { sharding, redundancy, ..base.clone() }
}

/// Returns the files of a checkpoint by name.
fn files(folder: &Path, step: u64) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(checkpoint::path(folder, step)).unwrap();
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap())
    };
    entries.map(file).collect()
}

/// Returns the files that a plain run of one rank saves after `step` steps.
fn plain(base: &Config, name: &str, step: u64) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let mut replica = replica_with(Group::alone(), base, optimizer(name));
    train(&mut replica, step);
    checkpoint::save(folder.path(), &mut replica, &at(step)).unwrap();
    files(folder.path(), step)
}

#[test]
fn owners_save_the_bytes_of_the_plain_run() {
    let offloaded = tempfile::tempdir().unwrap();
    let base = || config(Vec::new(), 0.0625);
    let with = |words: &str| Config { reduction: reduction::parse(words).unwrap(), ..base() };
    let stages = [Sharding::Optimizer, Sharding::Gradients, Sharding::Parameters];
    for (name, base, stages) in [
        ("adamw", base(), &stages[..]),
        ("lamb", base(), &stages),
        ("adamw", with("bf16"), &stages[..1]),
        // Its residuals are in a file of their own, by shard.
        ("adamw", with("ef-sign:dense_below=0"), &stages[..1]),
    ] {
        let expected = plain(&base, name, CUT);
        for (place, stage) in stages.iter().enumerate() {
            for world in 1..=5 {
                let redundancy = 1 + (world + place) % 2;
                let offload = (world % 2 == 1).then(|| offloaded.path().to_path_buf());
                let config = Config { offload, ..of(*stage, redundancy, &base) };
                let folder = tempfile::tempdir().unwrap();
                threads::spawn(world, |group| {
                    let mut replica = replica_with(group, &config, optimizer(name));
                    train(&mut replica, CUT);
                    let written = checkpoint::save_together(folder.path(), &mut replica, &at(CUT));
                    assert_eq!(written.unwrap(), checkpoint::path(folder.path(), CUT));
                })
                .unwrap();
                let found = files(folder.path(), CUT);
                let case = format!("{name}, {stage:?}, {world} ranks, {redundancy} owners");
                assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{case}");
                for (file, bytes) in &expected {
                    assert!(found[file] == *bytes, "{file}: {case}");
                }
            }
        }
    }
}

/// A source that reports after so many reads, and goes on when it is answered.
struct Reporting<'a> {
    source: &'a mut dyn Source,
    left: usize,
    report: &'a Sender<()>,
    answer: &'a Receiver<()>,
}

impl Source for Reporting<'_> {
    fn read(&mut self, part: usize, place: Range<usize>) -> Result<Cow<'_, [f32]>, CheckpointError> {
        if self.left == 0 {
            self.report.send(()).unwrap();
            self.answer.recv().unwrap();
        }
        self.left = self.left.wrapping_sub(1);
        self.source.read(part, place)
    }
}

/// Saves on rank 0; a thread of `dying`'s group makes it fail after so many reads.
fn save_until_somebody_dies(
    replica: &mut Replica,
    folder: &Path,
    dying: &Group,
    reads: usize,
) -> Result<(), Error> {
    let ((report, reported), (answer, answered)) = (channel(), channel());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if reported.recv().is_ok() {
                dying.abandon("it failed");
                answer.send(()).unwrap();
            }
        });
        let write = |outline: &Outline, source: &mut dyn Source| {
            let mut source = Reporting { source, left: reads, report: &report, answer: &answered };
            outline.write(folder, &mut source)
        };
        let written = checkpoint::write_divided(replica, &at(CUT + 1), write).map(drop);
        drop(report);
        written
    })
}

/// Whoever dies while rank 0 saves: the checkpoint before stays, nothing else is left, and the others save
/// the same bytes.
#[test]
fn a_death_in_the_middle_of_a_save_loses_nothing() {
    let base = config(Vec::new(), 0.0625);
    let expected = plain(&base, "adamw", CUT + 1);
    let end = alone(&base, optimizer("adamw"), STEPS);
    for sharding in [Sharding::Optimizer, Sharding::Gradients, Sharding::Parameters] {
        let config = Config { elastic: true, ..of(sharding, 2, &base) };
        for (dead, reads) in [(0, 0), (0, 9), (1, 0), (1, 5), (2, 12)] {
            let folder = tempfile::tempdir().unwrap();
            let stay: Vec<usize> = (0..3).filter(|rank| *rank != dead).collect();
            let groups: [_; 3] = std::array::from_fn(|_| channel::<Arc<Group>>());
            let (to, of_dead): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
            let of_dead = std::sync::Mutex::new(of_dead);
            let ends = two_generations(3, &stay, 0, |first, next| {
                let mut replica = replica_with(first?, &config, optimizer("adamw"));
                let rank = replica.group().rank().0;
                train(&mut replica, CUT);
                checkpoint::save_together(folder.path(), &mut replica, &at(CUT)).unwrap();
                train(&mut replica, CUT + 1);
                let failed = match rank {
                    0 => {
                        let dying = match dead {
                            0 => replica.group().clone(),
                            _ => of_dead.lock().unwrap()[dead].recv().unwrap(),
                        };
                        save_until_somebody_dies(&mut replica, folder.path(), &dying, reads)
                    }
                    rank => {
                        to[rank].send(replica.group().clone()).unwrap();
                        replica.serve_state()
                    }
                };
                assert!(failed.is_err(), "rank {rank} of {sharding:?}, {dead} dies");
                replica.regroup(Arc::new(next?)).unwrap();
                let left = checkpoint::list(folder.path()).unwrap();
                assert_eq!(left.into_iter().map(|(step, _)| step).collect::<Vec<_>>(), [CUT]);
                assert_eq!(replica.steps(), CUT + 1);
                replica.group().barrier().unwrap();
                checkpoint::save_together(folder.path(), &mut replica, &at(CUT + 1)).unwrap();
                train(&mut replica, STEPS);
                Some(bits(&mut replica))
            });
            assert!(ends.len() == 2 && ends.iter().all(|other| *other == end), "{sharding:?}, {dead} dies");
            assert!(files(folder.path(), CUT + 1) == expected, "{sharding:?}, {dead} dies");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no draft is left");
        }
    }
}

/// The values are written as they are: a source that reports others would write those.
#[test]
fn what_is_not_finite_is_not_written() {
    struct Wrong<'a>(&'a mut dyn Source, f32);
    impl Source for Wrong<'_> {
        fn read(&mut self, part: usize, place: Range<usize>) -> Result<Cow<'_, [f32]>, CheckpointError> {
            let mut values = self.0.read(part, place)?.into_owned();
            *values.last_mut().unwrap() = self.1;
            Ok(Cow::Owned(values))
        }
    }
    for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, noise(1, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let config = of(Sharding::Parameters, 1, &config(Vec::new(), 0.0625));
        threads::spawn(2, |group| {
            let mut replica = replica_with(group, &config, optimizer("adamw"));
            train(&mut replica, 1);
            if replica.group().rank().0 == 1 {
                return replica.serve_state().unwrap();
            }
            let write = |outline: &Outline, source: &mut dyn Source| {
                outline.write(folder.path(), &mut Wrong(source, wrong))
            };
            let written = checkpoint::write_divided(&mut replica, &at(1), write).unwrap();
            replica.end_serving().unwrap();
            assert_eq!(written.is_ok(), wrong.is_finite());
            if let Err(error) = written {
                assert!(matches!(&error, CheckpointError::SnapshotNotFinite { step: 1, .. }), "{error}");
            }
            let left = std::fs::read_dir(folder.path()).unwrap().count();
            assert_eq!(left, usize::from(wrong.is_finite()));
        })
        .unwrap();
    }
}
