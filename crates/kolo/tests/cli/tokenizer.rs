//! A language model over the tokens of a byte-level BPE, by processes. Its tokenizer stays with the run and
//! with all that is made of it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::alike::two;
use super::language_model::job;
use super::program::{cut_after_first_checkpoint, fail, kolo, stderr, succeed, summary};

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
    let words = "these weights are for another tokenizer; take the tokenizer.json of their run, or of its exports, or \
                 begin with new vectors by --init-skip 'wte.*'";
    assert!(error.contains(words), "{error}");
    let error = refused(&["--tokenizer", "text"]);
    assert!(error.contains("text is a folder with neither tokenizer.json nor vocab.json"), "{error}");
    fs::remove_file(folder.join("there/tokenizer.json")).unwrap();
    let (code, error) = fail(folder, &["generate", "there", "a"]);
    let words =
        "there: these weights have 290 tokens, and their tokenizer has 257 (bytes); put the tokenizer.json";
    assert!(code == 2 && error.contains(words), "{error}");
}

/// Returns a tokenizer in which two tokens of the same length have each other's numbers.
fn exchanged(json: &str) -> String {
    let other = json
        .replace("\"A\": 33", "\"A\": x")
        .replace("\"B\": 34", "\"B\": 33")
        .replace("\"A\": x", "\"A\": 34");
    assert_ne!(other, json);
    other
}

#[test]
fn weights_are_used_with_their_own_tokenizer_only() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let job = job(folder);
    let begin = |out: &str, more: &[&str]| {
        let small = ["--nproc", "1", "--steps", "2", "--checkpoint-steps", "1", "--out", out];
        let output = kolo(folder, &[&job, more, &small].concat()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    // The text has fewer pairs than 3000 tokens need.
    let words = begin("run", &["--tokenizer", "train:3000"]);
    let warnings: Vec<&str> = words.lines().filter(|line| line.contains("no more pairs")).collect();
    assert!(warnings.len() == 1 && warnings[0].starts_with("warning: --tokenizer train:3000: "), "{words}");
    cut_after_first_checkpoint(&folder.join("run"));
    let output = kolo(folder, &["train", "--resume", "run"]).output().unwrap();
    assert!(output.status.success() && !stderr(&output).contains("no more pairs"), "{}", stderr(&output));

    let kept = folder.join("run/tokenizer.json");
    let own = fs::read_to_string(&kept).unwrap();
    let accepting = ["train", "--resume", "run", "--accept-changed-data"];
    let resuming = &accepting[..accepting.len() - 1];
    let checkpoint = "run/checkpoints/step-00000002";
    let uses: [&[&str]; 5] = [
        &["generate", "run", "a"],
        &["evaluate", "run"],
        &["export", "run", "--format", "transformers", "--out", "x"],
        &["export", "run", "--format", "burn", "--out", "x"],
        &["generate", checkpoint, "a"],
    ];
    let init = [&job, &["--nproc", "1", "--init", checkpoint, "--out", "x"][..]].concat();
    let all = || uses.into_iter().chain([resuming, &accepting, &init]);
    let refused = |args: &[&str], words: &str| {
        let (code, error) = fail(folder, args);
        let lines = error.lines().filter(|line| !(line.is_empty() || line.starts_with("warning: a step of")));
        let is_sentence = lines.count() == 1;
        assert!(code == 2 && is_sentence && error.contains(words), "{args:?}: {error}");
        assert!(!folder.join("x").exists(), "{args:?}");
    };
    fs::write(&kept, exchanged(&own)).unwrap();
    all().for_each(|args| {
        refused(args, "run/tokenizer.json: the run's weights of step 2 are for another tokenizer;")
    });
    fs::write(&kept, &own[..own.len() / 2]).unwrap();
    all().for_each(|args| refused(args, "run/tokenizer.json is damaged: its line "));
    fs::remove_file(&kept).unwrap();
    all().for_each(|args| {
        refused(args, "run/tokenizer.json, by which the run's weights know the text; put a copy there")
    });
    fs::create_dir(&kept).unwrap();
    all().for_each(|args| {
        refused(args, "run/tokenizer.json, by which the run's weights know the text; put a copy there")
    });
    fs::remove_dir(&kept).unwrap();
    fs::write(&kept, &own).unwrap();
    let configuration = folder.join("run/config.toml");
    let config = fs::read_to_string(&configuration).unwrap();
    fs::write(&configuration, config.replace("train:3000", "train:300")).unwrap();
    let words = "run/config.toml: `tokenizer` is `train:300`, and the run began with `train:3000`, by which";
    [resuming, &accepting].into_iter().for_each(|args| refused(args, words));
    fs::write(&configuration, config).unwrap();

    // The same content in another form is the same tokenizer.
    let other_form = serde_json::from_str::<Value>(&own).unwrap().to_string();
    fs::write(&kept, &other_form).unwrap();
    let words = succeed(folder, &["generate", "run", "a"]);
    succeed(folder, resuming);
    fs::write(&kept, &own).unwrap();

    exports_name_their_tokenizer(folder, &job, [&own, &other_form], &words);
    for (path, words) in [
        ("copy", "copy: Kolo does not know the model of these weights; give a run folder"),
        ("run/config.toml", "run/config.toml is not a file of weights"),
    ] {
        let copied = folder.join("copy");
        fs::create_dir_all(&copied).unwrap();
        for entry in fs::read_dir(folder.join(checkpoint)).unwrap().flatten() {
            fs::copy(entry.path(), copied.join(entry.file_name())).unwrap();
        }
        refused(&["generate", path, "a"], words);
    }
    // A run folder stands for its newest weights.
    begin("of run", &["--init", "run"]);
    begin("of checkpoint", &["--init", checkpoint]);
    let weights = |run: &str| summary(&folder.join(run))["weights_sha256"].to_string();
    assert_eq!(weights("of run"), weights("of checkpoint"));
    let config = fs::read_to_string(folder.join("of run/config.toml")).unwrap();
    assert!(config.contains(checkpoint), "{config}");

    // A run that begins with weights keeps their tokenizer, and depends on their folder no longer.
    begin("tuned", &["--init", "there"]);
    assert_eq!(fs::read_to_string(folder.join("tuned/tokenizer.json")).unwrap(), own);
    fs::rename(folder.join("there"), folder.join("gone")).unwrap();
    for args in [
        &["train", "--resume", "tuned"][..],
        &[&job, &["--nproc", "1", "--steps", "2", "--init", "there", "--checkpoint-steps", "1"][..]].concat(),
    ] {
        cut_after_first_checkpoint(&folder.join("tuned"));
        let again = if args.contains(&"--init") { &["--out", "tuned", "--resume-or-start"][..] } else { &[] };
        succeed(folder, &[args, again].concat());
    }
    // The tokens of bytes need no file.
    begin("bytes", &[]);
    fs::write(folder.join("bytes/tokenizer.json"), own).unwrap();
    for args in [&["generate", "bytes", "a"][..], &["train", "--resume", "bytes"]] {
        refused(args, "bytes/tokenizer.json: the run's weights of step 2 are for bytes; remove the file");
    }
}

/// Exports the run, changes the tokenizer of what was exported, and uses it in every way. `own` is the run's
/// tokenizer in two forms, `words` what the run writes.
fn exports_name_their_tokenizer(folder: &Path, job: &[&str], own: [&str; 2], words: &str) {
    for (format, out, file, described) in [
        ("transformers", "there", "there/tokenizer.json", "there/model.safetensors.json"),
        ("burn", "run.bpk", "run.bpk.tokenizer.json", "run.bpk.json"),
    ] {
        succeed(folder, &["export", "run", "--format", format, "--out", out]);
        let (tokenizer, description) = (folder.join(file), folder.join(described));
        fs::write(&tokenizer, own[1]).unwrap();
        assert_eq!(succeed(folder, &["generate", out, "a"]), words, "{format}");
        let (code, error) = fail(folder, &["evaluate", out]);
        let advice = format!("{out}: these weights do not say where their data lies; give --data text:PATH");
        assert!(code == 2 && error.contains(&advice), "{error}");

        fs::write(&tokenizer, exchanged(own[0])).unwrap();
        let other = folder.join("other.json");
        fs::copy(&tokenizer, &other).unwrap();
        let begin = [job, &["--nproc", "1", "--steps", "1", "--out", "x", "--init", out]].concat();
        let refused = |args: &[&str]| {
            let (code, error) = fail(folder, args);
            assert!(code == 2 && !folder.join("x").exists(), "{args:?}: {error}");
            let sentence = format!("{out}: these weights are for another tokenizer; take the tokenizer.json");
            assert!(error.contains(&sentence), "{args:?}: {error}");
        };
        refused(&["generate", out, "a"]);
        refused(&["evaluate", out, "--data", "text:text/3.txt"]);
        refused(&begin);
        // The file of the weights says it, too.
        let kept = fs::read(&description).unwrap();
        fs::remove_file(&description).unwrap();
        refused(&begin);
        fs::write(&description, kept).unwrap();
        fs::write(&tokenizer, own[0]).unwrap();
        refused(&[&begin[..], &["--tokenizer", "other.json"]].concat());
    }
    // New vectors of the tokens are for any tokenizer.
    let new = ["--init", "there", "--init-skip", "wte.*", "--tokenizer", "other.json", "--steps", "1"];
    succeed(folder, &[job, &["--nproc", "1", "--out", "new"], &new].concat());
}

#[test]
fn workers_with_other_tokenizers_are_refused_before_the_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let job = job(folder);
    let whole =
        [&job, &["--tokenizer", "train:290", "--steps", "1", "--nproc", "1", "--out", "whole"][..]].concat();
    succeed(folder, &whole);
    let kept = fs::read_to_string(folder.join("whole/tokenizer.json")).unwrap();
    fs::write(folder.join("a.json"), &kept).unwrap();
    fs::write(folder.join("b.json"), exchanged(&kept)).unwrap();
    let data = [
        "--model", "gpt2:tiny", "--data", "text:text", "--context", "16", "--epochs", "1", "--warmup-steps",
        "0",
    ];
    let with = |tokenizer: &'static str| [&data[..], &["--tokenizer", tokenizer]].concat();
    for (code, error) in two(folder, &with("a.json"), &with("b.json")) {
        assert!(code == Some(2) && error.contains("the tokenizer is "), "{error}");
    }
    let ended = two(folder, &with("a.json"), &with("whole/tokenizer.json"));
    assert!(ended.iter().all(|(code, _)| *code == Some(0)), "{ended:?}");
}
