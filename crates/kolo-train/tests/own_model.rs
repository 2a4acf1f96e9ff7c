//! A user's own model, data set and sink go through the whole trainer like those of the tables.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor, TensorData};
use kolo_burn::{Loss, linear};
use kolo_claim::Candidate;
use kolo_comm::{Group, threads};
use kolo_data::{AugmentKey, Batch, DataSet, Part};
use kolo_train::{
    Error, Job, Mean, Membership, Metric, MetricSink, Recipe, Record, RunFolder, SinkEntry, Summary, Trainer,
    TrainingContext, accuracy, cross_entropy, image_tensors,
};

const CLASSES: usize = 3;
const PIXELS: usize = 16;

/// One linear layer.
#[derive(Module, Debug)]
struct Perceptron {
    layer: Linear,
}

impl Perceptron {
    fn new() -> Self {
        // Not Burn's random state, which all threads of a test share.
        let value = |i: usize| ((i as u64 * 7919) % 101) as f32 / 101.0 - 0.5;
        let values: Vec<f32> = (0..PIXELS * CLASSES).map(value).collect();
        let weight = Param::from_data(TensorData::new(values, [PIXELS, CLASSES]), &Device::flex().autodiff());
        Perceptron { layer: Linear { weight, bias: None } }
    }

    fn scores(&self, images: Tensor<4>) -> Tensor<2> {
        linear(&self.layer, images.flatten(1, 3))
    }
}

impl Perceptron {
    fn loss(&self, batch: Batch, context: &TrainingContext<'_>) -> Loss {
        let (images, labels) = image_tensors(batch, context.device);
        cross_entropy(self.scores(images), labels)
    }

    fn right(&self, batch: Batch, device: &Device) -> [Mean; 1] {
        let (images, labels) = image_tensors(batch, device);
        [accuracy(self.scores(images), labels)]
    }
}

/// Samples that are computed when they are asked for: the brightest quarter says the class.
struct Computed;

impl DataSet for Computed {
    type Batch = Batch;

    fn samples(&self, part: Part) -> usize {
        match part {
            Part::Train => 62,
            Part::Test => 20,
        }
    }

    fn batch(&self, part: Part, indices: &[usize], augment: Option<AugmentKey>) -> Batch {
        let epoch = augment.map_or(0, |key| key.epoch as usize);
        let noise = |at: usize| ((at * 104_729 + epoch * 31 + part as usize) % 89) as f32 / 89.0;
        let pixel = |i: usize, p: usize| noise(i * PIXELS + p) + if p % 4 == i % CLASSES { 0.8 } else { 0.0 };
        let images = indices.iter().flat_map(|&i| (0..PIXELS).map(move |p| pixel(i, p))).collect();
        let labels = indices.iter().map(|i| (i % CLASSES) as i32).collect();
        Batch { images, labels, shape: [indices.len(), 1, 4, 4] }
    }
}

/// Writes the number of each step into a file of its own.
struct Numbers(std::path::PathBuf, String);

impl MetricSink for Numbers {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        if let Record::Step { row, .. } = record {
            self.1 += &format!("{} ", row.step);
            std::fs::write(&self.0, &self.1).unwrap();
        }
        Ok(())
    }
}

const NUMBERS: SinkEntry = SinkEntry {
    name: "numbers.txt",
    about: "the number of each step",
    open: |run| Some(Box::new(Numbers(run.folder?.path().join("numbers.txt"), String::new()))),
};

/// Three epochs of eight steps, of which the last is short; `steps` ends the run before.
fn job(folder: &Path, steps: Option<u64>, resume: bool) -> Job {
    let config = Recipe { epochs: 3, steps, shards: 4, batch_size: 2, ..Recipe::default() };
    let folder = Some(RunFolder::at(folder.into()));
    let mut job = Job { folder, resume, ..Job::new(config) };
    job.sinks.push(NUMBERS);
    job
}

fn run(group: Group, job: Job) -> Result<Option<Summary>, Error> {
    let trainer = Trainer::of(job, Arc::new(Computed), Perceptron::loss).counting("images");
    let trainer = trainer.evaluate([Metric::ACCURACY], Perceptron::right);
    Ok(trainer.train_as(Membership::Fixed(group), Perceptron::new())?.summary)
}

#[test]
fn the_same_weights_on_any_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let whole = run(Group::alone(), job(folder.path(), None, false)).unwrap().unwrap();
    assert_eq!((whole.steps, whole.epochs, whole.parameters), (24, 3, PIXELS * CLASSES));
    assert!(whole.scores.get("accuracy").unwrap() > 0.8 && whole.train_loss < 1.0, "{whole:?}");
    let numbers = std::fs::read_to_string(folder.path().join("numbers.txt")).unwrap();
    assert_eq!(numbers, (0..24).map(|step| format!("{step} ")).collect::<String>());
    for world in [2, 3] {
        let folder = tempfile::tempdir().unwrap();
        let summaries = threads::spawn(world, |group| {
            run(group, job(folder.path(), None, false)).unwrap().map(|summary| summary.weights_sha256)
        });
        // Rank 0 alone has one.
        let summaries: Vec<String> = summaries.unwrap().into_iter().flatten().collect();
        assert_eq!(summaries, std::slice::from_ref(&whole.weights_sha256), "{world} workers");
    }
}

/// Every precision has bits of its own, which no number of workers and no resuming changes. That of `f16`
/// begins with steps that overflow, in the middle of which one run is resumed.
#[test]
fn each_precision_has_one_result_for_any_number_of_workers() {
    let job_in = |compute: &str, folder: &Path, steps, resume| {
        let mut job = job(folder, steps, resume);
        job.config.precision.compute = compute.into();
        job.config.precision.scale = 2f64.powi(20);
        job
    };
    let mut results = Vec::new();
    for compute in ["f32", "bf16", "f16"] {
        let folder = tempfile::tempdir().unwrap();
        let whole = run(Group::alone(), job_in(compute, folder.path(), None, false)).unwrap().unwrap();
        assert!(whole.scores.get("accuracy").unwrap() > 0.7 && whole.train_loss < 1.0, "{whole:?}");
        let lines = std::fs::read_to_string(folder.path().join("steps.jsonl")).unwrap();
        let skipped = lines.lines().filter(|line| line.contains("\"skipped\":true")).count() as u64;
        let scaled = lines.lines().filter(|line| line.contains("\"loss_scale\":")).count() as u64;
        match compute {
            "f16" => {
                assert!(skipped > 2 && skipped < 12 && scaled == 24, "{lines}");
                assert_eq!(whole.skipped_steps, Some(skipped));
            }
            _ => assert_eq!((skipped, scaled, whole.skipped_steps), (0, 0, None)),
        }
        for world in [2, 3] {
            let folder = tempfile::tempdir().unwrap();
            threads::spawn(world, |group| {
                run(group, job_in(compute, folder.path(), Some(2), false)).unwrap()
            })
            .unwrap();
            let resumed = threads::spawn(world, |group| {
                run(group, job_in(compute, folder.path(), None, true)).unwrap()
            });
            let resumed: Vec<Summary> = resumed.unwrap().into_iter().flatten().collect();
            assert_eq!(resumed[0].weights_sha256, whole.weights_sha256, "{compute}, {world} workers");
            assert_eq!(resumed[0].skipped_steps, whole.skipped_steps, "{compute}, {world} workers");
        }
        results.push(whole.weights_sha256);
    }
    assert!(results[0] != results[1] && results[0] != results[2] && results[1] != results[2]);
}

/// What a run cannot compute in, or cannot scale by, is told before it begins.
#[test]
fn a_precision_that_cannot_be_is_refused() {
    let refused = |change: fn(&mut Recipe)| {
        let mut recipe = Recipe::default();
        change(&mut recipe);
        recipe.check().unwrap_err().to_string()
    };
    for (change, words) in [
        ((|recipe| recipe.precision.compute = "f8".into()) as fn(&mut Recipe), "f32, bf16, f16"),
        (
            |recipe| {
                recipe.precision.compute = "f16".into();
                recipe.precision.backoff = 2.0;
            },
            "backoff is 2",
        ),
        (|recipe| recipe.precision.interval = 0, "--loss-scale-interval"),
    ] {
        let error = refused(change);
        assert!(error.contains(words), "{error}");
    }
    let mut recipe = Recipe { reduction: "ef-sign".into(), ..Recipe::default() };
    recipe.precision.compute = "f16".into();
    assert!(recipe.check().is_ok());
}

#[test]
fn a_run_that_is_resumed_ends_in_the_weights_of_a_whole_one() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = run(Group::alone(), job(whole.path(), None, false)).unwrap().unwrap();
    let first = run(Group::alone(), job(parts.path(), Some(11), false)).unwrap().unwrap();
    assert!(first.steps == 11 && first.weights_sha256 != expected.weights_sha256);
    let resumed = run(Group::alone(), job(parts.path(), None, true)).unwrap().unwrap();
    assert_eq!((resumed.steps, &resumed.weights_sha256), (24, &expected.weights_sha256));
    let lines = |name| std::fs::read_to_string(parts.path().join(name)).unwrap().lines().count();
    assert_eq!((lines("steps.jsonl"), lines("metrics.csv")), (24, 1 + 3));
    // Complete: there is nothing to go on with.
    let error = run(Group::alone(), job(parts.path(), None, true)).unwrap_err();
    assert!(matches!(error, Error::Complete { total: 24, .. }) && error.is_input(), "{error}");
}

/// Eight steps of eight samples, then four of twice as many, then two of six times as many, of which the last
/// ones are short.
fn growing(folder: &Path, steps: Option<u64>, resume: bool) -> Job {
    let mut job = job(folder, steps, resume);
    job.config.large_batch.grow_batch = vec!["1:2".parse().unwrap(), "2:3".parse().unwrap()];
    job.config.large_batch.label_smoothing = 0.1;
    job.config.rate.warmup_epochs = Some(1);
    job
}

#[test]
fn a_batch_that_grows_ends_in_the_same_weights_on_any_number_of_workers_and_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let whole = run(Group::alone(), growing(folder.path(), None, false)).unwrap().unwrap();
    assert_eq!((whole.steps, whole.epochs), (14, 3));
    let text = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let field = |name: &str| -> Vec<u64> {
        let steps = text(folder.path(), "steps.jsonl");
        let row = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        steps.lines().map(|line| row(line)[name].as_u64().unwrap()).collect()
    };
    assert_eq!(field("images"), [8, 8, 8, 8, 8, 8, 8, 6, 16, 16, 16, 14, 48, 14]);
    assert_eq!(field("epoch"), [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
    let scores = |folder: &Path| {
        let rows = text(folder, "metrics.csv");
        let columns = |row: &str| row.split(',').skip(5).map(String::from).collect::<Vec<_>>();
        rows.lines().map(columns).collect::<Vec<_>>()
    };
    assert_eq!(scores(folder.path()).len(), 1 + 3);
    let on = |world: usize, job: &(dyn Fn() -> Job + Sync)| {
        let ended = threads::spawn(world, |group| run(group, job()).unwrap().map(|end| end.weights_sha256));
        ended.unwrap().into_iter().flatten().next().unwrap()
    };
    for (world, cap) in [(2, 0.0001), (3, 25.0)] {
        let other = tempfile::tempdir().unwrap();
        let capped = || {
            let mut job = growing(other.path(), None, false);
            job.config.bucket_cap_mb = Some(cap);
            job
        };
        assert_eq!(on(world, &capped), whole.weights_sha256, "{world} workers");
    }
    // In the first epoch, at the first growth, between the growths, at the second one and after it.
    for (cut, before, after) in [(5, 2, 1), (8, 1, 3), (10, 3, 2), (12, 1, 2), (13, 2, 3)] {
        let parts = tempfile::tempdir().unwrap();
        assert_ne!(on(before, &|| growing(parts.path(), Some(cut), false)), whole.weights_sha256);
        let resumed = on(after, &|| growing(parts.path(), None, true));
        assert_eq!(resumed, whole.weights_sha256, "resumed after step {cut} by {after} workers");
        assert_eq!(scores(parts.path()), scores(folder.path()), "resumed after step {cut}");
        assert_eq!(text(parts.path(), "steps.jsonl").lines().count(), 14);
    }
}

#[test]
fn a_setting_that_cannot_be_is_told_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = job(folder.path(), None, false);
    wrong.config.batch_size = 0;
    let error = run(Group::alone(), wrong).unwrap_err();
    assert!(error.is_input() && error.to_string().contains("--batch-size 0"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn recipe(folder: &Path) -> Job {
    let config = Recipe { epochs: 6, shards: 4, batch_size: 2, test_batch_size: 3, ..Recipe::default() };
    Job { folder: Some(RunFolder::at(folder.into())), ..Job::new(config) }
}

#[test]
fn scores_are_the_same_digits_on_any_number_of_workers() {
    let run = |group: Group| {
        let trainer =
            Trainer::of(Job::new(recipe(Path::new("")).config), Arc::new(Computed), Perceptron::loss);
        let both = |model: &Perceptron, batch: Batch, device: &Device| {
            let (images, labels) = image_tensors(batch, device);
            let scores = model.scores(images);
            [cross_entropy(scores.clone(), labels.clone()).into(), accuracy(scores, labels)]
        };
        let rows = Rc::new(RefCell::new(Vec::new()));
        let seen = rows.clone();
        let trainer = trainer
            .evaluate([Metric::LOSS, Metric::ACCURACY], both)
            .on_epoch(move |row| seen.borrow_mut().push(row.scores.clone()));
        let trained = trainer.train_as(Membership::Fixed(group), Perceptron::new()).unwrap();
        assert!(trained.model.is_some());
        rows.take()
    };
    let alone = run(Group::alone());
    assert_eq!(alone.len(), 6);
    assert!(alone[5].get("loss") < alone[0].get("loss") && alone[5].get("accuracy") > Some(0.8), "{alone:?}");
    for world in [2, 3] {
        let told: Vec<_> =
            threads::spawn(world, |group| run(group).iter().map(|s| s.0.clone()).collect::<Vec<_>>())
                .unwrap();
        assert_eq!(
            told[0],
            alone.iter().map(|scores| scores.0.clone()).collect::<Vec<_>>(),
            "{world} workers"
        );
        // Rank 0 alone is told.
        assert!(told[1..].iter().all(Vec::is_empty));
    }
}

/// Trains in `folder`; the accuracy after each epoch is what `script` says next.
fn scripted(
    folder: &Path,
    steps: Option<u64>,
    resume: bool,
    script: &Arc<AtomicUsize>,
) -> Result<Summary, Error> {
    const ACCURACIES: [usize; 6] = [10, 14, 12, 13, 11, 20];
    let mut job = Job { resume, ..recipe(folder) };
    job.config.steps = steps;
    job.config.test_batch_size = 20;
    job.config.patience = Some(3);
    job.config.best_metric = Some("accuracy".into());
    job.config.keep_checkpoints = 1;
    let script = script.clone();
    let trainer = Trainer::of(job, Arc::new(Computed), Perceptron::loss).evaluate(
        [Metric::LOSS, Metric::ACCURACY],
        move |_, _, _| {
            let right = ACCURACIES[script.fetch_add(1, Ordering::SeqCst)];
            [Mean { sum: 1.0, count: 20.0 }, Mean::share(right, 20)]
        },
    );
    let trained = trainer.train_as(Membership::Fixed(Group::alone()), Perceptron::new())?;
    Ok(trained.summary.unwrap())
}

#[test]
fn the_best_checkpoint_is_kept_and_patience_ends_the_run() {
    let whole = tempfile::tempdir().unwrap();
    let summary = scripted(whole.path(), None, false, &Arc::default()).unwrap();
    // The second epoch was the best one, and three came after it.
    assert_eq!((summary.epochs, summary.steps), (5, 40));
    assert_eq!(summary.scores.get("accuracy"), Some(11.0 / 20.0));
    let checkpoints = |folder: &Path, name: &str| {
        let all = std::fs::read_dir(folder.join(name)).unwrap().map(|entry| entry.unwrap().file_name());
        all.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(checkpoints(whole.path(), "best"), ["step-00000016"]);
    assert_eq!(checkpoints(whole.path(), "checkpoints"), ["step-00000040"]);
    let error = scripted(whole.path(), None, true, &Arc::default()).unwrap_err();
    assert!(matches!(error, Error::Complete { total: 40, .. }), "{error}");

    // A run that is cut remembers what it has seen.
    let (cut, script) = (tempfile::tempdir().unwrap(), Arc::default());
    assert_eq!(scripted(cut.path(), Some(24), false, &script).unwrap().steps, 24);
    let resumed = scripted(cut.path(), None, true, &script).unwrap();
    assert_eq!((resumed.steps, resumed.weights_sha256), (40, summary.weights_sha256));
    assert_eq!(checkpoints(cut.path(), "best"), ["step-00000016"]);
}

#[test]
fn a_metric_that_nobody_measures_is_told() {
    let mut job = Job::new(recipe(Path::new("")).config);
    job.config.best_metric = Some("f1".into());
    let trainer = Trainer::of(job, Arc::new(Computed), Perceptron::loss);
    let trainer = trainer.evaluate([Metric::ACCURACY], Perceptron::right);
    let error = trainer.train_as(Membership::Fixed(Group::alone()), Perceptron::new()).unwrap_err();
    assert!(error.is_input() && error.to_string() == "unknown metric `f1`; known are accuracy", "{error}");
}

#[test]
fn a_folder_with_a_part_of_the_run_is_gone_on_with() {
    let place = tempfile::tempdir().unwrap();
    let run = |folder: &str, ends_at: usize, batch_size: usize| {
        let config = Recipe { epochs: 3, shards: 4, batch_size, verify_every: 0, ..Recipe::default() };
        let calls = AtomicUsize::new(0);
        // From some shard on the loss is not a number: the run ends there.
        let loss = move |model: &Perceptron, batch: Batch, context: &TrainingContext<'_>| {
            let (images, labels) = image_tensors(batch, context.device);
            let factor = if calls.fetch_add(1, Ordering::SeqCst) < ends_at { 1.0 } else { f32::NAN };
            cross_entropy(model.scores(images).mul_scalar(factor), labels)
        };
        let trainer =
            Trainer::new(config, Arc::new(Computed), loss).evaluate([Metric::ACCURACY], Perceptron::right);
        let trainer = trainer.run_folder(place.path().join(folder));
        let trained = trainer.train_as(Membership::Fixed(Group::alone()), Perceptron::new())?;
        Ok::<_, Error>(trained.summary.unwrap().weights_sha256)
    };
    let whole = run("whole", usize::MAX, 2).unwrap();
    // In the second of three epochs.
    let error = run("cut", 4 * 13, 2).unwrap_err();
    assert!(matches!(error, Error::Diverged(_)) && error.to_string().contains("step 13"), "{error}");
    // Nothing of what is not a number has come into a checkpoint.
    assert_eq!(run("cut", usize::MAX, 2).unwrap(), whole);
    let error = run("cut", usize::MAX, 3).unwrap_err();
    let words = error.to_string();
    assert!(error.is_input() && words.contains("begun with batch_size = 2, not 3"), "{words}");
    assert!(matches!(run("cut", usize::MAX, 2).unwrap_err(), Error::Complete { total: 24, .. }));

    // An empty folder is as good as none; one with other files is not touched.
    std::fs::create_dir(place.path().join("empty")).unwrap();
    assert_eq!(run("empty", usize::MAX, 2).unwrap(), whole);
    let others = place.path().join("others");
    std::fs::create_dir(&others).unwrap();
    std::fs::write(others.join("thesis.tex"), "").unwrap();
    let error = run("others", usize::MAX, 2).unwrap_err();
    assert!(matches!(error, Error::NotARun { .. }) && others.join("thesis.tex").exists(), "{error}");
}

/// Another process takes the run folder in the middle of a run, which ends at its next write.
#[test]
fn a_run_whose_folder_is_taken_ends_and_writes_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let other = Rc::new(RefCell::new(None));
    let taken = other.clone();
    let trainer = Trainer::of(job(&path, None, false), Arc::new(Computed), Perceptron::loss);
    let trainer = trainer.evaluate([Metric::ACCURACY], Perceptron::right);
    let trainer = trainer.on_step(move |row| {
        if row.step == 10 {
            let forced = Candidate { take_over: true, ..Candidate::alone() };
            *taken.borrow_mut() = Some(kolo_claim::take(&path, &forced, |_| {}).unwrap());
        }
    });
    let error = trainer.train_as(Membership::Fixed(Group::alone()), Perceptron::new()).unwrap_err();
    let words = error.to_string();
    assert!(matches!(error, Error::NotTheWriter(_)) && !error.is_input(), "{words}");
    assert!(words.contains("has been taken from this job by") && words.contains("--resume"), "{words}");
    let lines = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap().lines().count();
    // What was written after the first epoch of eight steps.
    assert_eq!((lines("steps.jsonl"), lines("metrics.csv")), (8, 2));
    assert!(!folder.path().join("summary.json").exists());
    other.borrow().as_ref().unwrap().check().unwrap();
}

/// All ranks of a group end for the same reason where their rank 0 may not write.
#[test]
fn a_folder_that_another_process_writes_is_refused_to_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    // A claim of a process of this host that lives: the one above this one.
    let held = kolo_claim::take(folder.path(), &Candidate::alone(), |_| {}).unwrap();
    let file = folder.path().join(".claims").join(format!("{:08}", held.claim().term));
    let text = std::fs::read_to_string(&file).unwrap();
    let parent = std::os::unix::process::parent_id();
    let stat = std::fs::read_to_string(format!("/proc/{parent}/stat")).unwrap();
    let mut claim: serde_json::Value = serde_json::from_str(&text).unwrap();
    claim["owner"]["pid"] = parent.into();
    let started = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap();
    claim["owner"]["started"] = started.parse::<u64>().unwrap().into();
    std::fs::write(&file, claim.to_string()).unwrap();
    let errors = threads::spawn(3, |group| run(group, job(folder.path(), None, false)).unwrap_err()).unwrap();
    for error in errors {
        let words = error.to_string();
        assert!(matches!(error, Error::NotTheWriter(_)) && error.is_input(), "{words}");
        assert!(words.contains(&format!("process {parent} on ")) && words.contains("--take-over"), "{words}");
    }
    assert!(!folder.path().join("steps.jsonl").exists());
    let mut forced = job(folder.path(), None, false);
    forced.take_over = true;
    run(Group::alone(), forced).unwrap();
}
