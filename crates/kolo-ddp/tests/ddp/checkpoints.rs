//! Checkpoints: the same bits after them, damage of any kind found and named, disks that fill up or
//! disappear.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::checkpoints::{adamw, at, flip, step, three};
use crate::common::{self, NAMES, WIDTH, combinations, replica, run_shard, specs};
use kolo_comm::{Group, Rank, threads};
use kolo_ddp::checkpoint::{self, Part, Reader, Set, Snapshot, Writer};
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::{Config, Kind, Layout, MemoryOrder, ParamSpec, Replica};

const FILES: [&str; 4] = ["weights.safetensors", "optimizer.safetensors", "position.json", "manifest.json"];

fn steps(folder: &Path) -> Vec<u64> {
    checkpoint::list(folder).unwrap().into_iter().map(|(step, _)| step).collect()
}

/// Every optimizer, and every reduction.
#[test]
fn a_checkpoint_continues_in_the_same_bits() {
    for (optimizer, settings, reduction) in combinations() {
        let keeps = !reduction.shard_state().is_empty();
        let config = Config { reduction, ..Config::default() };
        let new = || replica(Arc::new(Group::alone()), &config, optimizer.name, settings.clone());
        let folder = tempfile::tempdir().unwrap();
        let mut first = new();
        (0..3).for_each(|n| step(&mut first, n));
        let path = checkpoint::save(folder.path(), &mut first, &at(3)).unwrap();
        let found = checkpoint::newest(folder.path()).unwrap().unwrap();
        assert_eq!((found.step, found.path, found.passed_over.len()), (3, path.clone(), 0));
        assert_eq!(path.join("residuals.safetensors").exists(), keeps);

        let mut second = new();
        assert_eq!(checkpoint::load(&path, &mut second).unwrap(), at(3));
        (3..6).for_each(|n| [&mut first, &mut second].into_iter().for_each(|replica| step(replica, n)));
        assert_eq!(first.values().unwrap(), second.values().unwrap());
        let hashes = [&mut first, &mut second].map(|replica| checkpoint::weights_sha256(replica).unwrap());
        assert_eq!(hashes[0], hashes[1]);
    }
}

/// Saved by rank 0 of three, read by one, two and four.
#[test]
fn a_checkpoint_continues_in_the_same_bits_with_another_number_of_workers() {
    const SHARDS: usize = 4;
    let steps = |replica: &mut Replica, steps: std::ops::Range<usize>| {
        for step in steps {
            for shard in replica.shards() {
                run_shard(replica, &[step * SHARDS + shard, 3 * shard]);
            }
            replica.step(0.05).unwrap();
        }
    };
    for (optimizer, settings, reduction) in combinations() {
        let folder = tempfile::tempdir().unwrap();
        let (name, keeps) = (reduction.name().to_string(), !reduction.shard_state().is_empty());
        let config = Config { shards: Some(SHARDS), reduction, ..Config::default() };
        let new = |group| replica(Arc::new(group), &config, optimizer.name, settings.clone());
        let expected = threads::spawn(3, |group| {
            let mut replica = new(group);
            steps(&mut replica, 0..3);
            let saves = replica.group().rank() == Rank(0);
            if saves && keeps {
                let error = checkpoint::save(folder.path(), &mut replica, &at(3)).unwrap_err().to_string();
                assert!(error.contains(&name) && error.contains("gather_residuals"), "{error}");
            }
            replica.gather_residuals().unwrap();
            if saves {
                checkpoint::save(folder.path(), &mut replica, &at(3)).unwrap();
            }
            steps(&mut replica, 3..6);
            replica.values().unwrap().to_vec()
        })
        .unwrap()
        .remove(0);
        let path = checkpoint::path(folder.path(), 3);
        for world in [1, 2, 4] {
            for values in threads::spawn(world, |group| {
                let mut replica = new(group);
                checkpoint::load(&path, &mut replica).unwrap();
                steps(&mut replica, 3..6);
                replica.values().unwrap().to_vec()
            })
            .unwrap()
            {
                assert!(values == expected, "{name} on {world} ranks");
            }
        }
    }
}

#[test]
fn a_checkpoint_of_another_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = checkpoint::save(folder.path(), &mut adamw(), &at(0)).unwrap();
    let load = |specs: Vec<kolo_ddp::ParamSpec>| {
        let len = specs.iter().map(|spec| spec.shape.iter().product::<usize>()).sum();
        let adamw = optimizer::named("adamw", &Settings::default()).unwrap();
        let group = Arc::new(Group::alone());
        let mut other = Replica::new(group, specs, vec![0.0; len], &Config::default(), adamw).unwrap();
        checkpoint::load(&path, &mut other).unwrap_err().to_string()
    };
    let mut renamed = specs();
    renamed[3].name = "head".into();
    let mut reshaped = specs();
    reshaped[1].shape = vec![WIDTH, 1];
    let fewer = specs()[..4].to_vec();
    for (specs, texts) in [
        (renamed, &["tensor `head`", "another model"][..]),
        (reshaped, &["`shared`", "[300, 1]", "another model"]),
        (fewer, &["`mean`, which the model does not have", "another model"]),
    ] {
        let error = load(specs);
        assert!(error.contains("weights.safetensors"), "{error}");
        assert!(texts.iter().all(|text| error.contains(text)), "{error}");
    }
    let mut sgd = replica(
        Arc::new(Group::alone()),
        &Config::default(),
        "sgd",
        Settings::default().with("momentum", 0.9),
    );
    let error = checkpoint::load(&path, &mut sgd).unwrap_err().to_string();
    assert!(error.contains("optimizer.safetensors") && error.contains("velocity/first"), "{error}");
}

/// In each file, bits at its beginning, in its middle and at its end.
#[test]
fn a_flipped_bit_is_found_and_named() {
    for name in FILES {
        let folder = tempfile::tempdir().unwrap();
        three(folder.path());
        let newest = checkpoint::path(folder.path(), 3);
        let bits = 8 * fs::metadata(newest.join(name)).unwrap().len() as usize;
        for bit in [0, 3, 8 * 8 + 1, bits / 2, bits - 10, bits - 1] {
            flip(&newest.join(name), bit);
            let damaged = |error: &str| error.contains("step-00000003") && error.contains(name);
            let error = checkpoint::verify(&newest).unwrap_err().to_string();
            assert!(damaged(&error) && error.contains("damaged"), "{name}, bit {bit}: {error}");
            let error = checkpoint::load(&newest, &mut adamw()).unwrap_err().to_string();
            assert!(damaged(&error), "{name}, bit {bit}: {error}");
            let found = checkpoint::newest(folder.path()).unwrap().unwrap();
            assert_eq!((found.step, found.passed_over.len()), (2, 1), "{name}, bit {bit}");
            assert!(damaged(&found.passed_over[0].to_string()), "{}", found.passed_over[0]);
            flip(&newest.join(name), bit);
        }
        checkpoint::verify(&newest).unwrap();
    }
}

#[test]
fn half_written_checkpoints_are_named_and_passed_over() {
    for name in FILES {
        let folder = tempfile::tempdir().unwrap();
        three(folder.path());
        let file = |step| checkpoint::path(folder.path(), step).join(name);
        let whole = fs::read(file(3)).unwrap();
        fs::write(file(3), &whole[..whole.len() / 2]).unwrap();
        fs::remove_file(file(2)).unwrap();
        let found = checkpoint::newest(folder.path()).unwrap().unwrap();
        assert_eq!(found.step, 1);
        let errors: Vec<String> = found.passed_over.iter().map(|error| error.to_string()).collect();
        assert!(errors[0].contains("step-00000003") && errors[0].contains(name), "{errors:?}");
        assert!(errors[1].contains("step-00000002") && errors[1].contains(name), "{errors:?}");
        assert!(errors[1].contains("is missing"), "{errors:?}");

        fs::remove_file(file(1)).unwrap();
        let error = checkpoint::newest(folder.path()).unwrap_err().to_string();
        for step in 1..=3 {
            assert!(error.contains(&format!("step-{step:08}/{name}")), "{error}");
        }
    }
    let nowhere = tempfile::tempdir().unwrap();
    assert!(checkpoint::newest(nowhere.path()).unwrap().is_none());
    assert!(checkpoint::newest(&nowhere.path().join("none")).unwrap().is_none());
}

#[test]
fn the_last_ones_are_kept_and_damaged_ones_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let mut replica = three(folder.path());
    let write = |replica: &mut Replica, step: u64, keep: usize| {
        let writer = Writer::new(folder.path(), keep).unwrap();
        writer.put(checkpoint::snapshot(replica, &at(step)).unwrap());
        writer.finish().unwrap();
    };
    write(&mut replica, 4, 3);
    assert_eq!(steps(folder.path()), [2, 3, 4]);
    fs::write(checkpoint::path(folder.path(), 4).join("weights.safetensors"), b"short").unwrap();
    write(&mut replica, 5, 2);
    assert_eq!(steps(folder.path()), [3, 4, 5], "4 is damaged, 3 is the other good one");
    // A run that went back to before 5: its checkpoint is kept, and so are newer ones.
    write(&mut replica, 4, 1);
    assert_eq!(steps(folder.path()), [4, 5]);
    checkpoint::verify(&checkpoint::path(folder.path(), 4)).unwrap();
    assert!(Writer::new(folder.path(), 0).is_err_and(|error| error.to_string().contains("at least 1")));
}

/// Returns the result of a writer whose folder is away when it first writes.
fn interrupted(comes_back: bool) -> (tempfile::TempDir, PathBuf, Result<(), kolo_ddp::CheckpointError>) {
    let top = tempfile::tempdir().unwrap();
    let (folder, away) = (top.path().join("checkpoints"), top.path().join("away"));
    let mut replica = three(&folder);
    let writer = Writer::new(&folder, 3).unwrap();
    fs::rename(&folder, &away).unwrap();
    writer.put(checkpoint::snapshot(&mut replica, &at(4)).unwrap());
    if comes_back {
        fs::rename(&away, &folder).unwrap();
    }
    let end = writer.finish();
    (top, folder, end)
}

/// The checkpoint is written, whether the first attempt, the second one or both come after the folder is
/// back.
#[test]
fn a_folder_that_comes_back_gets_its_checkpoint() {
    let (_top, folder, end) = interrupted(true);
    end.unwrap();
    assert_eq!(steps(&folder), [2, 3, 4]);
    checkpoint::verify(&checkpoint::path(&folder, 4)).unwrap();
}

#[test]
fn a_folder_that_stays_away_is_named_and_not_made_anew() {
    let (_top, folder, end) = interrupted(false);
    let error = end.unwrap_err().to_string();
    assert!(error.contains("checkpoints") && error.contains("gone"), "{error}");
    assert!(!folder.exists());
}

/// A file in place of the next checkpoint's draft prevents that one, and only that one.
#[test]
fn a_checkpoint_that_cannot_be_written_costs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut replica = three(folder.path());
    let writer = Writer::new(folder.path(), 1).unwrap();
    fs::write(folder.path().join(".step-00000004.part"), b"in the way").unwrap();
    writer.put(checkpoint::snapshot(&mut replica, &at(4)).unwrap());
    let error = writer.finish().unwrap_err().to_string();
    assert!(error.contains(".step-00000004.part"), "{error}");
    assert_eq!(steps(folder.path()), [1, 2, 3], "nothing is removed for one that is not there");

    let writer = Writer::new(folder.path(), 1).unwrap();
    writer.put(checkpoint::snapshot(&mut replica, &at(5)).unwrap());
    writer.finish().unwrap();
    assert_eq!(steps(folder.path()), [5]);
}

#[test]
fn what_a_killed_run_left_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(".step-00000009.part")).unwrap();
    fs::write(folder.path().join(".step-00000009.part/weights.safetensors"), b"half").unwrap();
    assert!(checkpoint::newest(folder.path()).unwrap().is_none());
    drop(Writer::new(folder.path(), 1).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Three ranks each hold a third of the optimizer's state, cut without regard to tensors, and five read it.
#[test]
fn state_in_parts_is_read_by_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let layout = adamw().layout().clone();
    let value = |set: usize, index: usize| common::noise(set, index);
    let values =
        |set: usize, range: std::ops::Range<usize>| range.map(|i| value(set, i)).collect::<Vec<f32>>();
    let cuts = [0, 500, 700, layout.len()];
    let part = |set, file: &str, prefix: &str, start: usize, values: Vec<f32>| Part {
        set,
        file: file.into(),
        prefix: prefix.into(),
        start,
        values: values.into(),
    };
    let mut parts = vec![part(Set::Weights, "weights.safetensors", "", 0, values(0, 0..layout.len()))];
    for (rank, cut) in cuts.windows(2).enumerate() {
        let file = format!("optimizer-{rank}.safetensors");
        for (set, prefix) in [(1, "m/"), (2, "v/")] {
            parts.push(part(Set::Optimizer, &file, prefix, cut[0], values(set, cut[0]..cut[1])));
        }
    }
    let write = |parts: Vec<Part>, step| {
        let writer = Writer::new(folder.path(), 9).unwrap();
        writer.put(Snapshot::new(layout.clone(), parts, &at(step)).unwrap());
        writer.finish().unwrap();
        checkpoint::path(folder.path(), step)
    };
    let path = write(parts.clone(), 1);
    assert!(path.join("optimizer-2.safetensors").exists() && !path.join("optimizer.safetensors").exists());
    for ranks in [1, 2, 5] {
        let reader = Reader::open(&path).unwrap();
        for rank in 0..ranks {
            let range = layout.len() * rank / ranks..layout.len() * (rank + 1) / ranks;
            for (set, prefix) in [(1, "m/"), (2, "v/")] {
                let mut own = vec![0.0; range.len()];
                reader.read(Set::Optimizer, prefix, &layout, range.start, &mut own).unwrap();
                assert_eq!(own, values(set, range.clone()), "rank {rank} of {ranks}");
            }
        }
    }
    // A rank does not open files that it does not need.
    fs::remove_file(path.join("optimizer-2.safetensors")).unwrap();
    let reader = Reader::open(&path).unwrap();
    let mut own = vec![0.0; 700];
    reader.read(Set::Optimizer, "m/", &layout, 0, &mut own).unwrap();
    let mut all = vec![0.0; layout.len()];
    let error = reader.read(Set::Optimizer, "m/", &layout, 0, &mut all).unwrap_err().to_string();
    assert!(error.contains("optimizer-2.safetensors"), "{error}");

    // A part that is missing, and one that is there twice.
    let without: Vec<Part> = parts.iter().filter(|p| p.file != "optimizer-1.safetensors").cloned().collect();
    let twice: Vec<Part> = parts
        .iter()
        .cloned()
        .chain([part(Set::Optimizer, "optimizer-9.safetensors", "m/", 0, values(1, 0..10))])
        .collect();
    for (step, parts, texts) in
        [(2, without, ["has no elements of `m/shared`", "manifest.json"]), (3, twice, ["twice", "`m/first`"])]
    {
        let error =
            Reader::open(&write(parts, step)).unwrap().read(Set::Optimizer, "m/", &layout, 0, &mut all);
        let error = error.unwrap_err().to_string();
        assert!(texts.iter().all(|text| error.contains(text)), "{error}");
    }
    assert_eq!(NAMES[1], "shared");
}

#[test]
fn parts_that_lead_nowhere_are_refused() {
    let layout = adamw().layout().clone();
    for (file, start, text) in [
        ("weights.safetensors", 1, "elements 1..1501"),
        ("../weights.safetensors", 0, "`../weights.safetensors`"),
        ("weights-/x.safetensors", 0, "`weights-/x.safetensors`"),
        ("values.safetensors", 0, "`values.safetensors`"),
    ] {
        let values = vec![0.0; layout.len()].into();
        let part = Part { set: Set::Weights, file: file.into(), prefix: String::new(), start, values };
        let error = Snapshot::new(layout.clone(), vec![part], &at(1)).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}

/// A model whose matrices lie in memory by columns writes the same files as one whose matrices lie by rows,
/// and each reads the other's.
#[test]
fn files_are_row_major_whatever_the_memory_order() {
    let (shape, len) = (vec![3, 1, 4, 5], 60);
    let by_columns = MemoryOrder::of_strides(&shape, &[1, 1, 15, 3]);
    let layout = |order: &MemoryOrder| {
        let kind = Kind::Parameter { decay: true };
        let matrix = ParamSpec { order: order.clone(), ..ParamSpec::new("matrix", shape.clone(), kind) };
        Arc::new(Layout::new(vec![ParamSpec::new("vector", vec![7], kind), matrix]))
    };
    let (rows, columns) = (layout(&MemoryOrder::row_major()), layout(&by_columns));
    let flat: Vec<f32> = (0..7 + len).map(|i| i as f32).collect();
    let in_columns: Vec<f32> =
        flat[..7].iter().copied().chain(by_columns.row_major_indices(&shape).map(|i| flat[7 + i])).collect();
    assert_ne!(flat, in_columns);
    let both = [(&rows, &flat), (&columns, &in_columns)];

    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, layout: &Arc<Layout>, parts: Vec<Part>| {
        Snapshot::new(layout.clone(), parts, &at(1)).unwrap().write(&folder.path().join(name)).unwrap()
    };
    let written = [0, 1].map(|i| write(&i.to_string(), both[i].0, vec![Part::weights(both[i].1)]));
    let contents = written.each_ref().map(|path| fs::read(path.join(FILES[0])).unwrap());
    assert_eq!(contents[0], contents[1]);
    for path in &written {
        let reader = Reader::open(path).unwrap();
        for (layout, values) in both {
            for range in [0..67, 3..40, 20..21] {
                let mut read = vec![0.0; range.len()];
                reader.read(Set::Weights, "", layout, range.start, &mut read).unwrap();
                assert_eq!(read, values[range]);
            }
        }
    }

    // A tensor that is cut is stored as it lies, and marked so.
    let half = |start: usize, end: usize, file: &str| Part {
        set: Set::Weights,
        file: file.into(),
        prefix: String::new(),
        start,
        values: in_columns[start..end].to_vec().into(),
    };
    let cut = write(
        "cut",
        &columns,
        vec![half(0, 30, "weights-0.safetensors"), half(30, 67, "weights-1.safetensors")],
    );
    let reader = Reader::open(&cut).unwrap();
    let mut read = vec![0.0; 67];
    reader.read(Set::Weights, "", &columns, 0, &mut read).unwrap();
    assert_eq!(read, in_columns);
    let error = reader.read(Set::Weights, "", &rows, 0, &mut read).unwrap_err().to_string();
    assert!(error.contains("`matrix[0..23]` in another memory order"), "{error}");
}
