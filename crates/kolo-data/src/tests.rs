//! Data sets on disk: complete ones, and every kind of damage.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::*;
use crate::format::source::Source;
use crate::format::{cifar, idx as format_idx};
use crate::sets::{cifar10, mnist};
use kolo_sampler::key::Key;

const FOUR: [&str; 4] = [
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
];

fn idx(sizes: &[u32], data: &[u8]) -> Vec<u8> {
    let header = std::iter::once(0x800 + sizes.len() as u32).chain(sizes.iter().copied());
    header.flat_map(u32::to_be_bytes).chain(data.iter().copied()).collect()
}

fn idx_images(count: usize) -> Vec<u8> {
    let pixels: Vec<u8> = (0..count * 784).map(|i| i as u8).collect();
    idx(&[count as u32, 28, 28], &pixels)
}

fn idx_labels(labels: &[u8]) -> Vec<u8> {
    idx(&[labels.len() as u32], labels)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Writes the four files of a data set of three and two images, each encoded by `pack`.
fn write_idx(dir: &Path, suffix: &str, pack: impl Fn(&[u8]) -> Vec<u8>) {
    let files = [idx_images(3), idx_labels(&[7, 0, 9]), idx_images(2), idx_labels(&[1, 2])];
    for (name, bytes) in FOUR.iter().zip(files) {
        fs::write(dir.join(format!("{name}{suffix}")), pack(&bytes)).unwrap();
    }
}

fn spec(name: &str, dir: &Path) -> String {
    format!("{name}:{}", dir.display())
}

/// Applies `damage` to a complete Fashion-MNIST folder and returns the error of opening it.
fn message(damage: impl Fn(&Path)) -> String {
    let dir = TempDir::new().unwrap();
    write_idx(dir.path(), "", <[u8]>::to_vec);
    damage(dir.path());
    refusal(&spec("fashion-mnist", dir.path()))
}

fn refusal(spec: &str) -> String {
    open(spec).err().expect("it cannot be opened").to_string()
}

fn folder(name: &str, dir: &Path) -> Folder {
    let entry = DATASETS.iter().find(|entry| entry.name == name).unwrap();
    entry.folder(dir.to_str()).unwrap()
}

fn assert_all(message: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
}

#[test]
fn plain_gzip_and_nested_folders_all_give_the_same() {
    let opened: Vec<ImageSet> = ["", "MNIST/raw"]
        .iter()
        .flat_map(|sub| [(sub, ""), (sub, ".gz")])
        .map(|(sub, suffix)| {
            let dir = TempDir::new().unwrap();
            fs::create_dir_all(dir.path().join(sub)).unwrap();
            let pack = |bytes: &[u8]| if suffix.is_empty() { bytes.to_vec() } else { gzip(bytes) };
            write_idx(&dir.path().join(sub), suffix, pack);
            mnist::read(&folder("mnist", dir.path())).unwrap()
        })
        .collect();
    for dataset in &opened {
        let (train, test) = (dataset.images(Part::Train), dataset.images(Part::Test));
        assert_eq!(
            (train.labels.as_slice(), test.labels.as_slice()),
            ([7, 0, 9].as_slice(), [1, 2].as_slice())
        );
        let shape = SampleShape { channels: 3, height: 32, width: 32, classes: 10, is_text: false };
        assert_eq!((dataset.shape(), dataset.samples(Part::Train)), (shape, 3));
        for part in [Part::Train, Part::Test] {
            assert_eq!(dataset.images(part), opened[0].images(part));
        }
        // A batch is normalized, and altered only on request.
        let key = AugmentKey { seed: 0, epoch: 0 };
        let [plain, altered] =
            [None, Some(key)].map(|key| dataset.batch(Part::Train, &[0, 1, 2], key).unwrap());
        assert_eq!((plain.shape, &plain.labels), ([3, 3, 32, 32], &altered.labels));
        assert!(plain.images != altered.images && plain.images.iter().sum::<f32>().abs() < 1.0);
    }
    let how = opened[0].preprocessing().unwrap();
    let padded = opened[0].images(Part::Train).mean_and_std();
    assert_eq!((how.image_size, how.input_size, how.padding), ([1, 28, 28], [3, 32, 32], [2; 4]));
    assert_eq!(((how.mean, how.std), how.num_classes, how.label_names.len()), (padded, 10, 10));
    // Row 1, column 1 of the first image (byte 29) is at row 3, column 3 of the padded one.
    assert_eq!(opened[0].images(Part::Train).pixels[3 * 32 + 3], 29);
}

#[test]
fn names_and_folders_are_checked() {
    assert_all(
        &refusal("cifar11:x"),
        &[
            "`cifar11`",
            "fashion-mnist-small, fashion-mnist[:DIR], mnist:DIR, cifar10:DIR, cifar100:DIR, folder:DIR, csv:FILE, parquet:FILE",
        ],
    );
    assert_all(&refusal("cifar10"), &["`cifar10:DIR`", "cifar-10-binary.tar.gz"]);
    assert_all(&refusal("fashion-mnist-small:x"), &["takes no folder", "`x`"]);
    let missing = refusal("fashion-mnist:/no/such");
    assert_all(&missing, &["/no/such", "apt-get install dataset-fashion-mnist", "fashion-mnist:DIR"]);
    for entry in DATASETS {
        assert!(!entry.about.is_empty() && entry.usage().starts_with(entry.name));
    }
}

#[test]
fn damaged_idx_files_are_named_with_the_remedy() {
    let image = "train-images-idx3-ubyte";
    let with =
        |name: &'static str, bytes: Vec<u8>| message(move |dir| fs::write(dir.join(name), &bytes).unwrap());
    let cut = |bytes: Vec<u8>, by: usize| bytes[..bytes.len() - by].to_vec();

    let missing = message(|dir| fs::remove_file(dir.join(FOUR[3])).unwrap());
    assert_all(&missing, &["t10k-labels-idx1-ubyte, t10k-labels-idx1-ubyte.gz", "apt-get install"]);
    assert_all(&with(image, cut(idx_images(3), 1)), &[image, "2351 bytes", "instead of 2352", "cut off"]);
    assert_all(&with(image, gzip(&cut(idx_images(3), 1))), &["2351 bytes", "cut off"]);
    assert_all(&with(image, [idx_images(3), vec![0]].concat()), &["instead of 2352", "too long"]);
    assert_all(&with(image, vec![]), &["0 bytes", "cut off"]);
    assert_all(&with(image, idx_labels(&[1])), &[image, "0x00000801", "0x00000803"]);
    assert_all(&with(image, idx(&[3, 14, 56], &[0; 2352])), &["14x56", "28x28"]);
    assert_all(&with(image, idx_images(2)), &["2 images", "3 labels", FOUR[1]]);
    assert_all(&with(FOUR[1], idx_labels(&[0, 10, 1])), &[FOUR[1], "image 1", "label 10", "0 to 9"]);
    let empty = message(|dir| {
        fs::write(dir.join(FOUR[0]), idx_images(0)).unwrap();
        fs::write(dir.join(FOUR[1]), idx_labels(&[])).unwrap();
    });
    assert_all(&empty, &[image, "no images"]);
    let mut wrong_sum = gzip(&idx_images(3));
    let sum = wrong_sum.len() - 8;
    wrong_sum[sum] ^= 1;
    assert_all(&with(image, wrong_sum), &[image, "cannot be read", "get it again"]);
    assert_all(&with(image, cut(gzip(&idx_images(3)), 4)), &[image, "cannot be read"]);
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let whole = [idx_images(2), gzip(&idx_images(2)), idx_labels(&[1, 2]), gzip(&idx_labels(&[1, 2]))];
    let read = |images: &[u8], labels: &[u8]| {
        let source = |bytes: &[u8]| Source::new(&PathBuf::from("x"), Cursor::new(bytes.to_vec()));
        format_idx::read(source(images)?, source(labels)?, 10)
    };
    assert_eq!(read(&whole[1], &whole[3]).unwrap(), read(&whole[0], &whole[2]).unwrap());
    for (i, whole_file) in whole.iter().enumerate() {
        let read = |bytes: &[u8]| if i < 2 { read(bytes, &whole[2]) } else { read(&whole[0], bytes) };
        for length in 0..whole_file.len() {
            assert!(read(&whole_file[..length]).is_err(), "file {i} cut at {length}");
        }
        for n in 0..2_000 {
            let key = Key::new(n).with(i as u64);
            let mut bytes = whole_file.clone();
            for change in 0..1 + n % 3 {
                let at = key.with(2 * change).below(if n % 2 == 0 { 16 } else { bytes.len() });
                bytes[at.min(whole_file.len() - 1)] = key.with(2 * change + 1).below(256) as u8;
            }
            if let Ok(images) = read(&bytes) {
                assert_eq!((images.len(), images.pixels.len()), (2, 2 * 784));
            }
        }
    }
}

#[test]
fn cifar_is_read_from_the_unpacked_archive() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path().join("cifar-10-batches-bin");
    fs::create_dir(&folder).unwrap();
    // Ten thousand records; compressed, so that the test does not write 180 MB. Record i has the class i %
    // 10.
    let mut records = vec![3u8; 10_000 * 3073];
    records.chunks_exact_mut(3073).zip(0..).for_each(|(record, i)| record[0] = (i % 10) as u8);
    let bytes = gzip(&records);
    for name in ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]
    {
        fs::write(folder.join(format!("{name}.bin")), &bytes).unwrap();
    }
    let dataset = cifar10::read(&self::folder("cifar10", dir.path())).unwrap();
    let train = dataset.images(Part::Train);
    assert_eq!((train.len(), dataset.samples(Part::Test)), (50_000, 10_000));
    let how = dataset.preprocessing().unwrap();
    assert_eq!((how.image_size, how.input_size, how.padding), ([3, 32, 32], [3, 32, 32], [0; 4]));
    assert_eq!((how.num_classes, how.label_names.len(), how.label_names[9].as_str()), (10, 10, "truck"));
    let (mean, std) = train.mean_and_std();
    assert_eq!((train.labels[19], mean[2], std[1]), (9, 3.0 / 255.0, 1.0));

    fs::write(folder.join("data_batch_4.bin"), gzip(&records[..records.len() - 3073])).unwrap();
    let cut = refusal(&spec("cifar10", &folder));
    assert_all(&cut, &["data_batch_4.bin", "30726927 bytes", "instead of 30730000", "cut off"]);
    fs::remove_file(folder.join("data_batch_5.bin")).unwrap();
    let missing = refusal(&spec("cifar10", &folder));
    assert_all(&missing, &["data_batch_5.bin", "cifar-10-binary.tar.gz"]);
}

#[test]
fn cifars_class_is_the_last_label_byte() {
    let record = |coarse: u8, fine: u8, pixel: u8| [vec![coarse, fine], vec![pixel; 3072]].concat();
    let read = |bytes: Vec<u8>| {
        let source = Source::new(&PathBuf::from("train.bin"), Cursor::new(bytes))?;
        cifar::read(vec![source], cifar::Record { label_bytes: 2, count: 2 }, 100)
    };
    let images = read([record(5, 99, 1), record(6, 0, 2)].concat()).unwrap();
    assert_eq!((images.labels.as_slice(), images.pixels.len()), ([99, 0].as_slice(), 2 * 3072));
    assert_eq!((images.pixels[3071], images.pixels[3072]), (1, 2));
    let error = read([record(5, 99, 1), record(6, 100, 2)].concat()).unwrap_err().to_string();
    assert_all(&error, &["train.bin", "image 1", "label 100", "0 to 99"]);
}
