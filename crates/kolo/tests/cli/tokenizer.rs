//! A language model over the tokens of a byte-level BPE, by processes. Its tokenizer stays with the run and
//! with all that is made of it.

use std::fs;

use serde_json::Value;

use super::alike::two;
use super::language_model::job;
use super::program::{cut_after_first_checkpoint, fail, succeed, summary};

#[test]
fn a_tokenizer_is_trained_kept_and_used_without_being_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let job = job(folder);
    let train = |out: &str, more: &[&str]| {
        succeed(folder, &[&job, more, &["--out", out]].concat());
        summary(&folder.join(out))["weights_sha256"].to_string()
    };
    let bpe = ["--tokenizer", "train:290"];
    let one = train("one", &[&bpe[..], &["--nproc", "1"]].concat());
    for (out, nproc) in [("two", "2"), ("three", "3")] {
        assert_eq!(train(out, &[&bpe[..], &["--nproc", nproc]].concat()), one);
    }
    let kept = |run: &str| fs::read(folder.join(run).join("tokenizer.json")).unwrap();
    assert!(kept("one") == kept("two") && kept("one") == kept("three"));

    // The run goes on with its own tokenizer, whatever has become of the text.
    cut_after_first_checkpoint(&folder.join("two"));
    succeed(folder, &["train", "--resume", "two", "--nproc", "1"]);
    let ended = summary(&folder.join("two"));
    assert_eq!(ended["weights_sha256"].to_string(), one);
    let text = folder.join("text/1.txt");
    let before = fs::read(&text).unwrap();
    fs::write(&text, "qqqq zzzz ".repeat(99)).unwrap();
    let (code, error) = fail(folder, &["train", "--resume", "three", "--epochs", "3"]);
    assert!(code == 2 && error.contains("--accept-changed-data"), "{error}");
    succeed(folder, &["train", "--resume", "three", "--epochs", "3", "--accept-changed-data"]);
    assert!(kept("three") == kept("one"));
    fs::write(&text, before).unwrap();

    // Bits of all tokens are the same by bytes and by tokens.
    let scores: Value = serde_json::from_str(&succeed(folder, &["evaluate", "one", "--json"])).unwrap();
    let of_run = ["val_perplexity", "val_loss", "val_bits_per_byte"].map(|name| &ended[name]);
    assert_eq!(["perplexity", "loss", "bits_per_byte"].map(|name| &scores[name]), of_run, "to the last bit");
    let [loss, tokens, bits] = ["loss", "tokens", "bits_per_byte"].map(|name| scores[name].as_f64().unwrap());
    let bytes = loss * tokens / std::f64::consts::LN_2 / bits;
    let first = |length: f64| (length - 20.0..length).contains(&bytes);
    assert!((bytes - bytes.round()).abs() < 1e-6 && [549.0, 305.0, 427.0].into_iter().any(first), "{bytes}");
    assert!(tokens < bytes / 2.0, "{tokens} {bytes}");

    let generate =
        |run: &str| succeed(folder, &["generate", run, "Two work", "--tokens", "30", "--seed", "5"]);
    let words = generate("one");
    assert!(words.starts_with("Two work") && words == generate("two"), "{words}");
    for (format, out) in [("transformers", "there"), ("burn", "one.bpk")] {
        succeed(folder, &["export", "one", "--format", format, "--out", out]);
        assert_eq!(generate(out), words, "{format}");
    }
    assert!(
        kept("there") == kept("one")
            && fs::read(folder.join("one.bpk.tokenizer.json")).unwrap() == kept("one")
    );
    let config: Value = serde_json::from_slice(&fs::read(folder.join("there/config.json")).unwrap()).unwrap();
    assert_eq!((&config["vocab_size"], &config["eos_token_id"]), (&290.into(), &0.into()));
    let shown = succeed(folder, &["evaluate", "one.bpk", "--data", "text:text/3.txt"]);
    assert!(shown.contains("test perplexity") && shown.contains("bits per byte"), "{shown}");

    // A run that begins with them begins with their tokenizer, unless another one is named.
    let perplexity = |run: &str| summary(&folder.join(run))["val_perplexity"].as_f64().unwrap();
    for (out, init) in [("a", "there"), ("b", "one.bpk"), ("c", "one/checkpoints")] {
        let init = folder.join(init);
        let newest = fs::read_dir(&init).into_iter().flatten().flatten().map(|entry| entry.path()).max();
        let init = if out == "c" { newest.unwrap() } else { init };
        let more = ["--nproc", "1", "--steps", "1", "--lr", "1e-9", "--init", init.to_str().unwrap()];
        train(out, &more);
        assert!(
            (perplexity(out) / perplexity("one") - 1.0).abs() < 1e-3 && kept(out) == kept("one"),
            "{out}"
        );
    }
    let refused = |more: &[&str]| {
        let (code, error) = fail(folder, &[&job, more, &["--nproc", "1", "--out", "x"]].concat());
        assert!(code == 2 && !folder.join("x").exists(), "{error}");
        error
    };
    let error = refused(&["--init", "there", "--tokenizer", "bytes"]);
    assert!(error.contains("holds the vectors of 290 tokens, and the run's tokenizer has 257;"), "{error}");
    let error = refused(&["--tokenizer", "text"]);
    assert!(error.contains("text holds neither tokenizer.json nor vocab.json and merges.txt"), "{error}");
    fs::remove_file(folder.join("there/tokenizer.json")).unwrap();
    let (code, error) = fail(folder, &["generate", "there", "a"]);
    let words =
        "there: these weights have 290 tokens, and their tokenizer has 257 (bytes); put the tokenizer.json";
    assert!(code == 2 && error.contains(words), "{error}");
}

#[test]
fn workers_with_other_tokenizers_are_refused_before_the_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let job = job(folder);
    let whole =
        [&job, &["--tokenizer", "train:290", "--steps", "1", "--nproc", "1", "--out", "whole"][..]].concat();
    succeed(folder, &whole);
    // Two tokens of the same length change their numbers.
    let kept = fs::read_to_string(folder.join("whole/tokenizer.json")).unwrap();
    fs::write(folder.join("a.json"), &kept).unwrap();
    let other = kept
        .replace("\"A\": 33", "\"A\": x")
        .replace("\"B\": 34", "\"B\": 33")
        .replace("\"A\": x", "\"A\": 34");
    assert_ne!(other, kept);
    fs::write(folder.join("b.json"), other).unwrap();
    let data = [
        "--model",
        "gpt2:tiny",
        "--data",
        "text:text",
        "--context",
        "16",
        "--epochs",
        "1",
        "--warmup-steps",
        "0",
    ];
    let with = |tokenizer: &'static str| [&data[..], &["--tokenizer", tokenizer]].concat();
    for (code, error) in two(folder, &with("a.json"), &with("b.json")) {
        assert!(code == Some(2) && error.contains("the training data is "), "{error}");
    }
    let ended = two(folder, &with("a.json"), &with("whole/tokenizer.json"));
    assert!(ended.iter().all(|(code, _)| *code == Some(0)), "{ended:?}");
}
