//! Settings of the optimizer for some tensors: `--group` and `--no-decay`.

use super::program::{fail, succeed, summary};

const FIXED: [&str; 9] =
    ["train", "--shards", "4", "--steps", "3", "--batch-size", "8", "--warmup-steps", "0"];

const GROUPS: [&str; 6] =
    ["--no-decay", "norm,bias", "--group", "fc.*:lr_scale=10,momentum=0", "--group", "conv1.*:lr_scale=0"];

#[test]
fn groups_end_in_the_same_weights_on_any_number_of_workers_and_from_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let weights = |name: &str, args: &[&str]| {
        succeed(folder.path(), &[args, &["--out", name]].concat());
        summary(&folder.path().join(name))["weights_sha256"].clone()
    };
    let one = weights("one", &[&FIXED[..], &GROUPS, &["--nproc", "1"]].concat());
    assert_ne!(weights("plain", &[&FIXED[..], &["--nproc", "1"]].concat()), one);
    assert_ne!(weights("decay", &[&FIXED[..], &GROUPS[2..], &["--nproc", "1"]].concat()), one);
    let split = ["--nproc", "3", "--bucket-cap-mb", "0.02", "--transport", "tcp"];
    assert_eq!(weights("three", &[&FIXED[..], &GROUPS, &split].concat()), one);
    assert_eq!(weights("again", &["train", "--config", "three/config.toml", "--nproc", "2"]), one);
}

#[test]
fn what_selects_nothing_is_named_with_its_option_and_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    for (args, words) in [
        (["--group", "head.*:lr_scale=10"], "--group head.*: this selects no trained parameter; there are "),
        (["--no-decay", "norm,head.*"], "--no-decay head.*: this selects no trained parameter"),
        (["--no-decay", "embedding"], "--no-decay embedding: this selects no trained parameter"),
    ] {
        let (code, error) = fail(folder.path(), &[&FIXED[..], &args].concat());
        assert!(code != 0 && error.contains(words) && error.contains("fc.bias"), "{args:?}: {code} {error}");
        assert!(!error.contains("panicked"), "{error}");
    }
}
