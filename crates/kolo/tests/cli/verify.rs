//! `kolo verify`: jobs that agree with themselves, and jobs that do not.

use kolo_testing::{is_thorough, selected};

use super::program::{fail, kolo, noise_images, stderr};

/// Runs `kolo verify` with these words, in which DATA stands for images of noise and KOLO for the program.
/// Returns the exit code, the table, and the error output.
fn verify(args: &str) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let data = noise_images(folder.path(), 40);
    let word = |word| match word {
        "DATA" => data.as_str(),
        "KOLO" => env!("CARGO_BIN_EXE_kolo"),
        word => word,
    };
    let args: Vec<&str> = args.split_whitespace().map(word).collect();
    let output = kolo(folder.path(), &[&["verify"], &args[..]].concat()).output().unwrap();
    assert!(!folder.path().join("runs").exists() || args.contains(&"--"), "it leaves no run folder");
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr(&output),
    )
}

#[test]
fn a_training_agrees_with_itself() {
    // Two steps an epoch, the second one of 8 images for 4 shards.
    let (code, table, words) = verify("--data DATA --shards 4 --batch-size 8 --dropout 0.3");
    assert_eq!(code, 0, "{table}{words}");
    assert!(table.contains("23 of 26 runs went through the same bits, and 3 were left out"), "{table}");
    // Over images of a folder, with two loading threads, a split, averages and mixed images.
    assert!(table.contains("all 7 runs went through the same bits"), "{table}");
    assert!(words.contains("the same with images of a folder"), "{words}");
    for word in [
        "tcp",
        "shm",
        "halving-doubling",
        "binomial",
        "0.0625 MiB",
        "repeated",
        "resumed from a checkpoint after 4 steps",
        "`--tune` tries",
        "with divided state (`--shard optimizer`)",
        "with divided state (`--shard gradients`)",
        "with divided state (`--shard parameters`)",
        "with divided state (`--shard host`)",
        "with `--offload`",
    ] {
        assert!(table.contains(word), "{word}: {table}");
    }
}

/// Some tensors have settings of their own; the largest lies in several buckets.
#[test]
fn a_training_with_groups_agrees_with_itself() {
    let (code, table, words) = verify(
        "--data DATA --shards 4 --batch-size 4 --steps 2 --workers 3 --optimizer lamb --no-decay norm,bias \
         --group layer3.*:lr_scale=0.1,beta1=0.8",
    );
    assert_eq!(code, 0, "{table}{words}");
    assert!(table.contains("runs went through the same bits"), "{table}");
}

/// Normalization over the global batch, in which shards need each other's sums.
#[test]
fn a_training_in_step_agrees_with_itself() {
    let fixed = "--data DATA --batch-size 4 --steps 3 --dropout 0.3 --batch-norm sync";
    if is_thorough() {
        let (code, table, words) = verify(&format!("{fixed} --shards 8 --workers 2,3,8"));
        assert_eq!(code, 0, "{table}{words}");
        assert!(table.contains("30 of 33 runs went through the same bits"), "{table}");
    }
    // Three shards a worker.
    let (code, table, words) = verify(&format!("{fixed} --shards 6 --workers 2"));
    assert_eq!(code, 0, "{table}{words}");
    assert!(
        table.contains("left out: ")
            && table.contains("16 of 19 runs went through the same bits, and 3 were left out"),
        "{table}"
    );
}

/// Islands that synchronize every other step: only the steps that end a round are compared.
#[test]
fn a_training_of_islands_agrees_with_itself() {
    let islands = "--shards 4 --batch-size 4 --sync diloco:H=2 --islands 2 --optimizer adamw";
    let jobs = [
        format!("--data DATA --steps 2 --workers 2,3 {islands}"),
        format!("--steps 2 --workers 3 -- KOLO train --data DATA --epochs 3 {islands}"),
    ];
    for args in selected(1, jobs) {
        let (code, table, words) = verify(&args);
        assert_eq!(code, 0, "{table}{words}");
        assert!(table.contains("resumed from a checkpoint after 1 step"), "{table}");
    }
}

/// Updates that are one step late. If some runs are cut, all runs apply them there.
#[test]
fn a_training_with_late_updates_agrees_with_itself() {
    let late = "--shards 4 --batch-size 4 --sync delayed:1 --clip-norm 1";
    let jobs = [
        format!("--steps 4 --workers 3 -- KOLO train --data DATA --epochs 3 {late}"),
        format!("--data DATA --steps 5 --workers 2,3 {late}"),
    ];
    for args in selected(1, jobs) {
        let (code, table, words) = verify(&args);
        assert_eq!(code, 0, "{table}{words}");
        assert!(table.contains("resumed from a checkpoint after 2 steps"), "{table}");
        assert!(table.contains("left out: no two of its steps"), "it cannot be tuned: {table}");
    }
}

#[test]
fn an_order_of_its_own_is_named_with_step_and_parameter() {
    let (code, table, words) =
        verify("--data DATA --shards 4 --batch-size 8 --steps 2 --nproc 4 --algorithm ring");
    assert_eq!(code, 1, "{table}{words}");
    assert!(table.contains("differs in ") && table.contains("parameter `"), "{table}");
    assert!(words.contains("error: the run with 4 workers") && words.contains("step 0"), "{words}");
    assert!(words.contains("likely cause: `ring` adds gradients in an order"), "{words}");
}

#[test]
fn statistics_of_each_worker_are_named() {
    let (code, table, words) =
        verify("--data DATA --shards 4 --batch-size 8 --steps 1 --nproc 2 --batch-norm local");
    assert_eq!(code, 1, "{table}{words}");
    assert!(words.contains("statistic `") && words.contains("--batch-norm per-shard"), "{words}");
}

/// A user's program: here `kolo train` itself, which without `--shards` takes one shard for each worker.
#[test]
fn a_program_whose_batch_follows_its_workers_is_told_so() {
    let own = "--nproc 2 --steps 2 -- KOLO train --data DATA --batch-size 8";
    let (code, table, words) = verify(own);
    assert_eq!(code, 1, "{table}{words}");
    assert!(words.contains("2 shards a step instead of 1") && words.contains("Config::shards"), "{words}");
    let (code, table, words) = verify(&format!("{own} --shards 2"));
    assert_eq!(code, 0, "{table}{words}");
}

#[test]
fn what_cannot_be_verified_is_told() {
    let folder = tempfile::tempdir().unwrap();
    for (args, words) in [
        (&["verify", "--", "true"][..], &["without a step", "`Ddp`"][..]),
        (&["verify", "--", "./no-such-trainer"], &["no-such-trainer"]),
        (&["verify", "--limit", "0.3", "--", "sleep", "60"], &["--limit"]),
        (&["verify", "--limit", "0"], &["--limit", "greater than 0"]),
        (&["verify", "--workers", "0"], &["--workers 0", "at least 1"]),
        (&["verify", "--bucket-caps-mb", "25,-1"], &["--bucket-caps-mb -1", "greater than 0"]),
        (&["verify", "--steps", "0"], &["--steps 0", "at least 1"]),
        (&["verify", "--out", "here"], &["--out", "no folder"]),
        (&["verify", "--lr", "1", "--", "true"], &["--lr", "cannot be used with"]),
        (&["verify", "--dropout", "1"], &["--dropout 1", "below 1"]),
        (&["verify", "--nproc", "2", "--algorithm", "fastest"], &["fastest", "direct"]),
        (
            &["train", "--batch-norm", "global"],
            &["invalid value 'global'", "--batch-norm", "per-shard, sync, local"],
        ),
    ] {
        let (code, error) = fail(folder.path(), args);
        assert!(code != 0 && words.iter().all(|word| error.contains(word)), "{args:?}: {error}");
        assert!(!error.contains("panicked"), "{args:?}: {error}");
    }
}
