//! A language model from a text to its continuation, by processes.

use std::fs;
use std::path::Path;

use super::program::{cut_after_first_checkpoint, fail, kolo, stderr, succeed, summary};

/// Writes a short text, and returns the options of a run of a few steps over it.
pub fn job(folder: &Path) -> Vec<&'static str> {
    let line = "Two workers add their gradients; a third one waits for both. ";
    fs::create_dir(folder.join("text")).unwrap();
    for (name, lines) in [("1.txt", 9), ("2.md", 5), ("3.txt", 7)] {
        fs::write(folder.join("text").join(name), line.repeat(lines)).unwrap();
    }
    let text =
        ["train", "--model", "gpt2:tiny", "--data", "text:text", "--context", "16", "--val-split", "0.3"];
    let steps = ["--shards", "2", "--epochs", "2", "--warmup-steps", "0", "--dropout", "0.1"];
    [&text[..], &steps[..]].concat()
}

#[test]
fn a_text_is_learned_continued_and_exported() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let job = job(folder);
    let train = |out: &str, more: &[&str]| {
        succeed(folder, &[&job, more, &["--out", out]].concat());
        summary(&folder.join(out))["weights_sha256"].to_string()
    };
    let one = train("one", &["--nproc", "1"]);
    assert_eq!(train("two", &["--nproc", "2"]), one);
    assert_eq!(train("divided", &["--nproc", "2", "--shard", "optimizer"]), one);
    assert_eq!(train("again", &["--nproc", "2", "--activation-checkpointing"]), one);
    cut_after_first_checkpoint(&folder.join("two"));
    succeed(folder, &["train", "--resume", "two", "--nproc", "1"]);
    let ended = summary(&folder.join("two"));
    assert_eq!(ended["weights_sha256"].to_string(), one);
    // One of three documents is for validation. Untrained, all of 257 tokens are equally likely.
    let [perplexity, loss] =
        ["val_perplexity", "val_loss"].map(|name| ended[name].as_f64().unwrap_or_else(|| panic!("{ended}")));
    assert!(perplexity < 120.0 && (perplexity.ln() - loss).abs() < 1e-9, "{perplexity} {loss}");
    let recipe = fs::read_to_string(folder.join("one/config.toml")).unwrap();
    assert!(recipe.contains("name = \"adamw\"") && recipe.contains("clip_norm = 1.0"), "{recipe}");

    let generate =
        |run: &str| succeed(folder, &["generate", run, "Two work", "--tokens", "30", "--seed", "5"]);
    let text = generate("one");
    assert!(text.starts_with("Two work") && text == generate("two"), "{text}");
    succeed(folder, &["export", "one", "--format", "transformers", "--out", "there"]);
    assert_eq!(generate("there"), text);
    let shown = succeed(folder, &["generate", "one", "a\u{1b}[31m\u{9b}b\rc\td\n", "--tokens", "1"]);
    assert!(shown.starts_with("a\u{fffd}[31m\u{fffd}b\u{fffd}c\td\n"), "{shown:?}");
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.join("there/config.json")).unwrap()).unwrap();
    assert_eq!(
        (&config["vocab_size"], &config["n_head"], &config["n_ctx"]),
        (&257.into(), &2.into(), &16.into())
    );

    // What else may be done with a language model.
    let (code, error) = fail(folder, &["predict", "one", "text/1.txt"]);
    assert!(
        code == 2 && error.contains("`kolo generate` continues texts with it, and `kolo evaluate` gives"),
        "{error}"
    );
    let scores: serde_json::Value =
        serde_json::from_str(&succeed(folder, &["evaluate", "one", "--json"])).unwrap();
    let of_run = ["val_perplexity", "val_loss", "val_bits_per_byte"].map(|name| &ended[name]);
    assert_eq!(["perplexity", "loss", "bits_per_byte"].map(|name| &scores[name]), of_run, "to the last bit");
    let other = ["evaluate", "there", "--model", "gpt2:tiny", "--data", "text:text/3.txt"];
    let shown = succeed(folder, &other);
    assert!(
        shown.contains("test perplexity") && shown.contains("per token, of 427 tokens of text:"),
        "{shown}"
    );
    // A configuration that is not that of the weights.
    let place = folder.join("there/config.json");
    for (key, words) in [
        ("n_layer", "`n_layer` is 7, and the weights beside it have 4"),
        ("vocab_size", "`vocab_size` is 7, and the weights beside it have 257"),
        ("n_positions", "`n_positions` is 7, and the weights beside it have 256"),
    ] {
        let mut other = config.clone();
        other[key] = 7.into();
        fs::write(&place, other.to_string()).unwrap();
        let (code, error) =
            fail(folder, &[&job, &["--init", "there", "--nproc", "1", "--out", "x"][..]].concat());
        assert!(code == 2 && error.contains(words), "{error}");
    }
    fs::write(&place, config.to_string()).unwrap();
    // A run that begins with the export begins where this one has ended.
    train("tuned", &["--nproc", "1", "--steps", "1", "--lr", "1e-9", "--init", "there"]);
    let tuned = summary(&folder.join("tuned"))["val_perplexity"].as_f64().unwrap();
    assert!((tuned / perplexity - 1.0).abs() < 1e-3, "{tuned} {perplexity}");
}

#[test]
fn what_is_no_language_model_or_no_text_is_told_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("latin.txt"), b"caf\xe9").unwrap();
    let small = ["train", "--nproc", "1", "--steps", "1", "--batch-size", "1", "--test-batch-size", "2000"];
    succeed(folder, &[&small[..], &["--model", "mlp", "--out", "images"]].concat());
    let tiny = |data: &'static str| vec!["train", "--model", "gpt2:tiny", "--data", data];
    for (args, words) in [
        (tiny("text:latin.txt"), "latin.txt: byte 3 is not UTF-8"),
        (tiny("text:none.txt"), "data set `text:PATH`: there is no "),
        (tiny("fashion-mnist-small"), "gpt2:tiny learns from text"),
        (vec!["train", "--data", "kolo-documents"], "small learns from images"),
        (vec!["train", "--model", "gpt2:tiny", "--context", "300"], "gpt2:tiny sees at most 256 tokens"),
        (vec!["train", "--model", "gpt2:tiny", "--mixup", "0.2"], "gpt2:tiny does not have images to mix"),
        (vec!["train", "--model", "gpt2:tiny", "--no-augment"], "gpt2:tiny does not have images to alter"),
        (
            vec!["train", "--model", "mlp", "--tokenizer", "train:300"],
            "`fashion-mnist-small` does not take it",
        ),
        (vec!["generate", "images", "a"], "the model mlp sees images and writes no text"),
        (vec!["generate", "nowhere", "a"], "nowhere"),
        (
            vec!["generate", "images", "a", "--top-p", "2"],
            "--top-p 2: it must be greater than 0 and at most 1",
        ),
        (
            vec!["export", "images", "--format", "transformers", "--out", "x"],
            "transformers has no model `mlp`",
        ),
    ] {
        let (code, error) = fail(folder, &args);
        assert!(
            code == 2 && error.contains(words) && error.trim_end().lines().count() == 1,
            "{args:?}: {error}"
        );
    }
    // The program has a text of its own.
    let output = kolo(folder, &["train", "--model", "gpt2:tiny", "--print-config"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("data = \"kolo-documents\""));
}

/// `ulimit -v`: workers whose state cannot fit are refused before they make it, with what would fit.
#[test]
fn a_model_beyond_the_limit_of_addresses_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let words = "train --nproc 4 --shards 4 --model gpt2:small --batch-size 1 --context 16 --steps 1 --warmup-steps 0 --out run";
    let script = format!("ulimit -v 1200000; exec {} {words}", env!("CARGO_BIN_EXE_kolo"));
    let output =
        std::process::Command::new("bash").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
    let words = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(words.contains("1229 MB of addresses (ulimit -v)"), "{words}");
    assert!(words.contains("; with sharding `parameters` (--shard) they take 603 MB"), "{words}");
    assert!(!folder.path().join("run").exists(), "nothing is left");
}
