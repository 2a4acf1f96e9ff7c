//! The commands of docs/own-images.md, as they stand there.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use image::{DynamicImage, GrayImage, Luma, Rgb, RgbImage};
use kolo_testing::{alive, send, wait_until};

use super::program::{kolo, stderr, succeed, summary, workers};

const GUIDE: &str = include_str!("../../../../docs/own-images.md");
const CLASSES: [&str; 3] = ["Gänseblümchen", "rose", "tulip"];

/// Returns the commands of the guide.
fn commands() -> Vec<&'static str> {
    let blocks = GUIDE.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    blocks.flat_map(str::lines).collect()
}

/// Returns a command that a shell runs, in which `kolo` is the program under test.
fn shell(folder: &Path, line: &str) -> Command {
    let mut command = kolo(folder, &[]);
    let program = command.get_program().to_owned();
    let bin = Path::new(&program).parent().unwrap().display().to_string();
    command = Command::new("sh");
    command.args(["-c", &format!("exec {line}")]).current_dir(folder).stdin(Stdio::null());
    command.env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap()));
    command
}

/// Writes images of each class: PNG and JPEG, gray and color, of several sizes, with spaces and umlauts.
fn images(root: &Path, name: &str, count: u32) {
    for (number, class) in CLASSES.into_iter().enumerate() {
        fs::create_dir_all(root.join(class)).unwrap();
        for at in 0..count {
            let value = |x: u32, y: u32| ((x * (7 + 40 * number as u32) + y * 13 + at * 29) % 256) as u8;
            let (width, height) = (70 + 9 * at, 90 - 5 * at);
            let image: DynamicImage = match at % 3 {
                0 => GrayImage::from_fn(width, height, |x, y| Luma([value(x, y)])).into(),
                _ => RgbImage::from_fn(width, height, |x, y| {
                    let mut pixel = [value(x, y) / 2; 3];
                    pixel[number] += 100;
                    Rgb(pixel)
                })
                .into(),
            };
            let ending = if at % 2 == 0 { "png" } else { "jpg" };
            image.save(root.join(class).join(format!("{name} {at}.{ending}"))).unwrap();
        }
    }
}

#[test]
fn the_guide_is_true() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    images(&folder.join("flowers"), "weiß", 10);
    images(&folder.join("more"), "new", 2);
    fs::rename(folder.join("more/rose/new 0.png"), folder.join("more/rose/new 1.png")).unwrap();
    // Weights for other classes.
    images(&folder.join("others"), "other", 3);
    fs::rename(folder.join("others/tulip"), folder.join("others/other")).unwrap();
    fs::create_dir(folder.join("others/fourth")).unwrap();
    fs::rename(folder.join("others/other/other 0.png"), folder.join("others/fourth/1.png")).unwrap();
    let train = ["train", "--data", "folder:others", "--model", "resnet18", "--size", "32", "--nproc", "1"];
    succeed(folder, &[&train[..], &["--batch-size", "2", "--steps", "1", "--out", "other"]].concat());
    let export = ["export", "other", "--format", "torchvision", "--out", "resnet18.safetensors"];
    succeed(folder, &export);

    let run = folder.join("runs/flowers");
    let mut outputs = Vec::new();
    for line in commands() {
        if line.contains(" --out runs/flowers") {
            // Killed after the first checkpoint, with all workers.
            let mut job = shell(folder, line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let has_checkpoint = || {
                let inside = fs::read_dir(run.join("checkpoints"));
                inside.is_ok_and(|mut inside| {
                    inside.any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with("step-"))
                })
            };
            wait_until("no checkpoint", has_checkpoint);
            let pids = [workers(&job), vec![job.id()]].concat();
            send("KILL", &pids);
            job.wait().unwrap();
            wait_until("a worker lives", || !pids.iter().any(|pid| alive(*pid)));
            assert!(!run.join("summary.json").exists(), "the run was over already");
            continue;
        }
        let output = shell(folder, line).output().unwrap();
        let is_good = output.status.success()
            // Warnings about this machine.
            || line.starts_with("kolo check") && output.status.code() == Some(3);
        assert!(is_good, "{line}: {}", stderr(&output));
        outputs.push((line, String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output)));
    }
    let of = |start: &str| outputs.iter().filter(|(line, ..)| line.starts_with(start)).collect::<Vec<_>>();
    let resumed = &of("kolo train --resume")[0].2;
    assert!(resumed.contains("flowers: 24 training and 6 validation samples of 3 classes\n"), "{resumed}");
    let summary = summary(&run);
    assert_eq!(summary["steps"], 12);
    assert_eq!(summary["samples"]["classes"], 3);
    let evaluated = &of("kolo evaluate")[0].1;
    assert!(evaluated.contains("of the 6 test images of folder:"), "{evaluated}");
    // The run and its export have the same weights.
    let predicted = of("kolo predict");
    assert_eq!(predicted[0].1, predicted[2].1);
    let lines: Vec<&str> = predicted[0].1.lines().collect();
    assert_eq!(lines.len(), 6, "{lines:?}");
    assert!(lines[0].starts_with("more/Gänseblümchen/new 0.png: ") && lines[0].ends_with(" %"), "{lines:?}");
    let one = &predicted[1].1;
    assert!(one.starts_with("{\"file\":\"more/rose/new 1.png\",\"predictions\":[{\"class\":"), "{one}");
    assert_eq!(one.matches("\"probability\":").count(), 1, "{one}");
}
