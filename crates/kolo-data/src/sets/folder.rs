//! The user's own images: a folder for each class, read as torchvision's `ImageFolder` reads it.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::augment::AugmentKey;
use crate::batch::{Batch, Normalize};
use crate::dataset::{DataSet, ImageDataSet, SampleShape};
use crate::decode;
use crate::entry::{DatasetEntry, Location};
use crate::error::DataError;
use crate::fingerprint::{ContentHash, Fingerprint};
use crate::geometry::{altered, centered, resized_side};
use crate::listing::{Listing, Sample, instead_of};
use crate::options::OpenOptions;
use crate::part::Part;
use crate::preprocessing::Preprocessing;
use kolo_schedule::words::{counted, first_names};

/// Length of the sides of a model's input, unless the user sets another.
const SIZE: usize = 224;
/// Largest length of these sides.
const LARGEST: usize = 4096;
/// Most names of skipped files in a warning.
const NAMED: usize = 100;
/// Most names of images that belong to no class in a warning.
const FEW: usize = 3;

/// Mean and standard deviation of ImageNet's training images by channel, as of torchvision's models.
const IMAGENET: [[f32; 3]; 2] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];
/// The same of gray images: the means over the channels.
const IMAGENET_GRAY: [[f32; 1]; 2] = [[0.449], [0.226]];

pub(super) const ENTRY: DatasetEntry = DatasetEntry {
    name: "folder",
    about: "your own images, a folder a class, or train, val and test above",
    location: Location::Own("DIR"),
    takes: &["--size", "--channels", "--skip-unreadable"],
    get: "a folder of images for each class, or `train`, and if you like `val` and `test`, with such folders",
    open: |folder, options| Ok(Arc::new(FolderSet::open(&folder.path, options)?)),
};

/// Images in folders, decoded when a batch needs them.
#[derive(Debug)]
pub(crate) struct FolderSet {
    root: PathBuf,
    listing: Listing,
    channels: usize,
    size: usize,
    statistics: [Vec<f32>; 2],
    normalize: Normalize,
    /// Files that were left out because they cannot be decoded, below the root.
    skipped: Vec<PathBuf>,
}

impl FolderSet {
    pub fn open(root: &Path, options: &OpenOptions) -> Result<Self, DataError> {
        let (size, channels) = (options.size.unwrap_or(SIZE), options.channels.unwrap_or(3));
        if !(1..=LARGEST).contains(&size) {
            let problem = format!("it must be from 1 to {LARGEST}");
            return Err(DataError::Option { option: "--size", value: size.to_string(), problem });
        }
        if ![1, 3].contains(&channels) {
            let problem = "it must be 1 (gray) or 3 (color)".into();
            return Err(DataError::Option { option: "--channels", value: channels.to_string(), problem });
        }
        let trained = options.trained.as_ref().filter(|how| how.resize.is_some());
        let mut listing = match trained {
            Some(how) => Listing::of_classes(root, &how.label_names, options.whole_is_test)?,
            None => Listing::read(root)?,
        };
        let mut skipped = Vec::new();
        if options.skip_unreadable {
            for part in Part::ALL {
                let classes = listing.classes.clone();
                let samples = listing.part_mut(part);
                let problems = problems(samples, channels, options.threads);
                let mut has_good = vec![false; classes.len()];
                for (sample, problem) in samples.iter().zip(&problems) {
                    has_good[sample.label as usize] |= problem.is_none();
                }
                let emptied =
                    samples.iter().map(|sample| sample.label).find(|label| !has_good[*label as usize]);
                if let Some(label) = emptied {
                    return Err(unreadable_class(samples, &problems, label, &classes));
                }
                let mut problems = problems.iter();
                samples.retain(|sample| {
                    let is_kept = problems.next().is_some_and(Option::is_none);
                    if !is_kept {
                        skipped.push(sample.path.strip_prefix(root).unwrap_or(&sample.path).into());
                    }
                    is_kept
                });
            }
        }
        let statistics = match channels {
            1 => IMAGENET_GRAY.map(|numbers| numbers.to_vec()),
            _ => IMAGENET.map(|numbers| numbers.to_vec()),
        };
        let normalize = Normalize::new(&statistics[0], &statistics[1]);
        Ok(FolderSet { root: root.into(), listing, channels, size, statistics, normalize, skipped })
    }

    /// Returns the path of a file below the root.
    fn name(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy().into_owned()
    }
}

/// Returns the error of a class of which no file can be decoded.
fn unreadable_class(
    samples: &[Sample],
    problems: &[Option<String>],
    label: u32,
    classes: &[String],
) -> DataError {
    let of_class = samples.iter().zip(problems).filter(|(sample, _)| sample.label == label);
    let files: Vec<(PathBuf, String)> = of_class
        .map(|(sample, problem)| (sample.path.clone(), problem.clone().unwrap_or_default()))
        .collect();
    let name = classes.get(label as usize).map(String::as_str).unwrap_or_default();
    let first = files.first().map_or(Path::new(""), |(path, _)| path);
    let folder = first.ancestors().skip(1).find(|above| above.file_name() == Some(name.as_ref()));
    DataError::UnreadableClass { folder: folder.unwrap_or(first).into(), files }
}

/// Returns what is wrong with each of the files, in their order; `None` for those that can be decoded.
fn problems(samples: &[Sample], channels: usize, threads: usize) -> Vec<Option<String>> {
    let next = AtomicUsize::new(0);
    let of_thread = || {
        let mut found = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(sample) = samples.get(at) else { return found };
            let decoded = catch_unwind(|| decode::read(&sample.path, channels).err());
            found.push((at, decoded.unwrap_or_else(|_| Some("breaks its decoder".into()))));
        }
    };
    let found: Vec<(usize, Option<String>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(of_thread)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let mut all = vec![Some("was not read".into()); samples.len()];
    found.into_iter().for_each(|(at, problem)| all[at] = problem);
    all
}

impl DataSet for FolderSet {
    type Batch = Batch;

    fn samples(&self, part: Part) -> usize {
        self.listing.part(part).len()
    }

    fn batch(&self, part: Part, indices: &[usize], augment: Option<AugmentKey>) -> Result<Batch, DataError> {
        let samples = self.listing.part(part);
        let pixels = self.size * self.size;
        let mut images = vec![0.0; indices.len() * self.channels * pixels];
        for (&index, out) in indices.iter().zip(images.chunks_exact_mut(self.channels * pixels)) {
            let path = &samples[index].path;
            let picture = decode::read(path, self.channels).map_err(|problem| DataError::SampleFile {
                part,
                index,
                file: path.clone(),
                problem,
            })?;
            let picture = match augment {
                Some(key) => altered(&picture, self.size, key, index),
                None => centered(picture, [resized_side(self.size); 2], [self.size; 2]),
            };
            self.normalize.write_interleaved(&picture.bytes, out);
        }
        let labels = indices.iter().map(|&index| samples[index].label).collect();
        Ok(Batch { images, labels, shape: [indices.len(), self.channels, self.size, self.size] })
    }

    /// Returns the fingerprint of all names, classes and lengths of the files, and the content of
    /// [some](crate::FINGERPRINT_SAMPLES).
    fn fingerprint(&self, part: Part) -> Fingerprint {
        let samples = self.listing.part(part);
        let mut all = ContentHash::new();
        all.numbers(&[self.channels, self.size]);
        self.statistics.iter().for_each(|numbers| all.numbers(numbers));
        self.listing.classes.iter().for_each(|class| all.text(class));
        for Sample { path, label } in samples {
            all.text(&self.name(path));
            all.word(u64::from(*label));
            // Training reports a file that cannot be read.
            all.word(path.metadata().map_or(u64::MAX, |data| data.len()));
        }
        let mut print = Fingerprint::of_samples(samples.len(), |index, hash| {
            match kolo_durable::read(&samples[index].path) {
                Ok(bytes) => hash.bytes(&bytes),
                Err(_) => hash.word(u64::MAX),
            }
            true
        });
        all.word(print.content.unwrap_or(0));
        print.content = Some(all.finish());
        print
    }

    fn preprocessing(&self) -> Option<Preprocessing> {
        let [mean, std] = self.statistics.clone();
        Some(Preprocessing {
            resize: Some(resized_side(self.size)),
            image_size: [self.channels, self.size, self.size],
            input_size: [self.channels, self.size, self.size],
            padding: [0; 4],
            mean,
            std,
            num_classes: self.listing.classes.len(),
            label_names: self.listing.classes.clone(),
            table: None,
        })
    }

    fn label(&self, part: Part, index: usize) -> Option<u32> {
        self.listing.part(part).get(index).map(|sample| sample.label)
    }

    fn sample_name(&self, part: Part, index: usize) -> Option<String> {
        self.listing.part(part).get(index).map(|sample| self.name(&sample.path))
    }

    fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        if let [class] = &*self.listing.classes {
            let instead = match instead_of(&self.root, class) {
                Some(folder) => format!("folder:{}, if its folders are the classes", folder.display()),
                None => "a folder with a folder for each class".into(),
            };
            all.push(one_class(&self.root, class) + &format!("; give {instead}"));
        }
        for (folder, images) in &self.listing.loose {
            let below = images.iter().map(|image| image.strip_prefix(folder).unwrap_or(image).display());
            let (count, names) = (counted(images.len(), "image"), first_names(below, FEW));
            let place = folder.display();
            all.push(format!("Kolo leaves out {count} in {place}, beside the folders there: {names}"));
        }
        if !self.skipped.is_empty() {
            let names = first_names(self.skipped.iter().map(|path| path.display()), NAMED);
            all.push(format!("Kolo skips {}: {names}", counted(self.skipped.len(), "unreadable file")));
        }
        all
    }
}

/// Says that data have a single class.
pub(super) fn one_class(data: &Path, class: &str) -> String {
    format!("{} has 1 class, `{class}`, so there is nothing to learn", data.display())
}

impl ImageDataSet for FolderSet {
    fn shape(&self) -> SampleShape {
        SampleShape {
            channels: self.channels,
            height: self.size,
            width: self.size,
            classes: self.listing.classes.len(),
            is_text: false,
        }
    }
}
