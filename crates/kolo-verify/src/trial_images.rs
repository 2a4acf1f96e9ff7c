//! An image folder for trials of a job: the loading of files, by several threads, is part of what is tried.

use std::fs;
use std::io;
use std::path::Path;

/// Names of the classes, each a folder.
const CLASSES: [&str; 3] = ["dark", "light", "striped"];

/// Writes at least `count` small images of three classes, as many of each, in several sizes.
///
/// # Errors
///
/// A file cannot be written.
pub fn write(folder: &Path, count: usize) -> io::Result<()> {
    for (label, class) in CLASSES.into_iter().enumerate() {
        let place = folder.join(class);
        fs::create_dir_all(&place)?;
        for number in 0..count.div_ceil(CLASSES.len()) {
            fs::write(place.join(format!("{number:05}.ppm")), image(label, number))?;
        }
    }
    Ok(())
}

/// Returns a color image in the format P6 of Netpbm. The classes differ by little, as those of photographs do:
/// the usual learning rates must not diverge on them.
fn image(label: usize, number: usize) -> Vec<u8> {
    let (width, height) = (36 + number % 9, 40 + number % 5);
    let value = |at: usize| {
        let noise = (at * 2_654_435_761 + number * 40_503) >> 7 & 127;
        let light = [0, 16, 8 * (at / (3 * width) % 4)][label];
        (noise + light) as u8
    };
    let header = format!("P6 {width} {height} 255\n");
    header.into_bytes().into_iter().chain((0..3 * width * height).map(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_share_and_no_two_images_are_alike() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 10).unwrap();
        let mut all = Vec::new();
        for class in CLASSES {
            let files = fs::read_dir(folder.path().join(class)).unwrap();
            let files: Vec<_> = files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
            assert_eq!(files.len(), 4, "{class}");
            all.extend(files);
        }
        assert!(all[0].starts_with(b"P6 ") && all.iter().all(|one| one.len() > 3 * 36 * 40));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 12);
    }
}
