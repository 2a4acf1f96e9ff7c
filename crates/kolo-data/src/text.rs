//! Texts for language models: documents as tokens, packed into windows of the same length.

use std::path::{Path, PathBuf};

use crate::augment::AugmentKey;
use crate::batch::Batch;
use crate::dataset::{DataSet, ImageDataSet, SampleShape};
use crate::error::DataError;
use crate::fingerprint::{ContentHash, Fingerprint};
use crate::format::documents::{self, ENDINGS};
use crate::listing::{PARTS, part_at};
use crate::options::OpenOptions;
use crate::part::Part;
use crate::split::{share_of, split};
use crate::tokenizer::Tokenizer;
use kolo_schedule::words::first_names;

/// Tokens of a window, unless the user gives `--context`.
pub const CONTEXT: usize = 128;

/// Element of a batch in place of a token behind the end of the text.
pub const NO_TOKEN: f32 = -1.0;

/// Texts in memory. The documents of a part follow each other in one stream of tokens, and each is followed
/// by the token that ends it. A sample is a window of the stream: an image of one row, with the tokens as
/// pixels. Windows begin `context` tokens apart, and each also has the token that follows it. So a model that
/// predicts each next token of every window predicts each token of the stream once, except for the first.
#[derive(Debug)]
pub(crate) struct TextSet {
    context: usize,
    tokenizer: Tokenizer,
    /// Streams by the number of the part.
    parts: [Vec<u16>; 3],
    warnings: Vec<String>,
}

impl TextSet {
    /// Opens a file, or a folder with documents or with the parts `train`, `val` and `test`.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, DataError> {
        let mut marked = Vec::new();
        let mut found = |path: &Path| {
            let found = documents::read(path)?;
            marked.extend(found.marked);
            if found.texts.is_empty() {
                Err(DataError::NoText { path: path.into() })
            } else {
                Ok(found.texts)
            }
        };
        let [train, test, validation] = PARTS.map(|name| part(path, name));
        let Some(train) = train else {
            if let Some(path) = test.or(validation) {
                return Err(DataError::NoTrainingPart { path });
            }
            let mut parts = [Vec::new(), Vec::new(), Vec::new()];
            parts[if options.whole_is_test { Part::Test } else { Part::Train } as usize] = found(path)?;
            return Ok(Self::of(parts, options)?.warned_of(marked));
        };
        let others = [test, validation];
        let is_of_part =
            |file: &PathBuf| others.iter().flatten().chain([&train]).any(|part| file.starts_with(part));
        if let Some(path) = documents::files(path)?.into_iter().find(|file| !is_of_part(file)) {
            return Err(DataError::UnknownPart { path, train });
        }
        let [test, validation] = others.map(|part| part.map_or(Ok(Vec::new()), |path| found(&path)));
        let parts = [found(&train)?, test?, validation?];
        Ok(Self::of(parts, options)?.warned_of(marked))
    }

    /// Adds a warning of files that begin with a byte order mark.
    fn warned_of(mut self, marked: Vec<PathBuf>) -> Self {
        if !marked.is_empty() {
            let names = first_names(marked.iter().map(|path| path.display()), 1);
            let words = "with a byte order mark, which is left out of the text";
            self.warnings.push(format!("{names}: the file begins {words}"));
        }
        self
    }

    /// Takes the documents of each part, by its number.
    pub fn of(parts: [Vec<String>; 3], options: &OpenOptions) -> Result<Self, DataError> {
        let context = options.context.unwrap_or(CONTEXT);
        if context == 0 {
            let problem = "it must be at least 1".into();
            return Err(DataError::Option { option: "--context", value: context.to_string(), problem });
        }
        let [train, test, validation] = &parts;
        let ([to_train, to_validate], is_cut) = match options.val_split {
            None => ([texts(train), texts(validation)], false),
            Some(_) if !validation.is_empty() => return Err(DataError::SplitTwice),
            Some(share) => divided(train, share, options.seed)?,
        };
        let tokenizer = Tokenizer::chosen(options, &to_train)?;
        let stream = |documents: &[&str]| stream(&tokenizer, documents, options);
        let mut parts = [stream(&to_train)?, stream(&texts(test))?, stream(&to_validate)?];
        if is_cut {
            parts[Part::Train as usize].pop();
        }
        if let (Some(share), true) = (options.val_split, is_cut) {
            // A single token is predicted nowhere.
            let short =
                [Part::Train, Part::Validation].into_iter().find(|part| parts[*part as usize].len() < 2);
            let bytes = to_train.concat().len() + to_validate.concat().len();
            short.map_or(Ok(()), |part| Err(DataError::SplitShort { share, bytes, part }))?;
        }
        Ok(TextSet { context, warnings: tokenizer.shortfall().into_iter().collect(), tokenizer, parts })
    }
}

fn texts(documents: &[String]) -> Vec<&str> {
    documents.iter().map(String::as_str).collect()
}

/// Returns the file or folder of a part. The name of a folder may have capitals.
fn part(folder: &Path, name: &str) -> Option<PathBuf> {
    let files = ENDINGS.iter().map(|ending| format!("{name}.{ending}"));
    let mut places = [name.to_owned()].into_iter().chain(files).map(|name| folder.join(name));
    places.find(|place| place.exists()).or_else(|| part_at(folder, name).filter(|place| place.is_dir()))
}

/// Joins documents to a stream of tokens.
fn stream(tokenizer: &Tokenizer, documents: &[&str], options: &OpenOptions) -> Result<Vec<u16>, DataError> {
    let tokens = tokenizer.encode_all(documents, options.threads).map_err(|problem| {
        let value = options.tokenizer.as_deref().unwrap_or(Path::new("")).display().to_string();
        DataError::Option { option: "--tokenizer", value, problem: problem + "; give another one" }
    })?;
    Ok(tokens
        .into_iter()
        .flat_map(|tokens| tokens.into_iter().chain([tokenizer.end_of_document()]))
        .collect())
}

/// Returns the documents for training and validation, and true if both are parts of one. The seed draws the
/// documents for validation; of a single document it is the end.
fn divided(documents: &[String], share: f64, seed: u64) -> Result<([Vec<&str>; 2], bool), DataError> {
    if let [document] = documents {
        // Its end counts as a byte.
        let (bytes, all) = (document.len(), document.len() + 1);
        let count = share_of(all, "byte", share).map_err(|error| match error {
            DataError::SplitEmpty { part, .. } => DataError::SplitShort { share, bytes, part },
            error => error,
        })?;
        let (train, validation) = document.split_at(document.floor_char_boundary(all - count));
        return Ok(([vec![train], vec![validation]], true));
    }
    let chosen = |indices: Vec<usize>| indices.into_iter().map(|index| documents[index].as_str()).collect();
    Ok((split(documents.len(), "document", share, seed)?.map(chosen), false))
}

impl DataSet for TextSet {
    type Batch = Batch;

    fn samples(&self, part: Part) -> usize {
        self.parts[part as usize].len().saturating_sub(1).div_ceil(self.context)
    }

    fn batch(&self, part: Part, indices: &[usize], _: Option<AugmentKey>) -> Result<Batch, DataError> {
        let (tokens, width) = (&self.parts[part as usize], self.context + 1);
        let mut images = Vec::with_capacity(indices.len() * width);
        for (number, index) in indices.iter().enumerate() {
            let window = tokens[index * self.context..].iter().take(width);
            images.extend(window.map(|token| f32::from(*token)));
            images.resize((number + 1) * width, NO_TOKEN);
        }
        Ok(Batch { images, labels: vec![0; indices.len()], shape: [indices.len(), 1, 1, width] })
    }

    /// Returns the fingerprint of all tokens, and of the tokenizer.
    fn fingerprint(&self, part: Part) -> Fingerprint {
        let mut hash = ContentHash::new();
        hash.word(self.context as u64);
        hash.numbers(&self.parts[part as usize]);
        self.tokenizer.hash(&mut hash);
        Fingerprint::of_all(self.samples(part), hash)
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn tokenizer(&self) -> Option<&Tokenizer> {
        Some(&self.tokenizer)
    }
}

impl ImageDataSet for TextSet {
    fn shape(&self) -> SampleShape {
        let width = self.context + 1;
        SampleShape { channels: 1, height: 1, width, classes: self.tokenizer.vocabulary(), is_text: true }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::{END_OF_DOCUMENT, open, open_with};

    fn texts(files: &[(&str, &[u8])]) -> (TempDir, String) {
        let folder = TempDir::new().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let spec = format!("text:{}", folder.path().display());
        (folder, spec)
    }

    fn options(context: usize) -> OpenOptions {
        OpenOptions { context: Some(context), ..OpenOptions::default() }
    }

    /// The tokens that a model sees and those that it predicts, over all windows in their order.
    fn pairs(data: &dyn ImageDataSet, part: Part) -> Vec<(f32, f32)> {
        let width = data.shape().width;
        let indices: Vec<usize> = (0..data.samples(part)).collect();
        let batch = data.batch(part, &indices, None).unwrap();
        assert_eq!(batch.shape, [indices.len(), 1, 1, width]);
        let windows = batch.images.chunks_exact(width);
        let pairs = windows.flat_map(|window| window.windows(2).map(|pair| (pair[0], pair[1])));
        pairs.filter(|(_, next)| *next != NO_TOKEN).collect()
    }

    #[test]
    fn folders_of_parts_may_have_capitals() {
        let (_folder, spec) = texts(&[("Train/1.txt", b"abcdef"), ("Val/1.txt", b"gh")]);
        let data = open_with(&spec, &options(2)).unwrap();
        assert_eq!(Part::ALL.map(|part| data.samples(part)), [3, 0, 1]);
        let (_folder, spec) = texts(&[("Intro.md", b"abcdef"), ("Train.md", b"gh")]);
        assert_eq!(open_with(&spec, &options(2)).unwrap().samples(Part::Train), 5, "documents of any name");
    }

    #[test]
    fn every_token_but_the_first_is_predicted_once_whatever_the_context() {
        let (_folder, spec) = texts(&[("b/2.md", b"cd"), ("a.txt", "ä".as_bytes()), ("c.png", b"\xff")]);
        let stream = [0xc3, 0xa4, 256, b'c'.into(), b'd'.into(), 256].map(|token: u16| f32::from(token));
        let expected: Vec<(f32, f32)> = stream.windows(2).map(|pair| (pair[0], pair[1])).collect();
        for context in 1..9 {
            let data = open_with(&spec, &options(context)).unwrap();
            assert_eq!(pairs(&*data, Part::Train), expected, "context {context}");
            assert_eq!(data.samples(Part::Train), 5usize.div_ceil(context));
            assert_eq!((data.samples(Part::Test), data.shape().classes), (0, 257));
        }
        let other = |context| open_with(&spec, &options(context)).unwrap().fingerprint(Part::Train);
        assert!(other(2) == other(2) && other(2) != other(3));
    }

    #[test]
    fn lines_of_jsonl_are_documents_and_a_folder_may_have_parts() {
        let lines = b"{\"text\": \"a\\n\", \"other\": 1}\n\n{\"text\": \"b\"}\n";
        let (_folder, spec) =
            texts(&[("train.jsonl", lines), ("val/1.txt", b"xy"), ("test.md", b"z"), ("README", b"no")]);
        let data = open_with(&spec, &options(100)).unwrap();
        let tokens = |part| pairs(&*data, part).into_iter().map(|(_, next)| next as u16).collect::<Vec<_>>();
        assert_eq!(tokens(Part::Train), [u16::from(b'\n'), 256, b'b'.into(), 256]);
        assert_eq!((tokens(Part::Validation), tokens(Part::Test)), (vec![b'y'.into(), 256], vec![256]));
        let error = open_with(&spec, &OpenOptions { val_split: Some(0.5), ..options(4) }).err().unwrap();
        assert!(matches!(error, DataError::SplitTwice), "{error}");
    }

    #[test]
    fn validation_takes_whole_documents_drawn_by_the_seed() {
        let names: Vec<String> = (0..20).map(|index| format!("{index:02}.txt")).collect();
        let contents: Vec<Vec<u8>> = (0..20u8).map(|index| vec![index; 3 + usize::from(index)]).collect();
        let files: Vec<(&str, &[u8])> =
            names.iter().zip(&contents).map(|(name, content)| (&**name, &**content)).collect();
        let (_folder, spec) = texts(&files);
        let documents = |seed, part| {
            let data =
                open_with(&spec, &OpenOptions { val_split: Some(0.25), seed, ..options(1000) }).unwrap();
            let mut found: Vec<u16> =
                pairs(&*data, part).into_iter().map(|(token, _)| token as u16).collect();
            found.dedup();
            found.retain(|token| *token != END_OF_DOCUMENT);
            found
        };
        let (train, validation) = (documents(1, Part::Train), documents(1, Part::Validation));
        assert_eq!((train.len(), validation.len()), (15, 5));
        let mut all = [train, validation.clone()].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..20), "each document is in one part");
        assert_eq!(documents(1, Part::Validation), validation);
        assert_ne!(documents(2, Part::Validation), validation);
    }

    #[test]
    fn the_end_of_a_single_document_is_for_validation() {
        let (folder, _) = texts(&[("one.txt", b"abcdefghi")]);
        let spec = format!("text:{}", folder.path().join("one.txt").display());
        let data = open_with(&spec, &OpenOptions { val_split: Some(0.3), ..options(50) }).unwrap();
        let seen =
            |part| pairs(&*data, part).into_iter().map(|(token, _)| token as u8 as char).collect::<String>();
        assert_eq!((seen(Part::Train), seen(Part::Validation)), ("abcdef".into(), "hi".into()));
        let refused = |share| {
            let options = OpenOptions { val_split: Some(share), ..options(50) };
            open_with(&spec, &options).err().unwrap().to_string()
        };
        assert!(refused(1.0).contains("--val-split 1: it must be"), "{}", refused(1.0));
        // One token alone is predicted nowhere.
        for (share, part) in
            [(0.01, "validation"), (0.1, "validation"), (0.95, "training"), (0.85, "training")]
        {
            let words =
                format!("--val-split {share}: the text is one document of 9 bytes, which leaves too little");
            let error = refused(share);
            assert!(
                error.starts_with(&words) && error.contains(&format!("too little for {part};")),
                "{error}"
            );
        }
        // A character stays whole.
        fs::write(folder.path().join("one.txt"), "abcd🙂ef").unwrap();
        let data = open_with(&spec, &OpenOptions { val_split: Some(0.4), ..options(50) }).unwrap();
        let tokens = |part| data.batch(part, &[0], None).unwrap().images;
        assert_eq!(tokens(Part::Train)[..4], [97.0, 98.0, 99.0, 100.0]);
        assert_eq!(tokens(Part::Validation)[..7], [240.0, 159.0, 153.0, 130.0, 101.0, 102.0, 256.0]);
    }

    #[test]
    fn marks_of_encodings_are_left_out_or_named() {
        let json = "\u{feff}{\"text\": \"ab\"}\n";
        let (_folder, spec) =
            texts(&[("1.txt", "\u{feff}ä".as_bytes()), ("2.jsonl", json.as_bytes()), ("3.txt", b"c")]);
        let data = open_with(&spec, &options(100)).unwrap();
        let stream = data.batch(Part::Train, &[0], None).unwrap().images;
        assert_eq!(stream[..7], [195.0, 164.0, 256.0, 97.0, 98.0, 256.0, 99.0]);
        let warnings = data.warnings();
        assert!(warnings.len() == 1 && warnings[0].ends_with("is left out of the text"), "{warnings:?}");
        assert!(
            warnings[0].contains("1.txt and 1 more: the file begins with a byte order mark"),
            "{warnings:?}"
        );
        let utf16 =
            |text: &str, bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
        for bytes in [
            utf16("\u{feff}text", u16::to_le_bytes),
            utf16("\u{feff}text", u16::to_be_bytes),
            utf16("plain", u16::to_le_bytes),
            utf16("plain", u16::to_be_bytes),
        ] {
            let (_folder, spec) = texts(&[("a.txt", &bytes)]);
            let error = open(&spec).err().unwrap().to_string();
            assert!(
                error.ends_with(
                    "a.txt: is UTF-16; convert the text, for example by `iconv -f UTF-16 -t UTF-8`"
                )
            );
        }
        // Bytes of 0 alone are text, and a wrong byte keeps its place.
        let (_folder, spec) = texts(&[("a.txt", b"a\0b\0c"), ("b.txt", b"\0\0\0\0\0\0\0\0")]);
        assert_eq!(open_with(&spec, &options(100)).unwrap().samples(Part::Train), 1);
        let (_folder, spec) = texts(&[("a.txt", b"\xef\xbb\xbfa\xff")]);
        assert!(open(&spec).err().unwrap().to_string().contains("byte 4 is not UTF-8"));
    }

    #[test]
    fn what_is_no_text_is_named_with_its_place() {
        let refused = |files: &[(&str, &[u8])]| {
            let (_folder, spec) = texts(files);
            open(&spec).err().unwrap().to_string()
        };
        let bytes = refused(&[("a.txt", b"good"), ("b.txt", b"b\xc3\xa4d\xffbytes")]);
        assert!(bytes.contains("b.txt: byte 4 is not UTF-8"), "{bytes}");
        for second in ["{\"words\": \"b\"}", "[\"b\"]", "\"b\"", "{\"text\": [\"b\"]}", "{\"text\": null}"] {
            let lines = format!("{{\"text\": \"a\"}}\n{second}\n");
            let line = refused(&[("a.jsonl", lines.as_bytes())]);
            let words = "a.jsonl, line 2: is no JSON object with a text in the field `text` (column ";
            assert!(line.contains(words), "{line}");
        }
        let train = ("train/a.txt", &b"text"[..]);
        for files in [
            &[("a.txt", &b""[..])][..],
            &[("a.png", &b"text"[..])],
            &[(".git/a.txt", &b"hidden"[..])],
            &[train, ("val/b.txt", &b""[..])],
        ] {
            let empty = refused(files);
            assert!(empty.contains("holds no text"), "{empty}");
        }
        let beside = refused(&[train, ("other/b.txt", b"text")]);
        assert!(
            beside.contains("other/b.txt: ") && beside.contains("/train counts as the part to"),
            "{beside}"
        );
        let beside = refused(&[("train.md", b"text"), ("other.md", b"text")]);
        assert!(
            beside.contains("other.md: ") && beside.contains("/train.md counts as the part to"),
            "{beside}"
        );
        let alone = refused(&[("test.md", b"text"), ("other.md", b"text")]);
        assert!(
            alone.contains("/test.md: counts as a part of a text, but there is no part `train`"),
            "{alone}"
        );
        let (_folder, spec) = texts(&[("a.txt", b"text")]);
        let size = open_with(&spec, &OpenOptions { size: Some(8), ..OpenOptions::default() }).err().unwrap();
        assert_eq!(size.to_string(), "--size 8: data set `text` does not take it; leave it out");
        let none = open_with(&spec, &options(0)).err().unwrap();
        assert_eq!(none.to_string(), "--context 0: it must be at least 1");
        let images = open_with("fashion-mnist-small", &options(8)).err().unwrap();
        assert!(
            images.to_string().starts_with("--context 8: data set `fashion-mnist-small` does not"),
            "{images}"
        );
    }
}
