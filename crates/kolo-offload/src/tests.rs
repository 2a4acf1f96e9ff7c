//! An offloaded optimizer beside the same one in memory.

use std::ops::Range;
use std::path::Path;

use crate::FolderStore;
use kolo_optim::{
    Averaged, Kind, Layout, OPTIMIZERS, Optimizer, ParamSpec, Scope, Settings, StateStore, StoreFault,
    Stored, Update, check_store, named, state_is_finite, state_names, visit_elements, visit_state,
};
use kolo_reduction::{BLOCK, blocks};

fn offloaded<O: Optimizer>(optimizer: O, folder: &Path) -> Stored<O, FolderStore> {
    Stored::new(optimizer, FolderStore::new(folder)).unwrap()
}

/// More state than is read ahead, in tensors that fill blocks and that do not.
fn layout() -> Layout {
    let kind = Kind::Parameter { decay: true };
    let specs: [(&str, &[usize]); 5] = [
        ("bias", &[7]),
        ("large", &[38 * BLOCK + 3]),
        ("nothing", &[0]),
        ("matrix", &[64, 80]),
        ("last", &[BLOCK]),
    ];
    Layout::new(specs.iter().map(|(name, shape)| ParamSpec::new(*name, shape.to_vec(), kind)).collect())
}

fn number(seed: u64, element: usize) -> f32 {
    let hash =
        (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (element as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((hash >> 40) as f32 / (1 << 24) as f32) - 0.5
}

/// Runs steps whose blocks come in another order in each third step, and leaves one tensor out in each
/// second.
fn train(optimizer: &mut dyn Optimizer, layout: &Layout, values: &mut [f32], steps: Range<u64>) {
    let whole = optimizer.scope() == Scope::Tensor;
    for step in steps {
        optimizer.begin(step + 1, 0.01);
        let mut runs: Vec<Range<usize>> = blocks(layout, optimizer.scope()).collect();
        match step % 3 {
            0 => runs.reverse(),
            1 => runs.rotate_left(2),
            _ => {}
        }
        let unused = layout.spans()[3].range();
        for run in runs.into_iter().filter(|run| step % 2 == 0 || !unused.contains(&run.start)) {
            // In pieces, as the step calls it; the last step passes a whole block at once.
            let piece = if whole || step % 4 == 3 { run.len() } else { 1000 };
            for start in run.clone().step_by(piece) {
                let range = start..run.end.min(start + piece);
                let gradient: Vec<f32> = range.clone().map(|element| number(step, element)).collect();
                let parameters = &mut values[range.clone()];
                optimizer.update(Update {
                    range,
                    parameters,
                    gradient: &gradient,
                    scale: 0.5,
                    decay: true,
                    group: 0,
                });
            }
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn state(optimizer: &mut dyn Optimizer, len: usize) -> Vec<(&'static str, Vec<u32>)> {
    let mut all: Vec<(&'static str, Vec<u32>)> = Vec::new();
    visit_state(optimizer, &mut |name, start, values| {
        if all.last().is_none_or(|(last, _)| *last != name) {
            all.push((name, Vec::new()));
        }
        let array = &mut all.last_mut().unwrap().1;
        assert_eq!(array.len(), start, "runs of {name} follow one another");
        array.extend(values.iter().map(|value| value.to_bits()));
    });
    assert!(all.iter().all(|(_, array)| array.len() == len));
    all
}

#[test]
fn every_optimizer_has_the_bits_of_the_one_in_memory() {
    let (layout, folder) = (layout(), tempfile::tempdir().unwrap());
    for (number_of, entry) in OPTIMIZERS.iter().enumerate() {
        for momentum in [false, true].into_iter().filter(|momentum| !momentum || entry.name == "sgd") {
            let settings = match momentum {
                true => Settings::default().with("momentum", 0.9),
                false => Settings::default(),
            };
            let make = || -> Box<dyn Optimizer> {
                let named = named(entry.name, &settings).unwrap();
                // Half of them with an average.
                if number_of % 2 == 1 { Box::new(Averaged::new(named, 0.9, true)) } else { named }
            };
            let start: Vec<f32> = (0..layout.len()).map(|element| number(77, element)).collect();
            let (mut plain, mut expected) = (make(), start.clone());
            let (mut offloaded, mut found) = (offloaded(make(), folder.path()), start);
            plain.init(&layout);
            offloaded.init(&layout);
            assert_eq!(state_names(&mut offloaded), state_names(&mut plain));
            train(&mut plain, &layout, &mut expected, 0..4);
            train(&mut offloaded, &layout, &mut found, 0..4);
            assert!(bits(&found) == bits(&expected), "{}", entry.name);
            let len = layout.len();
            assert!(state(&mut offloaded, len) == state(&mut plain, len), "{}", entry.name);
            // What a visit changes is kept, as when a checkpoint is loaded.
            for optimizer in [&mut plain as &mut dyn Optimizer, &mut offloaded] {
                visit_state(optimizer, &mut |_, start, values| {
                    values
                        .iter_mut()
                        .enumerate()
                        .for_each(|(at, value)| *value = number(5, start + at).abs());
                });
            }
            train(&mut plain, &layout, &mut expected, 4..6);
            train(&mut offloaded, &layout, &mut found, 4..6);
            assert!(bits(&found) == bits(&expected), "{} after a visit", entry.name);
            assert!(state(&mut offloaded, len) == state(&mut plain, len), "{} after a visit", entry.name);
            // A new beginning has no state of the run before.
            offloaded.init(&layout);
            plain.init(&layout);
            assert!(state(&mut offloaded, len) == state(&mut plain, len), "{} anew", entry.name);
            check_store(&mut offloaded).unwrap();
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the file has no name");
}

/// A worker that begins anew when others have died needs the folder no more.
#[test]
fn a_new_beginning_is_in_the_same_file_and_sees_nothing_of_the_run_before() {
    let kind = Kind::Parameter { decay: true };
    let one = |len: usize| Layout::new(vec![ParamSpec::new("one", vec![len], kind)]);
    for name in ["adamw", "lamb"] {
        let folder = tempfile::tempdir().unwrap();
        let make = || named(name, &Settings::default()).unwrap();
        let (mut plain, mut offloaded) = (make(), offloaded(make(), folder.path()));
        std::fs::remove_dir(folder.path()).unwrap();
        // Larger and smaller than before, with a last block that is not full.
        for (round, len) in [3 * BLOCK, 5 * BLOCK + 9, BLOCK + 1, 4 * BLOCK].into_iter().enumerate() {
            let (layout, touched) = (one(len), [7, len - 2]);
            let mut values: [Vec<f32>; 2] = std::array::from_fn(|_| (0..len).map(|n| number(3, n)).collect());
            let mut states = Vec::new();
            for (optimizer, values) in
                [&mut plain as &mut dyn Optimizer, &mut offloaded].into_iter().zip(&mut values)
            {
                optimizer.init(&layout);
                // A few elements of one array, as of a checkpoint that is mostly 0.
                visit_state(optimizer, &mut |name, start, state| {
                    let of_second =
                        |at: &&usize| name == "second_moment" && (start..start + state.len()).contains(at);
                    let here: Vec<usize> = touched.iter().filter(of_second).map(|at| at - start).collect();
                    here.into_iter().for_each(|at| state[at] = 1.0 + round as f32);
                });
                for step in 0..2 {
                    optimizer.begin(step + 1, 0.01);
                    for range in blocks(&layout, optimizer.scope()) {
                        let gradient: Vec<f32> = range.clone().map(|n| number(step, n)).collect();
                        let parameters = &mut values[range.clone()];
                        let (scale, decay, group) = (0.5, true, 0);
                        optimizer.update(Update {
                            range,
                            parameters,
                            gradient: &gradient,
                            scale,
                            decay,
                            group,
                        });
                    }
                }
                states.push(state(optimizer, len));
            }
            check_store(&mut offloaded).unwrap();
            assert!(bits(&values[0]) == bits(&values[1]) && states[0] == states[1], "{name}, round {round}");
        }
    }
}

/// Elements of one array are read and changed as in memory, in a file that has nothing yet, some, and what
/// an earlier beginning has left.
#[test]
fn elements_of_one_array_are_those_of_the_one_in_memory() {
    let (layout, folder) = (layout(), tempfile::tempdir().unwrap());
    let len = layout.len();
    for name in ["adamw", "lamb"] {
        let make = || named(name, &Settings::default()).unwrap();
        let (mut plain, mut offloaded) = (make(), offloaded(make(), folder.path()));
        for (round, steps) in [0, 1, 0, 3].into_iter().enumerate() {
            let both = [&mut plain as &mut dyn Optimizer, &mut offloaded];
            let found = both.map(|optimizer| {
                optimizer.init(&layout);
                let mut values = vec![0.5; len];
                train(optimizer, &layout, &mut values, 0..steps);
                let mut read = Vec::new();
                for wanted in [0..5, 3..2 * BLOCK + 1, len - 7..len, 6..8] {
                    let (mut next, mut own) = (wanted.start, Vec::new());
                    visit_elements(optimizer, "second_moment", wanted.clone(), &mut |place, values| {
                        assert_eq!((place.start, place.len()), (next, values.len()));
                        next = place.end;
                        own.extend(bits(values));
                        values.iter_mut().zip(place).for_each(|(value, at)| {
                            *value += number(round as u64, at).abs();
                        });
                    });
                    assert_eq!(next, wanted.end);
                    read.push(own);
                }
                visit_elements(optimizer, "no array", 0..len, &mut |_, _| panic!("there is none"));
                (read, state(optimizer, len))
            });
            assert!(found[0] == found[1], "{name}, round {round}");
            check_store(&mut offloaded).unwrap();
        }
    }
}

/// More than any disk has.
const TOO_MUCH: u64 = 1 << 60;

#[test]
fn without_room_for_more_a_worker_that_has_begun_goes_on_in_memory() {
    let (layout, folder) = (layout(), tempfile::tempdir().unwrap());
    let store = || {
        let mut store = FolderStore::new(folder.path());
        store.init(&layout, Scope::Element, vec!["first_moment"]);
        store
    };
    let failure = store().space(TOO_MUCH).err().unwrap();
    assert_eq!(failure.fault, StoreFault::NoRoom);
    let mut store = store();
    store.begin();
    let space = store.space(TOO_MUCH).unwrap();
    // Other programs write to that disk.
    let but_numbers = |text: String| text.replace(|c: char| c.is_ascii_digit(), "");
    let expected = format!("{failure}; until this worker ends, that state is in memory");
    assert_eq!(space.warning.map(but_numbers), Some(but_numbers(expected)));
    let mut all = [1.0f32; 3];
    space.file.read(TOO_MUCH - 12, &mut all).unwrap();
    assert_eq!(all, [0.0; 3]);
}

#[test]
fn state_that_is_not_finite_is_found_and_keeps_its_bits() {
    let (layout, folder) = (layout(), tempfile::tempdir().unwrap());
    let adamw = named("adamw", &Settings::default()).unwrap();
    let mut offloaded = offloaded(adamw, folder.path());
    offloaded.init(&layout);
    assert!(state_is_finite(&mut offloaded));
    let signaling = f32::from_bits(0x7f80_0001);
    visit_state(&mut offloaded, &mut |name, start, values| {
        if name == "second_moment" && start == 0 {
            values[..3].copy_from_slice(&[signaling, f32::NEG_INFINITY, -0.0]);
        }
    });
    assert!(!state_is_finite(&mut offloaded));
    let second = state(&mut offloaded, layout.len()).swap_remove(1).1;
    assert_eq!(second[..4], [0x7f80_0001, f32::NEG_INFINITY.to_bits(), (-0.0f32).to_bits(), 0]);
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_changes_no_more_values() {
    let (layout, folder) = (layout(), tempfile::tempdir().unwrap());
    let adamw = named("adamw", &Settings::default()).unwrap();
    let store = FolderStore::new(folder.path());
    let file = store.file_for_tests();
    let mut offloaded = Stored::new(adamw, store).unwrap();
    offloaded.init(&layout);
    let mut values = vec![0.5; layout.len()];
    train(&mut offloaded, &layout, &mut values, 0..1);
    check_store(&mut offloaded).unwrap();
    // Waits for the writes, which would make the file longer again.
    visit_state(&mut offloaded, &mut |_, _, _| {});
    file.cut_for_tests();
    train(&mut offloaded, &layout, &mut values, 1..2);
    let problem = check_store(&mut offloaded).unwrap_err().problem;
    assert!(problem.starts_with("cannot read byte "), "{problem}");
    assert!(problem.contains(&folder.path().display().to_string()), "{problem}");
    assert!(problem.ends_with("check the disk, and continue from a checkpoint"), "{problem}");
    let before = bits(&values);
    train(&mut offloaded, &layout, &mut values, 2..4);
    assert!(bits(&values) == before, "a failure stays");
    visit_state(&mut offloaded, &mut |_, _, _| panic!("state that is lost is not visited"));
}

#[test]
fn a_missing_folder_is_a_failure_of_the_store() {
    let sgd = named("sgd", &Settings::default().with("momentum", 0.9)).unwrap();
    let mut offloaded = offloaded(sgd, "/nowhere/at/all".as_ref());
    offloaded.init(&layout());
    let problem = check_store(&mut offloaded).unwrap_err().problem;
    assert!(
        problem.starts_with("/nowhere/at/all: the folder for the optimizer's state does not exist"),
        "{problem}"
    );
}
