//! Tests of valid and invalid configurations, and of their files.

use kolo_ddp::rate::BatchScaling;
use kolo_ddp::table::Choice;

use super::*;

fn read(text: &str) -> Result<Recipe, Error> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Recipe::read(file.path())
}

#[test]
fn a_configuration_survives_its_file() {
    let mut config = Recipe { shares: Some(vec![3.0, 1.0]), steps: Some(7), ..Recipe::default() };
    config.init = Some("weights.safetensors".into());
    config.rate.schedule = LearningRateSchedule::Step;
    config.batch_norm = BatchNormalization::Sync;
    config.no_decay = vec!["norm".into(), "fc.*".into()];
    config.freeze = vec!["layer1.*".into(), "norm".into()];
    config.init_skip = vec!["fc.*".into(), "bias".into()];
    let group = |text: &str| text.parse().unwrap();
    config.stem = Some(Stem::Small);
    config.large_batch.grow_batch = vec!["2:2".parse().unwrap(), "3:5".parse().unwrap()];
    (config.rate.warmup_epochs, config.rate.scaling) = (Some(5), BatchScaling::Sqrt);
    config.groups = vec![group("1d:lr_scale=1e-3,nesterov=true"), group("conv1.*,bias:momentum=0.5")];
    assert_eq!(read(&config.to_toml().unwrap()).unwrap(), config);
    config = Recipe { no_trust_ratio: vec!["bias".into()], ..Recipe::default() };
    config.optimizer.0 = Choice::new("lars").with("trust_coefficient", 0.02);
    assert_eq!(read(&config.to_toml().unwrap()).unwrap(), config);
    let sync = SyncConfig { mode: "diloco:H=20,outer_lr=0.5".parse().unwrap(), islands: Some(1) };
    let rare = Recipe { sync, ..Recipe::default() };
    assert_eq!(read(&rare.to_toml().unwrap()).unwrap(), rare);
}

#[test]
fn islands_are_refused_where_they_make_no_sense() {
    let rare = |islands| SyncConfig { mode: "local:H=4".parse().unwrap(), islands };
    let recipe = |sync| Recipe { sync, shards: 4, ..Recipe::default() };
    recipe(rare(Some(2))).check().unwrap();
    for (recipe, words) in [
        (recipe(rare(Some(3))), "--islands 3: give a number that divides the 4 shards"),
        (recipe(rare(Some(0))), "--islands 0: give a number that divides the 4 shards"),
        (
            recipe(SyncConfig { islands: Some(2), ..SyncConfig::default() }),
            "--sync every-step: it has no islands; leave --islands out",
        ),
        (
            Recipe { batch_norm: BatchNormalization::Sync, ..recipe(rare(None)) },
            "--sync local:H=4: it has no batch of all shards over which a layer could sum",
        ),
        (
            Recipe { batch_norm: BatchNormalization::Local, ..recipe(rare(None)) },
            "--sync local:H=4: it averages running statistics",
        ),
        (
            Recipe { straggler: "rebalance".into(), ..recipe(rare(None)) },
            "--sync local:H=4: it cannot move shards from one worker to another; leave --straggler at warn",
        ),
    ] {
        let error = recipe.check().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn asynchronous_training_is_refused_where_it_makes_no_sense() {
    let sync = SyncConfig { mode: "stale:2".parse().unwrap(), islands: None };
    let recipe = Recipe { sync, shards: 4, ..Recipe::default() };
    recipe.check().unwrap();
    assert_eq!(read(&recipe.to_toml().unwrap()).unwrap(), recipe);
    let with = |change: &dyn Fn(&mut Recipe)| {
        let mut recipe = recipe.clone();
        change(&mut recipe);
        recipe
    };
    for (recipe, words) in [
        (with(&|recipe| recipe.batch_norm = BatchNormalization::Sync), "it has no batch of all shards"),
        (
            with(&|recipe| recipe.batch_norm = BatchNormalization::Local),
            "it keeps running statistics on the servers",
        ),
        (with(&|recipe| recipe.noise_scale = true), "it has no batch of all shards in each step"),
        (with(&|recipe| recipe.straggler = "drop".into()), "leave --straggler at warn"),
        (with(&|recipe| recipe.reduction = "bf16".into()), "leave --reduction at sum"),
        (
            with(&|recipe| recipe.transforms.0 = vec![Choice::new("clip").with("clip_norm", 1.0)]),
            "such as clipping, could look at; leave --clip",
        ),
        (with(&|recipe| recipe.precision.compute = "f16".into()), "take --precision bf16"),
        (with(&|recipe| recipe.sync.islands = Some(2)), "it has no islands"),
    ] {
        let error = recipe.check().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(error.starts_with("--sync stale:K=2: it "), "{error}");
    }
}

#[test]
fn late_updates_are_refused_where_they_make_no_sense() {
    let delayed = SyncConfig { mode: "delayed:1".parse().unwrap(), islands: None };
    let recipe = || Recipe { sync: delayed.clone(), ..Recipe::default() };
    recipe().check().unwrap();
    Recipe { batch_norm: BatchNormalization::Sync, noise_scale: true, ..recipe() }.check().unwrap();
    let mut f16 = recipe();
    f16.precision.compute = "f16".into();
    let mut islands = recipe();
    islands.sync.islands = Some(2);
    for (recipe, words) in [
        (
            Recipe { reduction: "powersgd".into(), ..recipe() },
            "what the reduction has kept of the one before, which is still on its way; take a --reduction",
        ),
        (Recipe { straggler: "rebalance".into(), ..recipe() }, "leave --straggler at warn"),
        (f16, "it scales the next loss before"),
        (
            Recipe { backup_steps: 0, ..recipe() },
            "that a worker's death would lose, so an elastic job has to go back to a copy; give --backup-steps",
        ),
        (islands, "--sync delayed:steps=1: it has no islands"),
    ] {
        let error = recipe.check().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_run_goes_on_with_the_settings_that_decide_its_result() {
    let config = Recipe::default();
    let other = Recipe { nproc: 7, keep_checkpoints: 1, ..config.clone() };
    assert_eq!(config.difference(&other).unwrap(), None);
    let mode = |sync: &str| SyncConfig { mode: sync.parse().unwrap(), islands: None };
    for (sync, found) in [("every-step", None), ("local", None), ("delayed:1", Some("backup_steps"))] {
        let config = Recipe { sync: mode(sync), ..config.clone() };
        let other = Recipe { backup_steps: 7, ..config.clone() };
        assert_eq!(config.difference(&other).unwrap().map(|(name, ..)| name).as_deref(), found, "{sync}");
        let other = Recipe { checkpoint_steps: Some(7), ..config.clone() };
        let found = (sync != "every-step").then_some("checkpoint_steps");
        assert_eq!(config.difference(&other).unwrap().map(|(name, ..)| name).as_deref(), found, "{sync}");
    }
    let other = Recipe { steps: Some(7), ..config.clone() };
    let found = config.difference(&other).unwrap();
    assert_eq!(found, Some(("steps".into(), "nothing".into(), "7".into())));
    let mut other = config.clone();
    other.rate.lr = 0.2;
    let (setting, own, theirs) = config.difference(&other).unwrap().unwrap();
    assert_eq!((setting.as_str(), own.as_str(), theirs.as_str()), ("rate.lr", "0.1", "0.2"));
}

#[test]
fn what_a_file_does_not_say_is_the_command_lines_default() {
    assert_eq!(read("").unwrap(), Recipe::default());
    let config = read("epochs = 3\n[rate]\nlr = 0.5\n").unwrap();
    assert_eq!((config.epochs, config.rate.lr), (3, 0.5));
    assert_eq!(config.rate.warmup_steps, RateConfig::default().warmup_steps);
}

#[test]
fn groups_are_those_of_the_file_and_then_those_of_the_switches() {
    let config = read(
        "no_decay = [\"norm\", \"bias\"]\nno_trust_ratio = [\"1d\"]\n[optimizer]\nname = \"lars\"\n\
              [[groups]]\ntensors = [\"fc.*\"]\nlr_scale = 10\n",
    );
    let groups: Vec<String> = config.unwrap().all_groups().iter().map(ParamGroup::to_string).collect();
    assert_eq!(groups, ["fc.*:lr_scale=10", "norm,bias:weight_decay=0", "1d:trust_ratio=false"]);
    assert!(read("").unwrap().all_groups().is_empty());
}

#[test]
fn what_cannot_be_is_told_with_its_value() {
    for (text, words) in [
        ("epochs = 0", "--epochs 0: it must be at least 1"),
        ("dropout = 1.0", "--dropout 1: it must be at least 0 and below 1"),
        ("[rate]\nlr = -0.5", "--lr -0.5: it must be greater than 0"),
        ("[rate]\nschedule = \"linear\"", "expected one of `constant`, `step`, `cosine`, `poly`"),
        ("[rate]\npower = 0.0", "--lr-power 0: it must be greater than 0"),
        ("[large_batch]\nlabel_smoothing = 1.0", "--label-smoothing 1: it must be at least 0 and below 1"),
        ("[large_batch]\ngrow_batch = [\"2\"]", "`2` says no growth of the batch; it must be EPOCHS:FACTOR"),
        ("[large_batch]\ngrow_batch = [\"2:1\"]", "--grow-batch 2:1: the factor must be at least 2"),
        ("[large_batch]\ngrow_batch = [\"0:2\"]", "--grow-batch 0:2: it must be after at least 1 epoch"),
        (
            "[large_batch]\ngrow_batch = [\"3:2\", \"3:2\"]",
            "--grow-batch 3:2: it must be after at least 1 epoch, and after the growth before it",
        ),
        (
            "epochs = 8\n[large_batch]\ngrow_batch = [\"8:2\"]",
            "--grow-batch 8:2: the run has 8 epochs, so that the batch would never grow",
        ),
        ("batch_norm = \"global\"", "expected one of `per-shard`, `sync`, `local`"),
        ("[optimizer]\nname = \"adagrat\"", "unknown optimizer `adagrat`; known are sgd, adam, adamw"),
        (
            "[optimizer]\nname = \"sgd\"\nsettings = { momentum = 1.5 }",
            "--momentum 1.5: it must be at least 0",
        ),
        (
            "[[groups]]\ntensors = [\"fc.*\"]\nlr = 0.1",
            "--group fc.*: sgd has no setting `lr`; a group can have lr_scale, weight_decay",
        ),
        (
            "[[groups]]\ntensors = [\"fc.*\"]\nmomentum = 1",
            "--group fc.*: momentum of sgd is 1; it must be at least 0 and below 1",
        ),
        ("[[groups]]\ntensors = [\"fc.*\"]\nlr_scale = -1", "--group fc.*: lr_scale is -1; it must be"),
        ("no_decay = [\"\"]", "--no-decay '': a name or a class of tensors is missing"),
        (
            "init_skip = [\"fc.*\", \"norm\"]",
            "--init-skip fc.*,norm: add --init, whose weights for these tensors Kolo then skips",
        ),
        ("init = \"a\"\ninit_skip = [\"\"]", "--init-skip '': a name or a class of tensors is missing"),
        ("freeze = [\"a\", \"\"]", "--freeze 'a,': a name or a class of tensors is missing"),
        ("[[groups]]\ntensors = [\"a\", \" \"]\nlr_scale = 1", "--group 'a,': a name or a class of tensors"),
        ("[[groups]]\nlr_scale = 1", "missing field `tensors`"),
        ("noise_scale = true\nshards = 1", "--noise-scale with --shards 1: it is measured between two sizes"),
        (
            "noise_scale = true\nreduction = \"ef-sign\"",
            "--noise-scale with --reduction ef-sign: it needs the sum of all gradients",
        ),
        (
            "tune = true\n[sync]\nmode = \"delayed:1\"",
            "--sync delayed:steps=1: it has no two steps of all shards",
        ),
        ("redundancy = 0", "--redundancy 0: it must be at least 1"),
        ("redundancy = 3\nshard = \"optimizer\"", "workers that hold it; give 1 or 2"),
        (
            "redundancy = 2",
            "--redundancy 2: without --shard each worker holds all of the state; add --shard optimizer, gradients or parameters",
        ),
        ("redundancy = 2\n[sync]\nmode = \"delayed:1\"", "holds all of the state; set it to 1"),
        (
            "shard = \"parameters\"\nstraggler = \"drop\"",
            "its workers cannot continue with fewer; take --straggler warn or rebalance, or --redundancy 2",
        ),
        (
            "shard = \"optimizer\"\nstraggler = \"drop\"",
            "take --straggler warn or rebalance, or --redundancy 2",
        ),
        ("no_trust_ratio = [\"norm\"]", "--no-trust-ratio norm: sgd has no setting `trust_ratio`"),
        ("straggler = \"kill\"", "unknown --straggler `kill`; known are warn, rebalance, drop"),
        ("threads = 2", "threads = 2: a worker computes on 1 thread"),
        ("stem = \"cifar\"", "expected `imagenet` or `small`"),
        ("epoch = 1", "unknown field `epoch`"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.is_input() && error.to_string().contains(words), "{text}: {error}");
    }
}

/// Settings of a reduction are within `--reduction`, and no text appears twice in an error with its sources.
#[test]
fn a_wrong_setting_of_a_reduction_is_told_once_with_the_option_that_holds_it() {
    for (reduction, words) in [
        ("dgc:momentum=1", "--reduction dgc:momentum=1: momentum must be at least 0 and below 1"),
        ("dgc:clip_norm=-1", "--reduction dgc:clip_norm=-1: clip_norm must be "),
        (
            "onebit-adam:warmup_steps=0",
            "--reduction onebit-adam:warmup_steps=0: warmup_steps must be a whole",
        ),
        (
            "dgc:momentum=0.99999999",
            "--reduction dgc:momentum=0.99999999: momentum is 1 in single precision; ",
        ),
        ("sum:x=1", "--reduction sum:x=1: sum has no setting `x`; it has none"),
        ("summ", "unknown reduction `summ`; known are sum, "),
    ] {
        let error = Recipe { reduction: reduction.into(), ..Recipe::default() }.check().unwrap_err();
        assert!(error.is_input() && error.to_string().starts_with(words), "{error}");
        assert!(std::error::Error::source(&error).is_none(), "{error}");
    }
    let error = read("[optimizer]\nname = \"sgd\"\nsettings = { momentum = 1.5 }").unwrap_err();
    assert!(std::error::Error::source(&error).is_none(), "{error}");
}

/// A `config.toml` may contain anything: the reader accepts or refuses it, and never panics.
#[test]
fn no_text_makes_the_reader_panic() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("config.toml");
    let whole = Recipe::default().to_toml().unwrap();
    let read = |text: &[u8]| {
        std::fs::write(&file, text).unwrap();
        Recipe::read(&file)
    };
    read(whole.as_bytes()).unwrap();
    for length in 0..whole.len() {
        let _ = read(&whole.as_bytes()[..length]);
    }
    for bit in 0..8 * whole.len() {
        let mut flipped = whole.clone().into_bytes();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let _ = read(&flipped);
    }
    let lines: Vec<&str> = whole.lines().filter(|line| line.contains(" = ")).collect();
    let extreme = [
        "0",
        "-1",
        "1",
        "9223372036854775807",
        "1e308",
        "-0.0",
        "nan",
        "inf",
        "\"\"",
        "\"a:b=c\"",
        "[]",
        "[0]",
    ];
    for (line, value) in lines.iter().flat_map(|line| extreme.map(|value| (line, value))) {
        let name = line.split(" = ").next().unwrap();
        let _ = read(whole.replacen(line, &format!("{name} = {value}"), 1).as_bytes());
    }
}

#[test]
fn a_run_that_needs_all_of_its_workers_names_the_option() {
    let divided = |redundancy| Recipe { shard: "optimizer".into(), redundancy, ..Recipe::default() };
    let needs = |option: &str, remedy| Some(NeedsAll { option: option.into(), remedy });
    assert_eq!(Recipe::default().needs_all_workers(), None);
    assert_eq!(divided(1).needs_all_workers(), needs("--shard optimizer", Some("--redundancy 2")));
    let values = Recipe { shard: "parameters".into(), ..Recipe::default() };
    assert_eq!(values.needs_all_workers(), needs("--shard parameters", Some("--redundancy 2")));
    Recipe { redundancy: 2, straggler: "drop".into(), ..values }.check().unwrap();
    assert_eq!(divided(2).needs_all_workers(), None);
    let shared = Recipe { shard: "host".into(), ..Recipe::default() };
    assert_eq!(shared.needs_all_workers(), None);
    shared.check().unwrap();
    let error = Recipe { redundancy: 2, ..shared }.check().unwrap_err().to_string();
    assert!(error.contains("outlives each worker; set redundancy to 1"), "{error}");
    Recipe { straggler: "drop".into(), ..divided(2) }.check().unwrap();
    let sync = SyncConfig { mode: "stale:3".parse().unwrap(), islands: None };
    let stale = Recipe { sync, ..Recipe::default() };
    assert_eq!(stale.needs_all_workers(), needs("--sync stale:K=3", None));
}
