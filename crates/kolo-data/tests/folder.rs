//! Image folders on disk: what is read from them, and every kind of damage.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use image::{GrayImage, ImageFormat, Luma, Rgb, RgbImage};
use kolo_data::{
    AugmentKey, DataError, ImageDataSet, OpenOptions, Part, SampleShape, open, open_with, read_samples,
};
use tempfile::TempDir;

/// A change to a folder of images.
type Change = fn(&Path);

fn color(path: &Path, width: u32, height: u32, pixel: [u8; 3]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    RgbImage::from_pixel(width, height, Rgb(pixel)).save(path).unwrap();
}

/// Three classes of mixed formats and sizes; the labels by name are 0 for `Bär`, 1 for `a cat`, 2 for `dog`.
fn three_classes(root: &Path) {
    color(&root.join("dog/2.png"), 40, 30, [255, 0, 0]);
    color(&root.join("dog/10.JPG"), 30, 40, [0, 255, 0]);
    color(&root.join("a cat/deep/1.bmp"), 50, 50, [0, 0, 255]);
    color(&root.join("a cat/z.webp"), 33, 32, [10, 20, 30]);
    fs::create_dir_all(root.join("Bär")).unwrap();
    let gray = GrayImage::from_pixel(64, 48, Luma([100]));
    gray.save_with_format(root.join("Bär/grau ä.png"), ImageFormat::Png).unwrap();
    fs::write(root.join("dog/notes.txt"), "no image").unwrap();
}

fn options() -> OpenOptions {
    OpenOptions { size: Some(8), ..OpenOptions::default() }
}

fn opened(root: &Path, options: &OpenOptions) -> Result<std::sync::Arc<dyn ImageDataSet>, DataError> {
    open_with(&format!("folder:{}", root.display()), options)
}

fn refusal(root: &Path) -> String {
    opened(root, &options()).err().expect("it cannot be opened").to_string()
}

fn with_three_classes(change: impl FnOnce(&Path)) -> TempDir {
    let folder = TempDir::new().unwrap();
    three_classes(folder.path());
    change(folder.path());
    folder
}

#[test]
fn classes_are_the_sorted_folders_and_images_are_those_of_torchvision() {
    let folder = with_three_classes(|_| ());
    let data = opened(folder.path(), &options()).unwrap();
    assert_eq!(data.shape(), SampleShape { channels: 3, height: 8, width: 8, classes: 3, is_text: false });
    assert_eq!(Part::ALL.map(|part| data.samples(part)), [5, 0, 0]);
    let how = data.preprocessing().unwrap();
    assert_eq!(how.label_names, ["Bär", "a cat", "dog"]);
    assert_eq!((how.resize, how.input_size, how.padding), (Some(9), [3, 8, 8], [0; 4]));
    let batch = data.batch(Part::Train, &[0, 1, 2, 3, 4], None).unwrap();
    // `a cat/z.webp` comes before the files of the folder below it; `10` before `2`.
    assert_eq!((batch.shape, &*batch.labels), ([5, 3, 8, 8], &[0, 1, 1, 2, 2][..]));
    let pixel = |sample: usize| {
        let planes = batch.images[sample * 192..][..192].chunks_exact(64).enumerate();
        planes.map(|(c, plane)| ((plane[0] * how.std[c] + how.mean[c]) * 255.0).round()).collect::<Vec<_>>()
    };
    assert_eq!(
        [0, 1, 2, 4].map(pixel),
        [[100.0; 3], [10.0, 20.0, 30.0], [0.0, 0.0, 255.0], [255.0, 0.0, 0.0]]
    );
    let jpeg = pixel(3);
    assert!(jpeg[0] < 3.0 && jpeg[1] > 252.0 && jpeg[2] < 3.0, "{jpeg:?}");
    let key = Some(AugmentKey { seed: 1, epoch: 2 });
    let altered = data.batch(Part::Train, &[0, 4], key).unwrap();
    assert_eq!(altered.images[192..], data.batch(Part::Train, &[4], key).unwrap().images);

    let gray = OpenOptions { channels: Some(1), ..options() };
    let gray = opened(folder.path(), &gray).unwrap();
    let batch = gray.batch(Part::Train, &[0, 4], None).unwrap();
    assert_eq!(batch.shape, [2, 1, 8, 8]);
    let value = |at: usize| ((batch.images[at] * 0.226 + 0.449) * 255.0).round();
    assert_eq!([value(0), value(64)], [100.0, 76.0]);
}

#[test]
fn parts_have_folders_of_their_own() {
    let folder = TempDir::new().unwrap();
    ["train", "val", "test"].iter().for_each(|part| three_classes(&folder.path().join(part)));
    color(&folder.path().join("val/dog/3.png"), 9, 9, [1, 2, 3]);
    let data = opened(folder.path(), &options()).unwrap();
    assert_eq!(Part::ALL.map(|part| data.samples(part)), [5, 5, 6]);
    let error = opened(folder.path(), &OpenOptions { val_split: Some(0.1), ..options() }).err().unwrap();
    assert_eq!(error.to_string(), "--val-split: the data has validation samples of its own; leave it out");

    // The same name with a letter and an accent of their own, as some systems write it.
    let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
    for (part, name) in [("train", composed), ("val", composed), ("test", decomposed)] {
        fs::rename(folder.path().join(part).join("dog"), folder.path().join(part).join(name)).unwrap();
    }
    let forms = refusal(folder.path());
    assert!(forms.contains("the class `café` of ") && forms.contains("/test ("), "{forms}");
    assert!(forms.contains("(caf\\u{e9} and cafe\\u{301})"), "{forms}");
    for (part, name) in [("train", composed), ("val", composed), ("test", decomposed)] {
        fs::rename(folder.path().join(part).join(name), folder.path().join(part).join("dog")).unwrap();
    }

    fs::rename(folder.path().join("test/dog"), folder.path().join("test/hound")).unwrap();
    let (root, differ) = (folder.path().display().to_string(), refusal(folder.path()));
    let expected =
        format!("{root}/test has no class `dog`, which {root}/train has; both need the same folders");
    assert_eq!(differ, expected);
    fs::remove_dir_all(folder.path().join("test")).unwrap();
    color(&folder.path().join("val/wolf/1.png"), 9, 9, [1, 2, 3]);
    assert!(
        refusal(folder.path())
            .starts_with(&format!("{root}/train has no class `wolf`, which {root}/val has"))
    );
    fs::rename(folder.path().join("val"), folder.path().join("valid")).unwrap();
    let unknown = refusal(folder.path());
    assert_eq!(
        unknown,
        format!(
            "{root}/valid: {root}/train counts as the part to train on, and beside it there may be only `val` and `test`; move \
             this, or rename what is no such part"
        )
    );
}

/// One class teaches nothing: it is that of a folder above a data set, or below the classes.
#[test]
fn a_single_class_is_reported_with_the_folder_to_give_instead() {
    let above = TempDir::new().unwrap();
    let flowers = above.path().join("flowers");
    three_classes(&flowers);
    let warnings = |root: &Path| opened(root, &options()).unwrap().warnings();
    assert_eq!(warnings(&flowers), [] as [&str; 0]);
    let has = |root: &Path, class: &str| {
        format!("{} has 1 class, `{class}`, so there is nothing to learn; give ", root.display())
    };
    let instead = |root: &Path| format!("folder:{}, if its folders are the classes", root.display());
    assert_eq!(warnings(above.path()), [has(above.path(), "flowers") + &instead(&flowers)]);
    color(&flowers.join("a cat/1.png"), 9, 9, [1, 2, 3]);
    let cat = flowers.join("a cat");
    let [one, loose] = <[String; 2]>::try_from(warnings(&cat)).unwrap();
    assert_eq!(one, has(&cat, "deep") + &instead(&flowers));
    let words =
        format!("Kolo leaves out 2 images in {}, beside the folders there: 1.png, z.webp", cat.display());
    assert_eq!(loose, words);
    fs::remove_dir_all(flowers.join("dog")).unwrap();
    fs::remove_dir_all(flowers.join("Bär")).unwrap();
    assert_eq!(warnings(&flowers), [has(&flowers, "a cat") + "a folder with a folder for each class"]);
    let split = OpenOptions { val_split: Some(0.4), ..options() };
    assert_eq!(opened(&flowers, &split).unwrap().warnings().len(), 1, "a split passes it on");
}

#[test]
fn images_beside_the_folders_of_a_data_set_are_counted() {
    let folder = TempDir::new().unwrap();
    let root = folder.path();
    ["train", "val"].iter().for_each(|part| three_classes(&root.join(part)));
    for name in ["1.png", "2.JPG", "train/3.png", "val/4.png", "val/5.png", "val/6.png", "val/7.png"] {
        color(&root.join(name), 9, 9, [1, 2, 3]);
    }
    fs::write(root.join("labels.csv"), "no image").unwrap();
    let data = opened(root, &options()).unwrap();
    assert_eq!(Part::ALL.map(|part| data.samples(part)), [5, 0, 5]);
    let words =
        [("", 2, "1.png, 2.JPG"), ("/train", 1, "3.png"), ("/val", 4, "4.png, 5.png, 6.png and 1 more")].map(
            |(below, count, names)| {
                let images = if count == 1 { "image" } else { "images" };
                let root = root.display();
                format!(
                    "Kolo leaves out {count} {images} in {root}{below}, beside the folders there: {names}"
                )
            },
        );
    assert_eq!(data.warnings(), words);
    let trained = OpenOptions { trained: data.preprocessing(), whole_is_test: true, ..options() };
    assert_eq!(opened(root, &trained).unwrap().warnings().len(), 3);
}

/// Torchvision takes them. An editor or a system has made them, not the user.
#[test]
fn hidden_names_are_skipped() {
    let folder = with_three_classes(|root| {
        fs::create_dir(root.join(".empty")).unwrap();
        color(&root.join(".ipynb_checkpoints/1-checkpoint.png"), 9, 9, [1, 2, 3]);
        color(&root.join("dog/.ipynb_checkpoints/2-checkpoint.png"), 9, 9, [1, 2, 3]);
        fs::write(root.join("dog/._2.png"), "resources of a Mac").unwrap();
        color(&root.join(".thumbnail.png"), 9, 9, [1, 2, 3]);
    });
    let plain = with_three_classes(|_| ());
    let [data, plain] = [&folder, &plain].map(|folder| opened(folder.path(), &options()).unwrap());
    assert_eq!(data.preprocessing(), plain.preprocessing());
    assert_eq!(data.fingerprint(Part::Train), plain.fingerprint(Part::Train));
    assert_eq!(data.warnings(), [] as [&str; 0]);
    assert_eq!(kolo_data::image_files(&folder.path().join("dog")).unwrap().len(), 2);
}

#[test]
fn parts_may_have_capitals_and_other_names_are_refused() {
    let folder = TempDir::new().unwrap();
    let root = folder.path();
    for (part, color_of) in [("Train", 1), ("VAL", 2), ("Test", 3)] {
        three_classes(&root.join(part));
        color(&root.join(part).join(format!("dog/{color_of}0.png")), 9, 9, [color_of; 3]);
    }
    color(&root.join("VAL/dog/5.png"), 9, 9, [5; 3]);
    let data = opened(root, &options()).unwrap();
    assert_eq!(Part::ALL.map(|part| data.samples(part)), [6, 6, 7]);
    assert_eq!(data.preprocessing().unwrap().label_names, ["Bär", "a cat", "dog"]);
    let trained = OpenOptions { trained: data.preprocessing(), whole_is_test: true, ..options() };
    let evaluated = opened(root, &trained).unwrap();
    assert_eq!(Part::ALL.map(|part| evaluated.samples(part)), [6, 6, 7]);

    // Both spellings, where the system distinguishes them.
    three_classes(&root.join("train"));
    let told = refusal(root);
    assert!(told.contains("/Train: ") && told.contains("/train counts as the part to train on"), "{told}");
    fs::remove_dir_all(root.join("train")).unwrap();

    fs::rename(root.join("Train"), root.join("Training")).unwrap();
    fs::rename(root.join("VAL"), root.join("Validation")).unwrap();
    fs::rename(root.join("Test"), root.join("test")).unwrap();
    let told = refusal(root);
    let found = [("Training", "train"), ("Validation", "val")].iter().any(|(folder, part)| {
        let start =
            format!("{}/{folder}: looks like a part of the data, and would count as a class", root.display());
        told == format!("{start}; rename it to `{part}`, or put the folders of the classes into one folder")
    });
    assert!(found, "{told}");
    // Vehicles.
    let vehicles = TempDir::new().unwrap();
    ["Bus", "Train"]
        .iter()
        .for_each(|class| color(&vehicles.path().join(class).join("1.png"), 9, 9, [1, 2, 3]));
    assert_eq!(
        opened(vehicles.path(), &options()).unwrap().preprocessing().unwrap().label_names,
        ["Bus", "Train"]
    );
}

#[test]
fn a_path_without_its_kind_is_answered_with_the_kind() {
    let folder = with_three_classes(|_| ());
    let told = |path: &Path| open(&path.display().to_string()).err().unwrap().to_string();
    let words = |kind: &str, path: &Path| {
        let path = path.display();
        format!("`{path}` is a path, and a data set needs its kind before that: give `{kind}:{path}`")
    };
    assert_eq!(told(folder.path()), words("folder", folder.path()));
    for (name, kind) in
        [("own.CSV", "csv"), ("own.parquet", "parquet"), ("own.txt", "text"), ("own.jsonl", "text")]
    {
        let path = folder.path().join(name);
        fs::write(&path, "x").unwrap();
        assert_eq!(told(&path), words(kind, &path));
    }
    fs::create_dir_all(folder.path().join("texts/deep")).unwrap();
    fs::write(folder.path().join("texts/deep/a.md"), "x").unwrap();
    assert_eq!(told(&folder.path().join("texts")), words("text", &folder.path().join("texts")));
    fs::write(folder.path().join("own.bin"), "x").unwrap();
    assert!(told(&folder.path().join("own.bin")).starts_with("unknown data set"));
}

#[test]
fn a_trained_model_brings_its_classes_along() {
    let folder = with_three_classes(|_| ());
    let trained = opened(folder.path(), &options()).unwrap().preprocessing();
    let evaluated = OpenOptions { trained, whole_is_test: true, ..options() };
    fs::remove_dir_all(folder.path().join("Bär")).unwrap();
    let data = opened(folder.path(), &evaluated).unwrap();
    assert_eq!(Part::ALL.map(|part| data.samples(part)), [0, 4, 0]);
    assert_eq!(data.batch(Part::Test, &[0, 3], None).unwrap().labels, [1, 2]);
    assert_eq!(data.preprocessing(), evaluated.trained);
    three_classes(&folder.path().join("test"));
    let data = opened(folder.path(), &evaluated).unwrap();
    assert_eq!(Part::ALL.map(|part| data.samples(part)), [0, 5, 0], "the part for tests");
    color(&folder.path().join("test/wolf/1.png"), 9, 9, [1, 2, 3]);
    let told = opened(folder.path(), &evaluated).err().unwrap().to_string();
    let end = "test/wolf: the model was trained for the classes Bär, a cat, dog, and this is none of them";
    assert!(told.ends_with(end), "{told}");
}

#[test]
fn a_validation_split_is_keyed_by_the_seed() {
    let folder = with_three_classes(|_| ());
    let split = |seed| {
        let options = OpenOptions { val_split: Some(0.4), seed, ..options() };
        let data = opened(folder.path(), &options).unwrap();
        assert_eq!(Part::ALL.map(|part| data.samples(part)), [3, 0, 2]);
        assert_eq!(data.preprocessing().unwrap().label_names.len(), 3);
        data.batch(Part::Validation, &[0, 1], None).unwrap()
    };
    assert_eq!(split(1), split(1));
    assert!((2..12).any(|seed| split(seed) != split(1)));
}

#[test]
fn folders_that_make_no_data_set_are_named() {
    let root = TempDir::new().unwrap();
    let shown = root.path().display();
    let none = format!("{shown}: holds no folders; put the images of each class into a folder of its own");
    assert_eq!(refusal(root.path()), none);
    color(&root.path().join("1.png"), 9, 9, [1, 2, 3]);
    assert_eq!(refusal(root.path()), none, "an image beside the classes is none of theirs");

    let empty = with_three_classes(|root| fs::remove_file(root.join("Bär/grau ä.png")).unwrap());
    let told = refusal(empty.path());
    assert!(
        told.starts_with(&format!("{}/Bär: holds no image (jpg, jpeg, png,", empty.path().display())),
        "{told}"
    );

    // Links to the root, to their own folder, above the root, to each other, and in place of a class.
    let cycles: [(Change, &str); 5] = [
        (|root| symlink(root, root.join("dog/all")).unwrap(), "dog/all"),
        (|root| symlink(".", root.join("a cat/deep/same")).unwrap(), "a cat/deep/same"),
        (|root| symlink("../..", root.join("dog/up")).unwrap(), "dog/up"),
        (
            |root| {
                symlink("../dog", root.join("a cat/pets")).unwrap();
                symlink("../a cat", root.join("dog/pets")).unwrap();
            },
            "a cat/pets/pets",
        ),
        (|root| symlink(".", root.join("again")).unwrap(), "again"),
    ];
    for (make, link) in cycles {
        let cycle = with_three_classes(make);
        let link = cycle.path().join(link);
        let words = "is a link to a folder above it, so its files would never end; remove the link";
        assert_eq!(refusal(cycle.path()), format!("{}: {words}", link.display()));
        assert!(link.is_symlink(), "what is removed holds no files");
    }

    let linked = with_three_classes(|root| symlink(root.join("dog"), root.join("a cat/too")).unwrap());
    assert_eq!(opened(linked.path(), &options()).unwrap().samples(Part::Train), 7);

    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let other = with_three_classes(|root| fs::create_dir(root.join(name)).unwrap());
    let told = refusal(other.path());
    assert!(told.ends_with("the name of this folder is not valid UTF-8; rename it"), "{told}");
    // The name of a file may be anything.
    let file = with_three_classes(|root| {
        let path = root.join("dog").join(std::ffi::OsStr::from_bytes(b"caf\xe9.png"));
        fs::copy(root.join("dog/2.png"), path).unwrap();
    });
    let data = opened(file.path(), &options()).unwrap();
    assert_eq!(data.batch(Part::Train, &[5], None).unwrap().labels, [2]);

    let missing = open("folder:/no/such").err().unwrap().to_string();
    assert!(
        missing.starts_with("data set `folder:DIR`: there is no /no/such; give a folder of images"),
        "{missing}"
    );
    assert!(open("folder").err().unwrap().to_string().contains("`folder:DIR` needs a path"));
}

#[test]
fn a_file_that_is_no_image_is_named_and_skipped_only_on_request() {
    let folder = with_three_classes(|root| fs::write(root.join("dog/3.png"), "<html>").unwrap());
    let data = opened(folder.path(), &options()).unwrap();
    assert_eq!((data.samples(Part::Train), data.warnings().len()), (6, 0));
    data.batch(Part::Train, &[0, 4], None).unwrap();
    let told = data.batch(Part::Train, &[0, 5], None).unwrap_err().to_string();
    let path = folder.path().join("dog/3.png");
    let start = format!("training sample 5: {} is not an image of a known format", path.display());
    let end =
        "restore or remove the file, or begin a run with --skip-unreadable, which leaves such files out";
    assert!(told.starts_with(&start) && told.ends_with(end), "{told}");
    for threads in [0, 1, 3] {
        let options = OpenOptions { skip_unreadable: true, threads, ..options() };
        let data = opened(folder.path(), &options).unwrap();
        assert_eq!(data.samples(Part::Train), 5);
        assert_eq!(data.warnings(), ["Kolo skips 1 unreadable file: dog/3.png"]);
        assert_eq!(data.batch(Part::Train, &[3, 4], None).unwrap().labels, [2, 2]);
    }
    // A class of which no file is left, whose files lie in a folder below.
    fs::create_dir(folder.path().join("dog/more")).unwrap();
    fs::remove_file(folder.path().join("dog/10.JPG")).unwrap();
    for name in ["2.png", "more/10.JPG"] {
        fs::write(folder.path().join("dog").join(name), "").unwrap();
    }
    let skipping = OpenOptions { skip_unreadable: true, ..options() };
    let told = opened(folder.path(), &skipping).err().unwrap().to_string();
    let start = format!("{}/dog: Kolo can read none of its 3 images (2.png is not", folder.path().display());
    assert!(told.starts_with(&start), "{told}");
    assert!(
        told.contains("3.png is not an image of a known format") && told.contains("more/10.JPG is not"),
        "{told}"
    );
    assert!(told.contains("--skip-unreadable would leave the class empty"), "{told}");
    fs::remove_file(&path).unwrap();
    let told = data.batch(Part::Train, &[5], None).unwrap_err().to_string();
    assert!(told.contains("3.png cannot be read: No such file"), "{told}");
}

/// Of many files, some between those that a sample of them would meet.
#[test]
fn the_first_file_that_cannot_be_read_is_found() {
    let folder = TempDir::new().unwrap();
    let gray = |name: &str, bytes: &[u8]| {
        fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
        fs::write(folder.path().join(name), bytes).unwrap();
    };
    let image = b"P5 2 1 255\n\x10\x20";
    (0..100).for_each(|number| gray(&format!("train/a/{number:03}.pgm"), image));
    (0..5).for_each(|number| gray(&format!("test/a/{number}.pgm"), image));
    let data = opened(folder.path(), &options()).unwrap();
    let (late, never) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
    assert_eq!(read_samples(&*data, 2, late).unwrap(), (0, 105));
    for threads in [0, 1, 3] {
        assert_eq!(read_samples(&*data, threads, never).unwrap(), (105, 105));
    }
    let in_memory = open("fashion-mnist-small").unwrap();
    assert_eq!(read_samples(&*in_memory, 2, never).unwrap(), (32, 32));
    for bad in ["test/a/3.pgm", "train/a/077.pgm", "train/a/051.pgm", "train/a/031.pgm"] {
        gray(bad, &image[..6]);
        for threads in [1, 3] {
            let told = read_samples(&*data, threads, never).unwrap_err().to_string();
            assert!(told.contains(&format!("/{bad} ")), "{told}");
        }
    }
}

#[test]
fn one_image_is_a_data_set() {
    let folder = TempDir::new().unwrap();
    color(&folder.path().join("only/1.png"), 1, 1, [9, 9, 9]);
    let data = opened(folder.path(), &options()).unwrap();
    assert_eq!((data.samples(Part::Train), data.shape().classes), (1, 1));
    assert_eq!(data.batch(Part::Train, &[0], Some(AugmentKey { seed: 0, epoch: 0 })).unwrap().len(), 1);
    let split = opened(folder.path(), &OpenOptions { val_split: Some(0.1), ..options() }).err().unwrap();
    assert!(split.to_string().contains("of 1 training sample it leaves none for validation"), "{split}");
}

#[test]
fn options_are_checked() {
    let folder = with_three_classes(|_| ());
    let refused = |options: OpenOptions| opened(folder.path(), &options).err().unwrap().to_string();
    let size = refused(OpenOptions { size: Some(0), ..options() });
    assert_eq!(size, "--size 0: it must be from 1 to 4096");
    let channels = refused(OpenOptions { channels: Some(4), ..options() });
    assert_eq!(channels, "--channels 4: it must be 1 (gray) or 3 (color)");
    let label = refused(OpenOptions { label: Some("class".into()), ..options() });
    assert_eq!(label, "--label class: data set `folder` does not take it; leave it out");
    let other =
        open_with("fashion-mnist-small", &OpenOptions { skip_unreadable: true, ..OpenOptions::default() });
    let told = other.err().unwrap().to_string();
    assert_eq!(told, "--skip-unreadable: data set `fashion-mnist-small` does not take it; leave it out");
}

#[test]
fn the_fingerprint_covers_names_lengths_and_content() {
    let of = |change: &dyn Fn(&Path)| {
        let folder = with_three_classes(change);
        opened(folder.path(), &options()).unwrap().fingerprint(Part::Train)
    };
    let usual = of(&|_| ());
    assert_eq!(usual, of(&|_| ()), "wherever the folder is");
    assert_eq!((usual.samples, usual.hashed), (5, 5));
    assert_ne!(usual, of(&|root| fs::rename(root.join("dog/2.png"), root.join("dog/1.png")).unwrap()));
    assert_ne!(usual, of(&|root| fs::rename(root.join("dog"), root.join("hound")).unwrap()));
    assert_ne!(usual, of(&|root| color(&root.join("dog/2.png"), 40, 30, [254, 0, 0])));
    let larger = OpenOptions { size: Some(9), ..options() };
    let folder = with_three_classes(|_| ());
    assert_ne!(usual, opened(folder.path(), &larger).unwrap().fingerprint(Part::Train));
}
