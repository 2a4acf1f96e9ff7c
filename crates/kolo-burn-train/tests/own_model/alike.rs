//! Workers with different recipes, data or code: all of them get an error before the first step.

use std::collections::BTreeSet;
use std::sync::Arc;

use kolo_burn_train::{Error, Job, Mean, Membership, Metric, Recipe, Trainer};
use kolo_comm::{Group, threads};
use kolo_data::Part;

use crate::model::{Perceptron, Relabeled};

fn recipe() -> Recipe {
    let mut recipe = Recipe { epochs: 3, shards: 4, batch_size: 2, ..Recipe::default() };
    recipe.optimizer.0 = kolo_ddp::table::Choice::new("lars");
    recipe
}

/// Trains as a worker of a run without a folder.
fn train(group: Group, job: Job, data: Relabeled, unit: &str) -> Result<(), Error> {
    let trainer = Trainer::of(job, Arc::new(data), Perceptron::loss).counting(unit);
    let trainer = trainer.evaluate([Metric::ACCURACY], Perceptron::right);
    trainer.train_as(Membership::Fixed(group), Perceptron::new()).map(drop)
}

/// Returns the common error of three ranks, of which rank 1 runs `other` and the others run `usual`.
fn all_say(
    usual: impl Fn(Group) -> Result<(), Error> + Sync,
    other: impl Fn(Group) -> Result<(), Error> + Sync,
) -> String {
    let errors = threads::spawn(3, |group| match group.rank().0 {
        1 => other(group),
        _ => usual(group),
    });
    let errors: Vec<Error> = errors.unwrap().into_iter().map(|ended| ended.unwrap_err()).collect();
    let words: Vec<String> = errors.iter().map(Error::to_string).collect();
    assert!(errors.iter().all(Error::is_input) && words.iter().all(|one| *one == words[0]), "{words:?}");
    words[0].clone()
}

fn usual(group: Group) -> Result<(), Error> {
    train(group, Job::new(recipe()), Relabeled::default(), "images")
}

/// A field, and another value for it.
type Change = (&'static str, fn(&mut Recipe));

const CHANGES: &[Change] = &[
    ("kolo", |recipe| recipe.kolo = "0.0.1".into()),
    ("model", |recipe| recipe.model = "other".into()),
    ("stem", |recipe| recipe.stem = Some(kolo_burn_train::Stem::Small)),
    ("augment", |recipe| recipe.augment = false),
    ("mixup", |recipe| recipe.mixup = Some(0.2)),
    ("cutmix", |recipe| recipe.cutmix = Some(1.0)),
    ("epochs", |recipe| recipe.epochs = 4),
    ("steps", |recipe| recipe.steps = Some(7)),
    ("seed", |recipe| recipe.seed = 1),
    ("batch_size", |recipe| recipe.batch_size = 3),
    ("shards", |recipe| recipe.shards = 5),
    ("straggler", |recipe| recipe.straggler = "rebalance".into()),
    ("bucket_cap_mb", |recipe| recipe.bucket_cap_mb = Some(1.0)),
    ("tune", |recipe| recipe.tune = true),
    ("reduction", |recipe| recipe.reduction = "bf16".into()),
    ("backup_steps", |recipe| recipe.backup_steps = 7),
    ("dropout", |recipe| recipe.dropout = 0.5),
    ("activation_checkpointing", |recipe| recipe.activation_checkpointing = true),
    ("batch_norm", |recipe| recipe.batch_norm = kolo_burn_train::BatchNormalization::Local),
    ("verify_every", |recipe| recipe.verify_every = 7),
    ("no_decay", |recipe| recipe.no_decay = vec!["layer.*".into()]),
    ("no_trust_ratio", |recipe| recipe.no_trust_ratio = vec!["layer.*".into()]),
    ("ema", |recipe| recipe.ema = Some(0.9)),
    ("ema_warmup", |recipe| recipe.ema_warmup = true),
    ("noise_scale", |recipe| recipe.noise_scale = true),
    ("checkpoint_epochs", |recipe| recipe.checkpoint_epochs = 2),
    ("checkpoint_steps", |recipe| recipe.checkpoint_steps = Some(2)),
    ("best_metric", |recipe| recipe.best_metric = Some("accuracy".into())),
    ("eval_steps", |recipe| recipe.eval_steps = Some(2)),
    ("max_hours", |recipe| recipe.max_hours = Some(2.0)),
    ("patience", |recipe| recipe.patience = Some(2)),
    ("test_batch_size", |recipe| recipe.test_batch_size = 7),
    ("optimizer.name", |recipe| recipe.optimizer.0.name = "sgd".into()),
    ("optimizer.settings", |recipe| {
        recipe.optimizer.0 = recipe.optimizer.0.clone().with("momentum", 0.5);
    }),
    ("rate.lr", |recipe| recipe.rate.lr = 0.2),
    ("rate.base_batch", |recipe| recipe.rate.base_batch = Some(32)),
    ("rate.scaling", |recipe| recipe.rate.scaling = kolo_ddp::rate::BatchScaling::Sqrt),
    ("rate.schedule", |recipe| recipe.rate.schedule = kolo_burn_train::LearningRateSchedule::Poly),
    ("rate.warmup_steps", |recipe| recipe.rate.warmup_steps = 7),
    ("rate.warmup_epochs", |recipe| recipe.rate.warmup_epochs = Some(1)),
    ("rate.step_epochs", |recipe| recipe.rate.step_epochs = 7),
    ("rate.step_factor", |recipe| recipe.rate.step_factor = 0.5),
    ("rate.power", |recipe| recipe.rate.power = 3.0),
    ("large_batch.zero_gamma", |recipe| recipe.large_batch.zero_gamma = true),
    ("large_batch.label_smoothing", |recipe| recipe.large_batch.label_smoothing = 0.1),
    ("large_batch.grow_batch", |recipe| recipe.large_batch.grow_batch = vec!["1:2".parse().unwrap()]),
    ("precision.compute", |recipe| recipe.precision.compute = "bf16".into()),
    ("precision.scale", |recipe| recipe.precision.scale = 8.0),
    ("precision.growth", |recipe| recipe.precision.growth = 4.0),
    ("precision.backoff", |recipe| recipe.precision.backoff = 0.25),
    ("precision.interval", |recipe| recipe.precision.interval = 7),
    ("transforms", |recipe| {
        recipe.transforms.0 = vec![kolo_ddp::table::Choice::new("clip").with("clip_norm", 1.0)];
    }),
    ("sync.mode", |recipe| recipe.sync.mode = "local:H=2".parse().unwrap()),
    ("sync.islands", |recipe| {
        (recipe.sync.mode, recipe.sync.islands) = ("local:H=2".parse().unwrap(), Some(2));
    }),
    ("shard", |recipe| recipe.shard = "optimizer".into()),
    ("redundancy", |recipe| (recipe.shard, recipe.redundancy) = ("optimizer".into(), 2)),
    ("groups", |recipe| recipe.groups = vec!["layer.*:lr_scale=0.5".parse().unwrap()]),
];

/// Fields that may differ, or that no valid recipe has with another value.
const NO_MATTER: [&str; 11] = [
    "data", "device", "freeze", "init", "init_skip", "input.data_threads", "input.skip_unreadable",
    "keep_checkpoints", "nproc", "shares", "threads",
];

#[test]
fn each_field_of_the_recipe_is_compared_and_named() {
    for (field, change) in CHANGES {
        let other = |group| {
            let mut recipe = recipe();
            change(&mut recipe);
            train(group, Job::new(recipe), Relabeled::default(), "images")
        };
        let error = all_say(usual, other);
        let named = error.starts_with(&format!("{field} is ")) || error.starts_with(&format!("{field}."));
        assert!(
            named && error.contains(" on ranks 0 and 2 and ") && error.contains(" on rank 1"),
            "{field}: {error}"
        );
    }
}

/// A new field of the recipe must be in one of the lists above.
#[test]
fn no_field_of_the_recipe_is_forgotten() {
    let mut all = recipe();
    CHANGES.iter().for_each(|(_, change)| change(&mut all));
    (all.init, all.shares) = (Some("weights.safetensors".into()), Some(vec![1.0]));
    let table: toml::Table = toml::from_str(&all.to_toml().unwrap()).unwrap();
    let names = table.into_iter().flat_map(|(name, value)| match value {
        toml::Value::Table(section) => {
            section.into_iter().map(|(field, _)| format!("{name}.{field}")).collect()
        }
        _ => vec![name],
    });
    let known: BTreeSet<&str> = CHANGES.iter().map(|(name, _)| *name).chain(NO_MATTER).collect();
    let forgotten: Vec<String> = names.filter(|name| !known.contains(name.as_str())).collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
}

#[test]
fn workers_may_have_their_files_elsewhere() {
    let ended = threads::spawn(2, |group| {
        let mut recipe = Recipe { steps: Some(2), ..recipe() };
        if group.rank().0 == 1 {
            (recipe.data, recipe.nproc, recipe.keep_checkpoints) = ("elsewhere".into(), 7, 1);
        }
        train(group, Job::new(recipe), Relabeled::default(), "images")
    });
    ended.unwrap().into_iter().for_each(|ended| ended.unwrap());
}

#[test]
fn data_and_what_is_counted_and_measured_are_compared() {
    let with = |data: fn() -> Relabeled, unit: &'static str| {
        move |group| train(group, Job::new(recipe()), data(), unit)
    };
    for (data, words) in [
        (
            (|| Relabeled::at(Part::Train, 61)) as fn() -> Relabeled,
            "the training data is 62 samples (content ",
        ),
        (|| Relabeled::at(Part::Test, 0), "the test data is 20 samples (content "),
        (|| Relabeled { label: None, more: 1 }, "63 samples (content "),
    ] {
        let error = all_say(usual, with(data, "images"));
        assert!(error.contains(words) && error.contains(" on rank 1;"), "{error}");
    }
    let error = all_say(usual, with(Relabeled::default, "pixels"));
    assert!(
        error.starts_with("what the loss counts is images on ranks 0 and 2 and pixels on rank 1;"),
        "{error}"
    );
    let measured = |group| {
        let trainer = Trainer::of(Job::new(recipe()), Arc::new(Relabeled::default()), Perceptron::loss);
        let none = |_: &Perceptron, _, _: &_| -> [Mean; 0] { [] };
        let trainer = trainer.counting("images").evaluate([], none);
        trainer.train_as(Membership::Fixed(group), Perceptron::new()).map(drop)
    };
    let error = all_say(usual, measured);
    assert!(error.starts_with("what the model is judged by is accuracy on ranks 0 and 2 and "), "{error}");
    let resumed = |group| {
        let job = Job { resume: true, ..Job::new(recipe()) };
        train(group, job, Relabeled::default(), "images")
    };
    let error = all_say(usual, resumed);
    assert!(error.starts_with("resume is false on ranks 0 and 2 and true on rank 1;"), "{error}");
}
