//! The files of an image folder, in the order of torchvision's `ImageFolder`. Names that begin with a dot,
//! such as `.ipynb_checkpoints`, are hidden.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::decode::ENDINGS;
use crate::error::DataError;
use crate::part::Part;
use unicode_normalization::UnicodeNormalization;

/// Names of the parts, by the number of the part.
pub(crate) const PARTS: [&str; 3] = ["train", "test", "val"];

/// Other names of parts, by the number of the part. A folder may be a class of such a name.
const LIKE_PARTS: [&[&str]; 3] = [&["training"], &["testing"], &["valid", "validation", "dev"]];

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
    /// Folders with images beside those of the classes, which belong to none, and these images.
    pub loose: Vec<(PathBuf, Vec<PathBuf>)>,
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
        let [train, test, validation] = part_folders(root)?;
        let Some(train) = train else {
            let (classes, samples) = classes(root)?;
            let loose = loose([root])?;
            return Ok(Listing { classes, parts: [samples, Vec::new(), Vec::new()], loose });
        };
        let (names, samples) = classes(&train)?;
        let mut parts = [samples, Vec::new(), Vec::new()];
        let folders =
            [root, &train].into_iter().chain([&test, &validation].into_iter().flatten().map(|path| &**path));
        let loose = loose(folders)?;
        for (part, folder) in parts.iter_mut().skip(1).zip([test, validation]) {
            let Some(folder) = folder else { continue };
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
        Ok(Listing { classes: names, parts, loose })
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
        let places = PARTS.map(|name| {
            let place = part_at(root, name).filter(|place| place.is_dir())?;
            known.iter().all(|class| place.file_name() != Some(class.as_ref())).then_some(place)
        });
        if places.iter().all(Option::is_none) {
            let part = if whole_is_test { Part::Test } else { Part::Train };
            *listing.part_mut(part) = labeled(root)?;
        }
        for (samples, place) in listing.parts.iter_mut().zip(&places) {
            if let Some(place) = place {
                *samples = labeled(place)?;
            }
        }
        listing.loose = loose(places.iter().flatten().map(|path| &**path).chain([root]))?;
        Ok(listing)
    }
}

/// Returns the place of a part in a folder, whose name may have capitals.
pub(crate) fn part_at(folder: &Path, name: &str) -> Option<PathBuf> {
    let exact = folder.join(name);
    let is_it = |entry: &PathBuf| entry.file_name().is_some_and(|other| other.eq_ignore_ascii_case(name));
    if exact.exists() { Some(exact) } else { entries(folder).ok()?.into_iter().find(is_it) }
}

/// Returns the folders of the parts, by the number of the part; none if the folders are classes.
fn part_folders(root: &Path) -> Result<[Option<PathBuf>; 3], DataError> {
    let names = folders(root)?;
    let is_part = |name: &String| PARTS.iter().any(|part| name.eq_ignore_ascii_case(part));
    // `Train` is also a class, beside others.
    let places = match root.join(PARTS[0]).is_dir() || names.iter().all(is_part) {
        true => PARTS.map(|name| part_at(root, name).filter(|place| place.is_dir())),
        false => Default::default(),
    };
    let other = names.iter().map(|name| root.join(name)).find(|place| !places.contains(&Some(place.clone())));
    match (&places[0], other) {
        (Some(train), Some(path)) => return Err(DataError::UnknownPart { path, train: train.clone() }),
        (None, Some(_)) => {}
        _ => return Ok(places),
    }
    let like = |name: &String| {
        let is_like = |other: &&str| name.eq_ignore_ascii_case(other);
        (0..PARTS.len()).find(|part| LIKE_PARTS[*part].iter().chain([&PARTS[*part]]).any(&is_like))
    };
    let parts: Vec<Option<usize>> = names.iter().map(like).collect();
    let odd = names.iter().zip(&parts).find(|(name, _)| !PARTS.contains(&&***name));
    match odd {
        Some((name, Some(part))) if parts.contains(&Some(0)) && !parts.contains(&None) => {
            Err(DataError::LikePart { path: root.join(name), part: PARTS[*part] })
        }
        _ => Ok(Default::default()),
    }
}

/// Returns those of the folders that have images which lie in none of their folders, with these images.
fn loose<'a>(folders: impl IntoIterator<Item = &'a Path>) -> Result<Vec<(PathBuf, Vec<PathBuf>)>, DataError> {
    let mut found = Vec::new();
    for folder in folders {
        let mut images = entries(folder)?;
        images.retain(|entry| has_ending(entry, &ENDINGS) && !entry.is_dir());
        images.sort_unstable();
        if !images.is_empty() {
            found.push((folder.into(), images));
        }
    }
    Ok(found)
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

/// Returns the folder to give in place of one that has a single class, if the folders tell.
pub(crate) fn instead_of(root: &Path, class: &str) -> Option<PathBuf> {
    let (of_class, has_images) =
        (root.join(class), |folder: &Path| loose([folder]).is_ok_and(|found| !found.is_empty()));
    if has_images(root) {
        return Some(std::path::absolute(root).ok()?.parent()?.into());
    }
    (of_class.is_dir() && !has_images(&of_class)).then_some(of_class)
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

/// Returns what is in a folder and not hidden.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let read = fs::read_dir(folder).and_then(|entries| {
        entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>()
    });
    let mut entries = read.map_err(|source| DataError::Unreadable { path: folder.into(), source })?;
    let is_hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
    entries.retain(|entry| !entry.file_name().is_some_and(is_hidden));
    Ok(entries)
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    ending.is_some_and(|ending| endings.contains(&&*ending))
}

/// Returns the files with one of the endings in a folder and in the folders below it, in any order. Leaves out
/// hidden ones.
pub(crate) fn files_below(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, DataError> {
    let mut files = Vec::new();
    let parent = folder.parent().and_then(|parent| fs::canonicalize(parent).ok());
    collect(folder, endings, &mut parent.into_iter().collect(), &mut files)?;
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
    // The link itself is refused, not a folder that is reached a second time: that one may be real.
    if folder.is_symlink() && above.iter().any(|above| above.starts_with(&place)) {
        return Err(DataError::LinkLoop { path: folder.into() });
    }
    above.push(place);
    for entry in entries(folder)? {
        if entry.is_dir() {
            collect(&entry, endings, above, into)?;
        } else if has_ending(&entry, endings) {
            into.push(entry);
        }
    }
    above.pop();
    Ok(())
}
