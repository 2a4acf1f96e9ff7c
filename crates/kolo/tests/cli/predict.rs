//! `kolo predict`, and evaluations of data that the run has not seen.

use std::fs;
use std::path::Path;

use image::{GrayImage, RgbImage};
use serde_json::Value;

use super::program::{fail, kolo, noise_images, stderr, succeed, summary};

/// Returns the objects of `kolo predict --json`.
fn predicted(folder: &Path, args: &[&str]) -> Vec<Value> {
    objects(&succeed(folder, &[&["predict", "--json"], args].concat()))
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn class(object: &Value) -> &str {
    object["predictions"][0]["class"].as_str().unwrap()
}

fn accuracy(folder: &Path, args: &[&str]) -> f64 {
    let text = succeed(folder, &[&["evaluate", "--json", "--repeats", "0"], args].concat());
    serde_json::from_str::<Value>(&text).unwrap()["test_accuracy"].as_f64().unwrap()
}

/// Writes images of three classes whose colors overlap.
fn flowers(root: &Path, count: u32) {
    for (number, class) in ["Gänse blume", "rose", "tulip"].into_iter().enumerate() {
        fs::create_dir_all(root.join(class)).unwrap();
        for at in 0..count {
            let noise = |x: u32, y: u32| (x * 73 + y * 151 + at * 97 + number as u32 * 31) % 200;
            let pixel = |x, y| {
                let mut pixel = [noise(x, y) as u8; 3];
                pixel[number] = pixel[number].saturating_add((20 + at * 3) as u8);
                image::Rgb(pixel)
            };
            let path = root.join(class).join(format!("{at} ä.png"));
            RgbImage::from_fn(20 + 3 * at, 30 - at, pixel).save(path).unwrap();
        }
    }
}

#[test]
fn images_have_the_classes_that_evaluation_counts() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    flowers(&folder.join("data/train"), 6);
    flowers(&folder.join("data/test"), 9);
    let train = ["train", "--data", "folder:data", "--size", "16", "--nproc", "1", "--batch-size", "6"];
    succeed(folder, &[&train[..], &["--epochs", "2", "--warmup-steps", "0", "--out", "run"]].concat());
    let found = predicted(folder, &["run", "data/test"]);
    assert_eq!(found.len(), 27);
    let file = |object: &Value| object["file"].as_str().unwrap().to_owned();
    assert_eq!(file(&found[0]), "data/test/Gänse blume/0 ä.png");
    let right = |found: &[Value]| {
        found.iter().filter(|object| file(object).contains(&format!("/{}/", class(object)))).count()
    };
    let share = right(&found) as f64 / 27.0;
    assert_eq!(summary(&folder.join("run"))["test_accuracy"].as_f64(), Some(share));
    assert_eq!(accuracy(folder, &["run"]), share);
    // A folder without parts, and one that lacks a class.
    assert_eq!(accuracy(folder, &["run", "--data", "folder:data/test"]), share);
    for object in &found {
        let predictions = object["predictions"].as_array().unwrap();
        let probabilities: Vec<f64> =
            predictions.iter().map(|class| class["probability"].as_f64().unwrap()).collect();
        assert!(probabilities.len() == 3 && probabilities.is_sorted_by(|a, b| a >= b), "{object}");
        assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{object}");
    }
    // The other files of the command count for nothing, and an export has the same weights.
    succeed(folder, &["export", "run", "--format", "burn", "--out", "flowers.bpk"]);
    for of in ["run", "flowers.bpk", "run/checkpoints/step-00000006"] {
        assert_eq!(predicted(folder, &[of, "data/test/rose/4 ä.png"]), [found[13].clone()], "{of}");
    }
    let told = succeed(folder, &["predict", "run", "data/test/rose/4 ä.png", "--top-k", "1"]);
    let percent = 100.0 * found[13]["predictions"][0]["probability"].as_f64().unwrap();
    assert_eq!(told, format!("data/test/rose/4 ä.png: {} {percent:.1} %\n", class(&found[13])));

    // A file that cannot be read is named, and the others follow.
    fs::write(folder.join("data/test/rose/00.png"), "<html>").unwrap();
    let output = kolo(folder, &["predict", "run", "none.png", "data/test", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(objects(&String::from_utf8(output.stdout.clone()).unwrap()), found);
    let told = stderr(&output);
    let told = objects(&told);
    let messages =
        ["none.png cannot be read: No such file", "data/test/rose/00.png is not an image of a known format"];
    let messages = [&messages[..], &["2 files or rows have no prediction; they are named above"]].concat();
    assert_eq!(told.len(), messages.len(), "{told:?}");
    for (error, message) in told.iter().zip(messages) {
        assert_eq!(error["event"], "error");
        assert!(error["message"].as_str().unwrap().starts_with(message), "{error}");
    }

    fs::remove_file(folder.join("data/test/rose/00.png")).unwrap();
    fs::remove_dir_all(folder.join("data/test/rose")).unwrap();
    accuracy(folder, &["run", "--data", "folder:data/test"]);
    fs::rename(folder.join("data/test/tulip"), folder.join("data/test/daisy")).unwrap();
    let (code, told) = fail(folder, &["evaluate", "run", "--data", "folder:data/test"]);
    assert!(code == 2 && told.contains("data/test/daisy: the model was trained for the classes"), "{told}");
    fs::remove_dir_all(folder.join("data/test")).unwrap();
    let (code, told) = fail(folder, &["evaluate", "run"]);
    assert!(code == 2 && told.contains("data has no test samples; name samples to evaluate on"), "{told}");
    fs::remove_file(folder.join("run/preprocessing.json")).unwrap();
    let (code, told) = fail(folder, &["predict", "run", "data/train"]);
    assert!(code == 2 && told.contains("run: Kolo does not know how files become samples"), "{told}");
}

#[test]
fn rows_need_no_training_table() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let table = folder.join("table");
    fs::create_dir(&table).unwrap();
    let rows = |count: u64, key: u64| {
        let row = |i: u64| {
            let number = i.wrapping_mul(2_654_435_761) % 1000 + key;
            format!(
                "{},{},{}\n",
                1_700_000_000 + number,
                if i.is_multiple_of(3) { "off" } else { "on" },
                number % 7
            )
        };
        String::from("time,state,rest\n") + &(0..count).map(row).collect::<String>()
    };
    fs::write(table.join("train.csv"), rows(60, 0)).unwrap();
    fs::write(table.join("test.csv"), rows(40, 5)).unwrap();
    let train = ["train", "--data", "csv:table", "--label", "state", "--model", "mlp", "--val-split", "0.2"];
    let how = ["--nproc", "1", "--batch-size", "6", "--epochs", "2", "--warmup-steps", "0", "--out", "run"];
    succeed(folder, &[&train[..], &how].concat());
    fs::remove_file(table.join("train.csv")).unwrap();
    let share = summary(&folder.join("run"))["test_accuracy"].as_f64().unwrap();
    assert!(summary(&folder.join("run"))["rows_per_second"].is_number(), "its samples are no images");
    assert_eq!(accuracy(folder, &["run"]), share);
    assert_eq!(accuracy(folder, &["run", "--data", "csv:table/test.csv"]), share);
    let found = predicted(folder, &["run", "table/test.csv"]);
    let text = rows(40, 5);
    let states: Vec<&str> = text.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect();
    let right = found.iter().zip(&states).filter(|(object, state)| class(object) == **state).count();
    assert_eq!(right as f64 / 40.0, share);
    assert_eq!((found[0]["line"].as_u64(), found[39]["line"].as_u64()), (Some(2), Some(41)));
    let evaluated = |args: &[&str]| kolo(folder, &[&["evaluate", "run"], args].concat()).output().unwrap();
    assert_eq!(stderr(&evaluated(&["--repeats", "0"])), "", "the rows are those of the training");
    let told = stderr(&evaluated(&["--batch-sizes", "90"]));
    assert!(told.contains("csv:") && told.contains(" has 40 test rows"), "{told}");
    fs::write(table.join("test.csv"), rows(40, 6)).unwrap();
    let told = stderr(&evaluated(&["--repeats", "0"]));
    assert!(told.starts_with("warning: the test data has changed since these weights were saved"), "{told}");
    fs::write(folder.join("empty.csv"), "time,rest\n").unwrap();
    let (code, told) = fail(folder, &["predict", "run", "empty.csv"]);
    assert!(code == 2 && told.contains("empty.csv, line 1: there are no lines after the header"), "{told}");
    // Without the classes, in another order, and with a row that is no row.
    let other = text.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        format!("{},{}\n", cells[2], cells[0])
    });
    fs::write(folder.join("new.csv"), format!("rest,time\n{}1,x\n", other.collect::<String>())).unwrap();
    let output = kolo(folder, &["predict", "run", "new.csv", "--json"]).output().unwrap();
    let again = objects(&String::from_utf8_lossy(&output.stdout));
    let predictions = |all: &[Value]| all.iter().map(|of| of["predictions"].clone()).collect::<Vec<_>>();
    assert_eq!(predictions(&again), predictions(&found));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("new.csv, line 42: `x` in column `time` is not a number"));
}

#[test]
fn images_of_a_built_in_set_are_made_as_large() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = noise_images(folder, 40);
    let train = ["train", "--data", &data, "--model", "mlp", "--nproc", "1", "--batch-size", "8"];
    succeed(folder, &[&train[..], &["--epochs", "1", "--warmup-steps", "0", "--out", "run"]].concat());
    let bytes = |name: &str| fs::read(folder.join("noise").join(name)).unwrap();
    let (pixels, labels) = (bytes("t10k-images-idx3-ubyte"), bytes("t10k-labels-idx1-ubyte"));
    fs::create_dir(folder.join("images")).unwrap();
    for (number, pixels) in pixels[16..].chunks_exact(784).enumerate() {
        let path = folder.join(format!("images/{number:02}.png"));
        GrayImage::from_raw(28, 28, pixels.to_vec()).unwrap().save(path).unwrap();
    }
    let found = predicted(folder, &["run", "images", "--top-k", "1"]);
    let right = found.iter().zip(&labels[8..]);
    let right = right.filter(|(found, label)| found["predictions"][0]["label"] == **label).count();
    assert_eq!(right as f64 / 20.0, accuracy(folder, &["run"]));
    RgbImage::new(640, 480).save(folder.join("large.jpg")).unwrap();
    assert_eq!(predicted(folder, &["run", "large.jpg"])[0]["predictions"].as_array().unwrap().len(), 5);
    let (code, told) = fail(folder, &["predict", "run", "large.jpg", "--top-k", "0"]);
    assert!(code == 2 && told == "error: --top-k 0: it must be at least 1\n", "{told}");
}
