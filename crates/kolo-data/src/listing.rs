//! The files of an image folder, in the order of torchvision's `ImageFolder`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::decode::ENDINGS;
use crate::error::DataError;
use crate::part::Part;
use unicode_normalization::UnicodeNormalization;

/// Folders of the parts, by the number of the part.
const PARTS: [&str; 3] = ["train", "test", "val"];

/// A file and its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub path: PathBuf,
    pub label: u32,
}

/// Classes, and the files of each part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    /// Names by label.
    pub classes: Vec<String>,
    parts: [Vec<Sample>; 3],
}

impl Listing {
    pub fn part(&self, part: Part) -> &[Sample] {
        &self.parts[part as usize]
    }

    pub fn part_mut(&mut self, part: Part) -> &mut Vec<Sample> {
        &mut self.parts[part as usize]
    }

    /// Lists a folder that has a folder for each class, or such folders below `train`, `val` and `test`.
    pub fn read(root: &Path) -> Result<Listing, DataError> {
        let train = root.join(PARTS[0]);
        if !train.is_dir() {
            let (classes, samples) = classes(root)?;
            return Ok(Listing { classes, parts: [samples, Vec::new(), Vec::new()] });
        }
        let other =
            folders(root)?.into_iter().find(|name| !PARTS.contains(&&**name) && !name.starts_with('.'));
        if let Some(name) = other {
            return Err(DataError::UnknownPart { path: root.join(name), train });
        }
        let (names, samples) = classes(&train)?;
        let mut parts = [samples, Vec::new(), Vec::new()];
        for (part, folder) in parts.iter_mut().zip(PARTS).skip(1) {
            let folder = root.join(folder);
            if !folder.is_dir() {
                continue;
            }
            let (other, samples) = classes(&folder)?;
            let [missing, added] = [(&names, &other), (&other, &names)]
                .map(|(here, there)| here.iter().find(|name| !there.contains(name)).cloned());
            if let Some((class, there)) = in_other_form(&names, &other) {
                return Err(DataError::ClassForms { class, folder: train, there, other: folder });
            }
            let lacking = missing.map(|class| (class, folder.clone(), train.clone()));
            if let Some((class, folder, other)) =
                lacking.or(added.map(|class| (class, train.clone(), folder)))
            {
                return Err(DataError::ClassesDiffer { class, folder, other });
            }
            *part = samples;
        }
        Ok(Listing { classes: names, parts })
    }

    /// Lists a folder as [`read`](Listing::read) does, with the labels of `known` classes. It may lack some of
    /// them, and `train`. Without parts, its files are for tests if `whole_is_test`.
    pub fn of_classes(root: &Path, known: &[String], whole_is_test: bool) -> Result<Listing, DataError> {
        let labeled = |folder: &Path| -> Result<Vec<Sample>, DataError> {
            let (names, mut samples) = classes(folder)?;
            for sample in &mut samples {
                let name = &names[sample.label as usize];
                let label = known.iter().position(|class| class == name);
                let unknown =
                    || DataError::UnknownClass { folder: folder.join(name), known: known.join(", ") };
                sample.label = label.ok_or_else(unknown)? as u32;
            }
            Ok(samples)
        };
        let mut listing = Listing { classes: known.into(), ..Listing::default() };
        let is_part = |name: &&str| root.join(name).is_dir() && !known.iter().any(|class| class == name);
        if !PARTS.iter().any(is_part) {
            let part = if whole_is_test { Part::Test } else { Part::Train };
            *listing.part_mut(part) = labeled(root)?;
            return Ok(listing);
        }
        for (samples, name) in listing.parts.iter_mut().zip(PARTS) {
            if is_part(&name) {
                *samples = labeled(&root.join(name))?;
            }
        }
        Ok(listing)
    }
}

/// Returns a name of the first list that the second one has only in another form of Unicode, and that form: an
/// `é` may be one character or two.
fn in_other_form(names: &[String], others: &[String]) -> Option<(String, String)> {
    let lacking = names.iter().filter(|name| !others.contains(name));
    let pair = |name: &String| {
        let other = others.iter().find(|other| name.nfc().eq(other.nfc()))?;
        Some((name.clone(), other.clone()))
    };
    lacking.filter_map(pair).next()
}

/// Returns the images at a path, sorted: the file itself, or those in a folder and in the folders below it.
///
/// # Errors
///
/// A folder cannot be read or holds no image.
pub fn image_files(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    if !path.is_dir() {
        return Ok(vec![path.into()]);
    }
    let mut files = files_below(path, &ENDINGS)?;
    if files.is_empty() {
        return Err(DataError::EmptyClass { folder: path.into() });
    }
    files.sort_unstable();
    Ok(files)
}

/// Returns the classes of a folder, sorted by name, and their files.
fn classes(folder: &Path) -> Result<(Vec<String>, Vec<Sample>), DataError> {
    let mut names = folders(folder)?;
    names.sort_unstable();
    if names.is_empty() {
        return Err(DataError::NoClasses { folder: folder.into() });
    }
    let mut samples = Vec::new();
    for (label, class) in (0..).zip(&names) {
        let folder = folder.join(class);
        let mut files = files_below(&folder, &ENDINGS)?;
        if files.is_empty() {
            return Err(DataError::EmptyClass { folder });
        }
        // By folder, then by name.
        files.sort_unstable_by(|a, b| (a.parent(), a.file_name()).cmp(&(b.parent(), b.file_name())));
        samples.extend(files.into_iter().map(|path| Sample { path, label }));
    }
    Ok((names, samples))
}

/// Returns the names of the folders in a folder, also of those that links lead to.
fn folders(folder: &Path) -> Result<Vec<String>, DataError> {
    let mut names = Vec::new();
    for entry in entries(folder)? {
        if entry.is_dir() {
            let name = entry.file_name().unwrap_or_default().to_str();
            names.push(name.ok_or_else(|| DataError::NameNotText { path: entry.clone() })?.to_owned());
        }
    }
    Ok(names)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let read = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>());
    read.map_err(|source| DataError::Unreadable { path: folder.into(), source })
}

/// Returns the files with one of the endings in a folder and in the folders below it, in any order.
pub(crate) fn files_below(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, DataError> {
    let mut files = Vec::new();
    collect(folder, endings, &mut Vec::new(), &mut files)?;
    Ok(files)
}

/// Adds the files in a folder and in the folders below it. `above` are the folders on the way to it.
fn collect(
    folder: &Path,
    endings: &[&str],
    above: &mut Vec<PathBuf>,
    into: &mut Vec<PathBuf>,
) -> Result<(), DataError> {
    let place =
        fs::canonicalize(folder).map_err(|source| DataError::Unreadable { path: folder.into(), source })?;
    if above.contains(&place) {
        return Err(DataError::LinkLoop { path: folder.into() });
    }
    above.push(place);
    for entry in entries(folder)? {
        let ending = entry.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        if entry.is_dir() {
            collect(&entry, endings, above, into)?;
        } else if ending.is_some_and(|ending| endings.contains(&&*ending)) {
            into.push(entry);
        }
    }
    above.pop();
    Ok(())
}
