//! Mistakes that a user may type or have on disk: each gives one clear error with the remedy, and nothing
//! starts.

use std::fs;
use std::net::TcpListener;

use super::program::{fail, kolo, stderr, succeed};

#[test]
fn wrong_words_are_named_with_their_remedy() {
    let folder = tempfile::tempdir().unwrap();
    for (args, words) in [
        (&["train", "--model", "resnet19"][..], &["unknown model `resnet19`", "resnet18"][..]),
        (&["train", "--data", "imagenet"], &["imagenet", "cifar10"]),
        (&["train", "--data", "cifar10:nowhere"], &["nowhere"]),
        (&["train", "--device", "gpu"], &["unknown --device `gpu`; known are flex, cpu, cuda, rocm, wgpu\n"]),
        (&["train", "--device", "flex:1"], &["--device flex:1: this machine has 1"]),
        (&["train", "--optimizer", "adagrat"], &["unknown optimizer `adagrat`", "adamw"]),
        (
            &["train", "--reduction", "powersgd:rank=0"],
            &["--reduction powersgd:rank=0: rank must be a whole number from 1 to 64\n"],
        ),
        (
            &["train", "--momentum", "0", "--reduction", "dgc:momentum=1"],
            &["--reduction dgc:momentum=1: momentum must be at least 0 and below 1\n"],
        ),
        (
            &["train", "--reduction", "powersgd:size=3"],
            &["--reduction powersgd:size=3: powersgd has no setting `size`; it has rank"],
        ),
        (
            &["train", "--reduction", "sum:x=1"],
            &["--reduction sum:x=1: sum has no setting `x`; it has none\n"],
        ),
        (&["train", "--reduction", "powersgd:rank"], &["`powersgd:rank`", "a setting has no value"]),
        (&["train", "--reduction", "dgc"], &["`dgc` has a momentum of its own", "set that of sgd to 0"]),
        (&["train", "--schedule", "linear"], &["invalid value 'linear'", "--schedule", "cosine"]),
        (&["train", "--batch-size", "0"], &["--batch-size 0", "at least 1"]),
        (
            &["train", "--nproc", "two"],
            &["invalid value 'two' for '--nproc <NPROC>': give a whole number, without sign or fraction\n"],
        ),
        (&["train", "--best-metric", "f2"], &["unknown --best-metric `f2`; known are accuracy\n"]),
        (
            &["check", "--best-metric", "perplexity"],
            &["unknown --best-metric `perplexity`; known are accuracy\n"],
        ),
        (&["chaos", "--", "train", "--steps", "9"], &["there is no such program; write `kolo train` with"]),
        (&["verify", "--bind", "core"], &["--bind: kolo verify starts each run anew"]),
        (&["train", "--nproc", "0"], &["--nproc 0", "at least 1"]),
        (&["train", "--shards", "0"], &["--shards 0", "at least 1"]),
        (
            &["train", "--shards", "1000000000"],
            &["--shards 1000000000", "has 10000 samples", "at most as many"],
        ),
        (&["train", "--redundancy", "0"], &["--redundancy 0", "at least 1"]),
        (&["train", "--shard", "optimizer", "--redundancy", "3"], &["--redundancy 3: ", "give 1 or 2"]),
        (
            &["train", "--redundancy", "2"],
            &[
                "--redundancy 2: without --shard each worker holds all of the state; add --shard optimizer, gradients",
            ],
        ),
        (
            &["train", "--offload", "/nowhere/at/all"],
            &["--offload /nowhere/at/all: the folder for the optimizer's state does not exist; create it\n"],
        ),
        (
            &["train", "--offload", "/proc"],
            &["--offload /proc: cannot create a file for the optimizer's state"],
        ),
        (&["train", "--offload", "/dev/null"], &["--offload /dev/null: this is no folder"]),
        (
            &["train", "--shard", "optimizer", "--min", "1"],
            &[
                "--min 1: with --shard optimizer each worker has state",
                "add --redundancy 2, or leave --min 1 out",
            ],
        ),
        (
            &["launch", "--min", "1", "--", "kolo", "train", "--shard", "optimizer"],
            &["--min 1: with --shard optimizer each", "add --redundancy 2, or leave --min 1 out"],
        ),
        (
            &["chaos", "--", "--shard", "optimizer"],
            &["--shard optimizer: the job ends", "add --redundancy 2, or"],
        ),
        (
            &["chaos", "--", "kolo", "train", "--shard", "optimizer"],
            &["--shard optimizer: the job ends", "add --redundancy 2, or"],
        ),
        (
            &["chaos", "--nodes", "2", "--", "--shard", "optimizer", "--redundancy", "2"],
            &["--shard with --nodes 2 or more", "leave one of them out"],
        ),
        (
            &["train", "--shard", "host", "--redundancy", "2"],
            &["--redundancy 2: --shard host keeps state in memory that outlives each worker", "to 1"],
        ),
        (
            &["train", "--shard", "host", "--transport", "tcp"],
            &["--shard host with --transport tcp: it needs workers that share memory"],
        ),
        (
            &["train", "--shard", "host", "--sync", "delayed:1"],
            &["--shard host: it needs steps of all shards", "leave --sync at every-step"],
        ),
        (&["train", "--accumulate", "0"], &["--accumulate 0", "at least 1"]),
        (&["train", "--steps", "0"], &["--steps 0", "at least 1"]),
        (&["train", "--checkpoint-steps", "0"], &["--checkpoint-steps 0", "at least 1"]),
        (&["train", "--keep-checkpoints", "0"], &["--keep-checkpoints 0", "at least 1"]),
        (&["checkpoint", "nowhere"], &["no folder nowhere"]),
        (&["export", "nowhere", "--format", "burn", "--out", "a"], &["no run folder nowhere"]),
        (&["export", "nowhere", "--format", "onnx", "--out", "a"], &["`onnx`", "torchvision, burn"]),
        (&["export", ".", "--format", "burn", "--out", "a"], &[". is no run folder", "config.toml"]),
        (&["train", "--init", "nowhere.bpk"], &["nowhere.bpk", "No such file"]),
        (&["train", "--resume", "nowhere", "--init", "a"], &["--init", "cannot be used with"]),
        (&["train", "--lr", "nan"], &["--lr NaN", "greater than 0"]),
        (&["train", "--momentum", "1.5"], &["--momentum 1.5", "below 1"]),
        (&["train", "--clip-norm", "0"], &["--clip-norm 0", "greater than 0"]),
        (&["train", "--lr", "-1"], &["--lr -1: it must be greater than 0\n"]),
        (&["train", "--weight-decay", "-1"], &["--weight-decay -1: it must be 0 or more, and finite\n"]),
        (&["train", "--lr", "1e-400"], &["invalid value '1e-400' for '--lr <LR>': it is nearer to 0 than"]),
        (
            &["train", "--momentum", "1e400"],
            &["invalid value '1e400' for '--momentum <NUMBER>': it is beyond"],
        ),
        (&["train", "--dropout", "1e308"], &["--dropout 1e308: it must be at least 0 and below 1\n"]),
        (&["train", "--group", "*:lr_scale=-1e300"], &["--group *: lr_scale is -1e300; it must be a finite"]),
        (&["train", "--shares", "1,-1e300"], &["--shares 1,-1e300: a weight of -1e300; give finite numbers"]),
        (&["train", "--steps", "-1"], &["invalid value '-1' for '--steps <STEPS>'"]),
        (&["train", "--weight-decay=-1"], &["--weight-decay -1", "0 or more"]),
        (&["train", "--beta1", "0.9"], &["--beta1: sgd has no such setting", "--momentum"]),
        (&["train", "--group", "fc.*"], &["--group", "no colon", "TENSORS:SETTING=VALUE"]),
        (
            &["train", "--group", "fc.*:lr=1"],
            &["--group fc.*: sgd has no setting `lr`", "lr_scale, weight_decay"],
        ),
        (&["train", "--group", "fc.*:lr_scale=-1"], &["--group fc.*: lr_scale is -1"]),
        (&["train", "--resume", "nowhere", "--no-decay", "norm"], &["--no-decay", "cannot be used with"]),
        (&["train", "--resume", "nowhere", "--beta1", "0.9"], &["--beta1", "cannot be used with"]),
        (&["train", "--bucket-cap-mb", "0"], &["--bucket-cap-mb 0", "greater than 0"]),
        (&["train", "--scale-lr"], &["--base-batch"]),
        (&["train", "--base-batch", "256"], &["--base-batch 256", "--scale-lr"]),
        (&["train", "--scale-lr", "cubic", "--base-batch", "256"], &["'cubic'", "linear, sqrt"]),
        (&["train", "--warmup-epochs", "1", "--warmup-steps", "9"], &["--warmup-epochs", "--warmup-steps"]),
        (&["train", "--schedule", "poly", "--lr-power", "0"], &["--lr-power 0", "greater than 0"]),
        (&["train", "--label-smoothing", "1"], &["--label-smoothing 1", "below 1"]),
        (&["train", "--grow-batch", "30"], &["--grow-batch", "`30`", "EPOCHS:FACTOR"]),
        (&["train", "--grow-batch", "8:2"], &["--grow-batch 8:2", "the run has 8 epochs"]),
        (&["train", "--grow-batch", "3:2,2:2"], &["--grow-batch 2:2", "after the growth before it"]),
        (
            &["train", "--grow-batch", "1:18446744073709551615"],
            &["error: 32 samples a shard × 18446744073709551615", "a batch that large cannot be counted\n"],
        ),
        (&["train", "--no-decay", ""], &["error: --no-decay '': a name or a class of tensors is missing\n"]),
        (&["train", "--resume", "nowhere", "--grow-batch", "1:2"], &["--grow-batch", "cannot be used with"]),
        (&["train", "--model", "mlp", "--zero-gamma"], &["--zero-gamma: mlp does not have residual blocks"]),
        (
            &["train", "--activation-checkpointing"],
            &["--activation-checkpointing: small does not have transformer blocks"],
        ),
        (&["train", "--model", "mlp", "--stem", "small"], &["--stem: mlp does not have a stem"]),
        (
            &["train", "--model", "mlp", "--batch-norm", "sync"],
            &["--batch-norm: mlp does not have batch norm"],
        ),
        (&["train", "--model", "vgg16"], &["vgg16", "at least 32 × 32", "28 × 28"]),
        (&["train", "--resume", "nowhere"], &["no run folder nowhere"]),
        (&["train", "--resume", "."], &[". is no run folder: it has no config.toml"]),
        (&["train", "--data", "."], &["`.` is a path, and a data set needs its kind", "give `folder:.`\n"]),
        (&["train", "--resume", "nowhere", "--lr", "1"], &["--lr", "cannot be used with"]),
        (
            &["train", "--resume", "nowhere", "--seed", "9"],
            &["--resume takes all settings from the run's config.toml: change `seed` there"],
        ),
        (&["train", "--resume", "nowhere", "--set", "seed=9"], &["--set", "cannot be used with"]),
        (
            &["train", "--set", "rate.lrr=1"],
            &["error: --set rate.lrr=1: there is no key `rate.lrr`; do you mean `rate.lr`?"],
        ),
        (
            &["train", "--set", "epochs=many"],
            &["--set epochs=many: it is string \"many\", expected a whole number\n"],
        ),
        (&["train", "--print-config", "--lr", "0"], &["--lr 0"]),
        (&["train", "--config", "nowhere.toml"], &["nowhere.toml"]),
        (&["train", "--config", "/dev/zero"], &["/dev/zero", "is no regular file"]),
        (&["train", "--init", "/dev/zero"], &["/dev/zero", "is no regular file"]),
        (&["launch", "--", "./no-such-trainer"], &["no-such-trainer"]),
        (&["launch"], &["COMMAND"]),
        (&["bench", "all-reduce", "--sizes", "3"], &["--sizes 3", "multiple of 4"]),
        (&["bench", "all-to-all", "--dtype", "f64", "--sizes", "12"], &["--sizes 12", "multiple of 8"]),
        (&["bench", "broadcast", "--root", "2"], &["--root 2", "2 ranks"]),
        (&["bench", "all-reduce", "--plot", "no/such/folder/a.svg"], &["--plot", "no/such/folder"]),
        (&["bench", "all-reduce", "--backend", "nccl", "--explain"], &["--backend nccl", "--explain"]),
        (&["bench", "all-reduce", "--algorithm", "hierarchical"], &["hierarchical", "several nodes"]),
        (&["train", "--timeout", "0"], &["--timeout", "greater than 0"]),
        (&["bench", "step", "--model", "vgg"], &["unknown model `vgg`"]),
        (&["bench", "step", "--batch-size", "0"], &["--batch-size 0"]),
        (&["chaos", "--seeds", "0"], &["--seeds 0", "at least 1"]),
        (
            &["train", "--max-restarts", "9223372036854775807"],
            &["--max-restarts", "a whole number from 0 to 1048576"],
        ),
        (
            &["launch", "--max-restarts", "18446744073709551615", "--", "true"],
            &["--max-restarts", "a whole number from 0 to 1048576"],
        ),
        (&["train", "--servers", "1048577"], &["--servers", "a whole number from 0 to 1048576"]),
        (&["launch", "--nproc", "1048577", "--", "true"], &["too many", "a job has at most 1048576"]),
        (
            &["launch", "--nnodes", "1:2", "--node-rank", "1", "--master", "localhost:29500", "--", "true"],
            &["--node-rank 1", "leave it out"],
        ),
        (&["bench", "exact", "--rounds", "0"], &["--rounds 0", "at least 1"]),
        (&["bench", "exact", "--sizes", "4,3"], &["--sizes 3", "4 bytes"]),
        (&["train", "--clip-norm", "inf"], &["--clip-norm inf: it must be greater than 0, and finite\n"]),
        (&["train", "--weight-decay", "inf"], &["--weight-decay inf: it must be 0 or more, and finite\n"]),
        (
            &["train", "--reduction", "powersgd:min_rate=inf"],
            &["--reduction powersgd:min_rate=inf: min_rate must be 1 or more, and finite\n"],
        ),
        (
            &["train", "--sync", "local:H=18446744073709551615"],
            &["a whole number of 1 or more, at most 9007199254740992"],
        ),
        (&["train", "--timeout", "inf"], &["--timeout", "greater than 0 and below 1e9"]),
        (&["launch", "--grace", "1e300", "--", "true"], &["--grace 1e300: give seconds from 0 to 1e9\n"]),
        (
            &["bench", "all-reduce", "--seconds", "1e300"],
            &["--seconds 1e300: give a time greater than 0 and below 3600\n"],
        ),
        (
            &["verify", "--bucket-caps-mb", "inf"],
            &["--bucket-caps-mb inf: it must be greater than 0, and finite"],
        ),
        (&["bench", "step", "--bucket-cap-mb=-1"], &["--bucket-cap-mb -1", "greater than 0"]),
    ] {
        let (code, error) = fail(folder.path(), args);
        assert!(code != 0 && error.starts_with("error:"), "{args:?}: {code} {error}");
        assert!(words.iter().all(|word| error.contains(word)), "{args:?}: {error}");
        assert!(!error.contains("panicked"), "{args:?}: {error}");
    }
    assert!(!folder.path().join("runs").exists(), "a refused run leaves no folder");
}

#[test]
fn broken_data_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let spec = format!("cifar10:{}", data.display());
    assert!(fail(folder.path(), &["train", "--data", &spec]).1.contains("data_batch_1.bin"));
    for name in ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]
    {
        fs::write(data.join(name).with_extension("bin"), vec![0; 10 * 3073]).unwrap();
    }
    let (_, error) = fail(folder.path(), &["train", "--data", &spec]);
    assert!(error.contains("data_batch_1.bin") && error.contains("30730 bytes"), "{error}");

    let spec = format!("mnist:{}", data.display());
    for name in ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"] {
        fs::write(data.join(name), [0, 0, 9, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 7]).unwrap();
    }
    let (_, error) = fail(folder.path(), &["train", "--data", &spec]);
    assert!(error.contains("train-images-idx3-ubyte") && error.contains("0x00000803"), "{error}");

    // One file of a folder, which a later step needs: the corrected run finds no folder in its way.
    for class in ["a", "b"] {
        fs::create_dir_all(folder.path().join("images").join(class)).unwrap();
        for number in 0..12 {
            let path = folder.path().join(format!("images/{class}/{number}.png"));
            image::GrayImage::new(9, 8).save(path).unwrap();
        }
    }
    fs::write(folder.path().join("images/b/7.png"), "no image").unwrap();
    let train = ["train", "--data", "folder:images", "--size", "8", "--model", "mlp", "--nproc", "1"];
    let (code, error) =
        fail(folder.path(), &[&train[..], &["--batch-size", "2", "--seed", "1", "--out", "run"]].concat());
    assert!(code == 2 && error.contains("images/b/7.png is not an image of a known format"), "{error}");
    assert!(
        error.contains("--warmup-steps 100: the run has 96 steps, in which the learning rate only rises"),
        "{error}"
    );
    assert!(!folder.path().join("run").exists());
    // The others of a job save their work and say no more of it.
    let more = ["--nproc", "2", "--batch-size", "2", "--warmup-steps", "0", "--out", "two"];
    let (code, error) = fail(folder.path(), &[&train[..7], &more].concat());
    let last = error.lines().last().unwrap_or_default();
    assert!(code == 2 && last.starts_with("error: rank ") && last.contains("--skip-unreadable"), "{error}");
    assert!(!error.contains("also failed") && !error.contains("samples in question"), "{error}");
}

#[test]
fn folders_ports_and_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let train =
        |out: &'static str| ["train", "--steps", "1", "--nproc", "1", "--batch-size", "8", "--out", out];
    succeed(folder.path(), &train("a"));

    let (_, error) = fail(folder.path(), &train("a"));
    assert!(error.contains("run folder a exists") && error.contains("--resume a"), "{error}");

    for command in ["launch", "verify", "chaos"] {
        let (code, error) = fail(folder.path(), &[command, "--", "./nope"]);
        assert!(
            code == 127 && error.ends_with("cannot start `./nope`: there is no such file\n"),
            "{code} {error}"
        );
    }

    // The command in the message applies to that folder and nothing else.
    succeed(folder.path(), &train("my run"));
    let (_, error) = fail(folder.path(), &train("my run"));
    assert!(error.contains("--resume 'my run'"), "{error}");
    for part in ["a/checkpoints", "a/checkpoints/step-00000001", "a/checkpoints/step-00000001/position.json"]
    {
        let (code, error) = fail(folder.path(), &["train", "--resume", part]);
        assert!(
            code == 2 && error.contains(&format!("{part} is in the run folder a; give that one")),
            "{error}"
        );
    }
    // The folder of a run stands for its configuration.
    let again = ["train", "--config", "a", "--nproc", "1", "--out", "again"];
    succeed(folder.path(), &again);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let (_, error) = fail(folder.path(), &["launch", "--master-port", &port, "--", "true"]);
    assert!(error.contains(&port), "{error}");
    let (_, error) = fail(folder.path(), &["train", "--master-port", &port, "--out", "c"]);
    assert!(error.contains(&port) && !folder.path().join("c").exists(), "{error}");

    let diverging =
        ["train", "--lr", "1e30", "--nproc", "2", "--batch-size", "8", "--warmup-steps", "0", "--out", "d"];
    let (_, error) = fail(folder.path(), &diverging);
    assert!(error.contains("diverged") && error.contains("--lr"), "{error}");
    assert_eq!(error.matches("diverged").count(), 1, "{error}");

    // The checkpoint of a small network, in the run folder of a large one.
    succeed(folder.path(), &train("b"));
    let config = fs::read_to_string(folder.path().join("b/config.toml")).unwrap();
    fs::write(folder.path().join("b/config.toml"), config.replace("\"small\"", "\"resnet18\"")).unwrap();
    let (_, error) = fail(folder.path(), &["train", "--resume", "b"]);
    assert!(error.contains("written with model = \"small\", and config.toml has \"resnet18\""), "{error}");
    assert!(!error.contains("continues after step"), "{error}");

    let weights = fs::read_dir(folder.path().join("a/checkpoints")).unwrap().next().unwrap().unwrap();
    fs::write(weights.path().join("weights.safetensors"), b"short").unwrap();
    let (_, error) = fail(folder.path(), &["train", "--resume", "a"]);
    assert!(error.contains("weights.safetensors"), "{error}");
}

/// Variables that the launcher reads, its workers, or both.
#[test]
fn wrong_variables_are_wrong_input() {
    let folder = tempfile::tempdir().unwrap();
    let train =
        ["train", "--model", "mlp", "--steps", "1", "--nproc", "1", "--batch-size", "8", "--out", "run"];
    for (name, value) in [
        ("KOLO_TIMEOUT", "silly"),
        ("KOLO_TIMEOUT", ""),
        ("KOLO_HOST_TIMEOUT", "silly"),
        ("KOLO_TOKEN", "short"),
        ("KOLO_STREAMS", "silly"),
        ("KOLO_TRANSPORT", "silly"),
        ("KOLO_ALGORITHM", "silly"),
        ("KOLO_TCP_DELAY_US", "silly"),
        ("KOLO_STOP_ON", "silly"),
        ("KOLO_LOG_FORMAT", "silly"),
    ] {
        let output = kolo(folder.path(), &train).env(name, value).output().unwrap();
        let words = stderr(&output);
        assert!(output.status.code() == Some(2) && words.contains(name), "{name}={value}: {words}");
    }
}

#[test]
fn an_error_beside_json_is_an_object() {
    let folder = tempfile::tempdir().unwrap();
    for (args, message, code) in [
        (&["train", "--json", "--model", "resnet19"][..], "unknown model `resnet19`", 2),
        (&["train", "--log-format", "json", "--epochs", "x"], "invalid value 'x' for '--epochs <EPOCHS>'", 2),
        (
            &["plan", "memory", "--json"],
            "the following required arguments were not provided: <--parameters <NUMBER>|--model <NAME>>",
            2,
        ),
        (&["evaluate", "nowhere", "--json"], "nowhere", 2),
        (&["launch", "--json", "--nproc", "1", "--", "sh", "-c", "exit 3"], "rank 0 (pid ", 3),
    ] {
        let (status, words) = fail(folder.path(), args);
        let last: serde_json::Value = serde_json::from_str(words.lines().last().unwrap()).expect(&words);
        assert_eq!(
            (status, &last["event"], &last["exit_code"]),
            (code, &"error".into(), &code.into()),
            "{words}"
        );
        assert!(last["message"].as_str().unwrap().starts_with(message), "{words}");
        assert!(last["time_unix"].as_f64().unwrap() > 1e9, "{words}");
    }
}

/// A worker by hand, or of a launcher that has started another number of workers.
#[test]
fn counts_of_workers_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let place = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29719"), ("RANK", "0")];
    let train = |count: &str, more: &[&str]| {
        let args = [&["train", "--model", "mlp", "--steps", "1", "--out", "run"], more].concat();
        let output = kolo(folder.path(), &args).envs(place).env("WORLD_SIZE", count).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    let words = train("99999999999", &[]);
    assert!(words.contains("WORLD_SIZE is 99999999999; it must be at most 1048576"), "{words}");
    let words = train("2", &["--nproc", "5"]);
    assert!(words.contains("--nproc 5: this process is one of 2 workers"), "{words}");

    let program = env!("CARGO_BIN_EXE_kolo");
    let args = ["launch", "--nproc", "2", "--", program, "train", "--nproc", "5", "--out", "run"];
    let (code, words) = fail(folder.path(), &args);
    assert!(code == 2 && words.contains("--nproc 5: this process is one of 2 workers"), "{words}");
}

/// With the variables of Open MPI's mpirun, of MPICH's, and without any; no MPI is loaded before.
#[test]
fn one_copy_of_the_state_is_refused_over_mpi() {
    let folder = tempfile::tempdir().unwrap();
    for started in [
        &[
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            ("PMIX_NAMESPACE", "1641086977"),
        ][..],
        &[("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0"), ("MPI_LOCALNRANKS", "2")],
        &[],
    ] {
        let args = ["train", "--model", "mlp", "--shard", "host", "--steps", "1", "--out", "run"];
        let mut command = kolo(folder.path(), &args);
        let output = command.envs(started.iter().copied()).env("KOLO_BACKEND", "mpi").output().unwrap();
        let words = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{words}");
        let expected = "--shard host with KOLO_BACKEND=mpi: it needs workers that share memory; leave out one of the two";
        assert!(words.contains(expected) && words.matches("error:").count() == 1, "{words}");
        assert!(!folder.path().join("run").exists(), "{words}");
    }
}

#[test]
fn a_decision_by_samples_that_are_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("own.csv"), "x,y\n1,a\n2,b\n3,a\n4,b\n").unwrap();
    for option in [["--best-metric", "accuracy"], ["--patience", "2"]] {
        let train = ["train", "--data", "csv:own.csv", "--model", "mlp", "--batch-size", "2", "--nproc", "1"];
        let (code, error) = fail(folder.path(), &[&train[..], &option].concat());
        let problem = "the data has no samples for validation or tests that could decide; give --val-split";
        assert!(code == 2 && error.contains(&format!("{}: {problem}\n", option.join(" "))), "{code} {error}");
    }
}
