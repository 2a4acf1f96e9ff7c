//! Texts for language models: documents as tokens, packed into windows of the same length.

use std::path::{Path, PathBuf};

use crate::augment::AugmentKey;
use crate::batch::Batch;
use crate::dataset::{DataSet, ImageDataSet, SampleShape};
use crate::error::DataError;
use crate::fingerprint::{ContentHash, Fingerprint};
use crate::format::documents::{self, ENDINGS};
use crate::options::OpenOptions;
use crate::part::Part;
use crate::split::{share_of, split};

/// Number of tokens of a text as bytes: the 256 bytes and [`END_OF_DOCUMENT`].
pub const BYTE_VOCABULARY: usize = 257;

/// Token that follows each document of a text as bytes.
pub const END_OF_DOCUMENT: u16 = 256;

/// Tokens of a window, unless the user gives `--context`.
pub const CONTEXT: usize = 128;

/// Element of a batch in place of a token behind the end of the text.
pub const NO_TOKEN: f32 = -1.0;

/// Names of the parts in a folder that has parts, by the number of the part.
const PARTS: [&str; 3] = ["train", "test", "val"];

/// Texts in memory. The documents of a part follow each other in one stream of tokens, and each is followed
/// by [`END_OF_DOCUMENT`]. A sample is a window of the stream: an image of one row, with the tokens as
/// pixels. Windows begin `context` tokens apart, and each also has the token that follows it. So a model that
/// predicts each next token of every window predicts each token of the stream once, except for the first.
#[derive(Debug)]
pub(crate) struct TextSet {
    context: usize,
    /// Streams by the number of the part.
    parts: [Vec<u16>; 3],
}

impl TextSet {
    /// Opens a file, or a folder with documents or with the parts `train`, `val` and `test`.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, DataError> {
        let found = |path: &Path| match documents::read(path)? {
            documents if documents.is_empty() => Err(DataError::NoText { path: path.into() }),
            documents => Ok(documents),
        };
        let [train, test, validation] = PARTS.map(|name| part(path, name));
        let Some(train) = train else {
            if test.is_some() || validation.is_some() {
                return Err(DataError::NoText { path: path.join(PARTS[0]) });
            }
            return Self::of([found(path)?, Vec::new(), Vec::new()], options);
        };
        let others = [test, validation];
        let is_of_part =
            |file: &PathBuf| others.iter().flatten().chain([&train]).any(|part| file.starts_with(part));
        if let Some(path) = documents::files(path)?.into_iter().find(|file| !is_of_part(file)) {
            return Err(DataError::UnknownPart { path });
        }
        let [test, validation] = others.map(|part| part.map_or(Ok(Vec::new()), |path| found(&path)));
        Self::of([found(&train)?, test?, validation?], options)
    }

    /// Takes the documents of each part, by its number.
    pub fn of(parts: [Vec<String>; 3], options: &OpenOptions) -> Result<Self, DataError> {
        let context = options.context.unwrap_or(CONTEXT);
        if context == 0 {
            let problem = "it must be at least 1".into();
            return Err(DataError::Option { option: "--context", value: context.to_string(), problem });
        }
        let [train, test, validation] = parts;
        let [train, validation] = match options.val_split {
            None => [stream(&train), stream(&validation)],
            Some(_) if !validation.is_empty() => return Err(DataError::SplitTwice),
            Some(share) => divided(&train, share, options.seed)?,
        };
        Ok(TextSet { context, parts: [train, stream(&test), validation] })
    }
}

/// Returns the file or folder of a part.
fn part(folder: &Path, name: &str) -> Option<PathBuf> {
    let files = ENDINGS.iter().map(|ending| format!("{name}.{ending}"));
    let mut places = [name.to_owned()].into_iter().chain(files).map(|name| folder.join(name));
    places.find(|place| place.exists())
}

/// Joins documents to a stream of tokens.
fn stream(documents: &[String]) -> Vec<u16> {
    let tokens =
        |document: &String| document.bytes().map(u16::from).chain([END_OF_DOCUMENT]).collect::<Vec<_>>();
    documents.iter().flat_map(tokens).collect()
}

/// Returns the streams for training and validation. The seed draws the documents for validation; of a single
/// document it is the end.
fn divided(documents: &[String], share: f64, seed: u64) -> Result<[Vec<u16>; 2], DataError> {
    if let [document] = documents {
        let mut train = stream(std::slice::from_ref(document));
        let validation = train.split_off(train.len() - share_of(train.len(), share)?);
        return Ok([train, validation]);
    }
    let chosen = |indices: Vec<usize>| {
        stream(&indices.into_iter().map(|index| documents[index].clone()).collect::<Vec<_>>())
    };
    Ok(split(documents.len(), share, seed)?.map(chosen))
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

    /// Returns the fingerprint of all tokens.
    fn fingerprint(&self, part: Part) -> Fingerprint {
        let mut hash = ContentHash::new();
        hash.word(self.context as u64);
        hash.numbers(&self.parts[part as usize]);
        Fingerprint::of_all(self.samples(part), hash)
    }
}

impl ImageDataSet for TextSet {
    fn shape(&self) -> SampleShape {
        let width = self.context + 1;
        SampleShape { channels: 1, height: 1, width, classes: BYTE_VOCABULARY, is_text: true }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::{open, open_with};

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
        let error = open_with(&spec, &OpenOptions { val_split: Some(1.0), ..options(50) }).err().unwrap();
        assert!(error.to_string().contains("--val-split 1: it must be"), "{error}");
    }

    #[test]
    fn what_is_no_text_is_named_with_its_place() {
        let refused = |files: &[(&str, &[u8])]| {
            let (_folder, spec) = texts(files);
            open(&spec).err().unwrap().to_string()
        };
        let bytes = refused(&[("a.txt", b"good"), ("b.txt", b"b\xc3\xa4d\xffbytes")]);
        assert!(bytes.contains("b.txt: byte 4 is not UTF-8"), "{bytes}");
        let line = refused(&[("a.jsonl", b"{\"text\": \"a\"}\n{\"words\": \"b\"}\n")]);
        assert!(
            line.contains("a.jsonl, line 2: is no JSON object with a text in the field `text`"),
            "{line}"
        );
        let train = ("train/a.txt", &b"text"[..]);
        for files in [
            &[("a.txt", &b""[..])][..],
            &[("a.png", &b"text"[..])],
            &[(".git/a.txt", &b"hidden"[..])],
            &[train, ("val/b.txt", &b""[..])],
            &[("val/b.txt", &b"text"[..])],
        ] {
            let empty = refused(files);
            assert!(empty.contains("holds no text"), "{empty}");
        }
        let beside = refused(&[train, ("other/b.txt", b"text")]);
        assert!(beside.contains("other/b.txt: beside `train` there may be"), "{beside}");
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
