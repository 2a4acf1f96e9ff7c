//! Values: what the Python package `tokenizers` makes of the same texts (`tests/tokenizer/make.py`), and the
//! texts themselves, which tokens give back.

#![cfg(feature = "bpe")]

use std::fs;
use std::path::{Path, PathBuf};

use kolo_data::{ImageDataSet, OpenOptions, Part, Tokenizer, open_with};
use kolo_sampler::key::Key;
use serde_json::{Value, json};
use tempfile::TempDir;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tokenizer")
}

fn parsed(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().into()).collect()
}

/// Returns the bytes of the text of tokens.
fn text(tokenizer: &Tokenizer, tokens: &[u16]) -> Vec<u8> {
    tokens.iter().flat_map(|token| tokenizer.bytes_of(usize::from(*token))).collect()
}

/// Returns the tokenizer that `make.py` has trained, and what it makes of texts.
fn oracle() -> (Tokenizer, Vec<(String, Vec<u16>)>) {
    let expected = parsed(&fixture().join("expected.json"));
    let ids =
        |line: &Value| line["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u16).collect();
    let line = |line: &Value| (line["text"].as_str().unwrap().to_owned(), ids(line));
    let lines = expected["texts"].as_array().unwrap().iter().map(line).collect();
    (Tokenizer::open(&fixture().join("tokenizer.json")).unwrap(), lines)
}

/// Returns a text of `length` characters of all kinds.
fn any_text(number: u64, length: u64) -> String {
    let key = Key::new(5).with(number);
    let character = |at: u64| {
        let key = key.with(at);
        let below = match key.with_str("kind").below(8) {
            0 => return '\n',
            1 => return ' ',
            2..=4 => 0x80,
            5 => 0x800,
            6 => 0x1_0000,
            _ => 0x11_0000,
        };
        char::from_u32(key.with_str("value").below(below) as u32).unwrap_or('\u{fffd}')
    };
    (0..length).map(character).collect()
}

#[test]
fn tokens_are_those_of_the_python_package_and_give_back_the_text() {
    let (tokenizer, lines) = oracle();
    assert!(lines.len() > 15);
    for (line, ids) in &lines {
        assert_eq!(tokenizer.encode(line).unwrap(), *ids, "{line:?}");
        assert_eq!(text(&tokenizer, ids), line.as_bytes());
    }
    // The same tokenizer as OpenAI's two files.
    let json = parsed(&fixture().join("tokenizer.json"));
    let folder = TempDir::new().unwrap();
    let merges = json["model"]["merges"].as_array().unwrap().iter();
    let merges: String = merges.map(|pair| strings(pair).join(" ") + "\n").collect();
    fs::write(folder.path().join("merges.txt"), format!("#version: 0.2\n{merges}")).unwrap();
    fs::write(folder.path().join("vocab.json"), json["model"]["vocab"].to_string()).unwrap();
    assert_eq!(Tokenizer::beside(folder.path()), Some(folder.path().into()));
    let joined = Tokenizer::open(folder.path()).unwrap();
    assert_eq!(joined.end_of_document(), tokenizer.end_of_document());
    for (line, ids) in &lines {
        assert_eq!(joined.encode(line).unwrap(), *ids);
    }
}

#[test]
fn a_trained_tokenizer_is_that_of_the_python_package() {
    let expected = parsed(&fixture().join("expected.json"));
    let folder = TempDir::new().unwrap();
    let lines: String = strings(&expected["documents"])
        .iter()
        .map(|text| json!({ "text": text }).to_string() + "\n")
        .collect();
    fs::write(folder.path().join("train.jsonl"), lines).unwrap();
    let tokenizer = Some(format!("train:{}", expected["size"]).into());
    let options = OpenOptions { tokenizer, ..OpenOptions::default() };
    let trained = || {
        let data = open_with(&format!("text:{}", folder.path().display()), &options).unwrap();
        data.tokenizer().unwrap().json().unwrap().to_vec()
    };
    let (found, known): (Value, _) =
        (serde_json::from_slice(&trained()).unwrap(), parsed(&fixture().join("tokenizer.json")));
    assert_eq!(found["model"]["vocab"], known["model"]["vocab"]);
    assert_eq!(found["model"]["merges"], known["model"]["merges"]);
    assert_eq!(trained(), trained(), "each time the same bytes");
}

#[test]
fn any_text_comes_back_of_any_length_and_by_any_threads() {
    let (tokenizer, _) = oracle();
    for number in 0..40 {
        let line = any_text(number, 10 * number);
        assert_eq!(text(&tokenizer, &tokenizer.encode(&line).unwrap()), line.as_bytes());
    }
    let key = Key::new(8);
    let word = |at: u64| match key.with(at).below(9) {
        0 => "\n\n".into(),
        1 => " 's\nx1".into(),
        2 => any_text(at, 5),
        _ => format!("{}word{at}\nNext", [" ", "", "-"][key.with(at).with(1).below(3)]),
    };
    let long: String = (0..40_000).map(word).collect();
    let tokens = tokenizer.encode(&long).unwrap();
    assert!(long.len() > 6 * (1 << 16) && text(&tokenizer, &tokens) == long.as_bytes());
    let folder = TempDir::new().unwrap();
    for (name, text) in [("1.txt", long.as_str()), ("2.txt", "b"), ("3.txt", &long)] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let end = [tokenizer.end_of_document()];
    let stream = [&tokens[..], &end, &tokenizer.encode("b").unwrap(), &end, &tokens, &end].concat();
    for threads in [0, 1, 3] {
        let context = Some(stream.len() - 1);
        let tokenizer = Some(fixture().join("tokenizer.json"));
        let options = OpenOptions { context, tokenizer, threads, ..OpenOptions::default() };
        let data = open_with(&format!("text:{}", folder.path().display()), &options).unwrap();
        let found = data.batch(Part::Train, &[0], None).unwrap().images;
        assert!(found.into_iter().eq(stream.iter().map(|token| f32::from(*token))), "{threads} threads");
    }
}

/// Returns the refusal of the fixture's tokenizer after a change, for a text.
fn refusal(change: impl FnOnce(&mut Value), text: &str) -> Option<String> {
    let mut json = parsed(&fixture().join("tokenizer.json"));
    change(&mut json);
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    fs::write(folder.path().join("text.txt"), text).unwrap();
    let options = OpenOptions { tokenizer: Some(folder.path().into()), ..OpenOptions::default() };
    let opened = open_with(&format!("text:{}", folder.path().join("text.txt").display()), &options);
    opened.err().map(|error| error.to_string())
}

#[test]
fn a_tokenizer_that_does_not_keep_the_text_is_refused_in_a_sentence() {
    assert_eq!(refusal(|_| (), "a text"), None);
    let model = |change: Value| {
        refusal(
            |json| json["model"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone()),
            "a text",
        )
    };
    for (found, words) in [
        (model(json!({ "dropout": 0.1 })), "has the dropout 0.1, so that a text has other tokens each time"),
        (
            refusal(
                |json| json["model"] = json!({ "type": "WordLevel", "vocab": { "a": 0 }, "unk_token": "a" }),
                "a",
            ),
            "tokenizer.json is no byte-level BPE; give one that is, as GPT-2's",
        ),
        (
            refusal(|json| json["model"]["vocab"]["▁the"] = json!(500), "a text"),
            "its token \"▁the\" is not spelled in bytes",
        ),
        (
            refusal(
                |json| {
                    json["added_tokens"] = json!([]);
                    json["model"]["vocab"].as_object_mut().unwrap().remove("<|endoftext|>");
                },
                "a text",
            ),
            "has none of the tokens <|endoftext|>, ",
        ),
        (
            refusal(|json| json["model"]["vocab"]["zq"] = json!(70_000), "a text"),
            "has 70001 tokens, and Kolo takes at most 65536; give a smaller one",
        ),
        (
            refusal(|json| json["normalizer"] = json!({ "type": "Lowercase" }), "so it goes on, Anna"),
            "its tokens do not give back the text at \"Anna\"",
        ),
        (
            refusal(|json| json["pre_tokenizer"]["add_prefix_space"] = json!(true), "a text"),
            "its tokens do not give back the text at \"a text\"",
        ),
        (
            refusal(|json| *json = json!([1]), "a text"),
            "is no tokenizer in Hugging Face's format; give another",
        ),
        (
            refusal(|json| json["pre_tokenizer"] = json!({ "use": 1 }), "a text"),
            "is no tokenizer in Hugging Face's format; give another",
        ),
    ] {
        let found = found.unwrap_or_else(|| panic!("not refused: {words}"));
        assert!(
            found.contains("tokenizer") && found.contains(words) && found.lines().count() == 1,
            "{found}"
        );
    }
    // Settings that would cut a text, or fill it up, are not used.
    let cut = json!({ "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0 });
    assert_eq!(refusal(|json| json["truncation"] = cut, "a text of more than two tokens"), None);
    let options = |value: &str| OpenOptions { tokenizer: Some(value.into()), ..OpenOptions::default() };
    let folder = TempDir::new().unwrap();
    let place = folder.path().to_str().unwrap();
    let of = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.parent().unwrap().to_str().unwrap().to_owned()
    };
    let whole = fs::read(fixture().join("tokenizer.json")).unwrap();
    let pairs = |name: &str, vocabulary: &[u8], merges: &[u8]| {
        of(&format!("{name}/vocab.json"), vocabulary);
        of(&format!("{name}/merges.txt"), merges)
    };
    for (value, words) in [
        ("train:256", "--tokenizer train:256: give train:SIZE with a number of tokens from 257 to 65536"),
        ("Train:300", "--tokenizer Train:300: there is no such file; you may mean train:300"),
        ("nowhere.json", "nowhere.json: cannot be read"),
        (place, "is a folder with neither tokenizer.json nor vocab.json and merges.txt; give a file"),
        (&of("cut/tokenizer.json", &whole[..whole.len() / 2]), "tokenizer.json is damaged: its line "),
        (&of("folder/tokenizer.json/x", b""), "is a folder with neither tokenizer.json"),
        (&format!("{place}/folder"), "folder/tokenizer.json is a folder; give the file"),
        (&pairs("1", b"{}", b"a b\nc\xff"), "merges.txt is not UTF-8 from byte 5; get the file again"),
        (&pairs("2", b"{}", b"a b\nc\n"), "merges.txt has no pair of tokens in line 2; get the file again"),
        (&pairs("3", b"{", b""), "vocab.json is no list of tokens and their numbers; get the file again"),
    ] {
        let error = open_with("kolo-documents", &options(value)).err().unwrap().to_string();
        assert!(error.contains(words) && error.lines().count() == 1, "{error}");
    }
    let images = open_with("fashion-mnist-small", &options("train:300")).err().unwrap().to_string();
    assert_eq!(
        images,
        "--tokenizer train:300: data set `fashion-mnist-small` does not take it; leave it out"
    );
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let json = fs::read(fixture().join("tokenizer.json")).unwrap();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tokenizer.json");
    let opens = |json: &[u8]| {
        fs::write(&path, json).unwrap();
        Tokenizer::open(&path).is_ok()
    };
    assert!(opens(&json));
    for cut in (0..json.len()).step_by(61) {
        assert!(!opens(&json[..cut]), "cut at {cut}");
    }
    for number in 0..300 {
        let mut changed = json.clone();
        let at = Key::new(2).with(number).below(json.len());
        changed[at] = b"0[]{}\",x"[number as usize % 8];
        opens(&changed);
    }
}

#[test]
fn a_stream_has_the_tokens_of_the_training_text_and_the_ends_of_its_documents() {
    let folder = TempDir::new().unwrap();
    let line = "the workers wait for the workers. ";
    fs::write(folder.path().join("test.txt"), "🙂").unwrap();
    let lines: String = (0..3).map(|_| json!({ "text": line }).to_string() + "\n").collect();
    fs::write(folder.path().join("train.jsonl"), lines).unwrap();
    let spec = format!("text:{}", folder.path().display());
    let options = |tokenizer: &str| OpenOptions {
        context: Some(1000),
        tokenizer: Some(tokenizer.into()),
        ..OpenOptions::default()
    };
    let data = open_with(&spec, &options("train:300")).unwrap();
    let tokenizer = data.tokenizer().unwrap();
    assert_eq!(data.shape().classes, tokenizer.vocabulary());
    let end = tokenizer.end_of_document();
    let stream = |data: &dyn ImageDataSet, part| -> Vec<u16> {
        data.batch(part, &[0], None)
            .unwrap()
            .images
            .iter()
            .filter(|t| **t >= 0.0)
            .map(|t| *t as u16)
            .collect()
    };
    let tokens = stream(&*data, Part::Train);
    let documents: Vec<&[u16]> = tokens.split(|token| *token == end).collect();
    assert_eq!(documents.len(), 4, "{documents:?}");
    assert!(documents[..3].iter().all(|document| text(tokenizer, document) == line.as_bytes()));
    assert!(documents[0].len() < line.len() / 3, "pairs that are twice in the text are tokens");
    assert_eq!(stream(&*data, Part::Test).len(), 5, "no pair of the test text was trained on");
    // The text has fewer pairs than 300 tokens need.
    let warning = format!(
        "--tokenizer train:300: no more pairs are twice in the text, so there are {} tokens",
        tokenizer.vocabulary()
    );
    assert_eq!(data.warnings(), [warning]);
    // Another tokenizer is other data, and a kept one is the same data.
    let print = |value: &str| open_with(&spec, &options(value)).unwrap().fingerprint(Part::Train);
    assert!(print("train:300") == data.fingerprint(Part::Train) && print("train:258") != print("train:300"));
    assert_ne!(print("bytes"), print("train:257"));
    let kept = folder.path().join("kept.json");
    fs::write(&kept, tokenizer.json().unwrap()).unwrap();
    assert_eq!(print(kept.to_str().unwrap()), print("train:300"));
}
