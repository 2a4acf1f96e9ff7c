//! IDX, the format of MNIST and Fashion-MNIST ([description](https://yann.lecun.com/exdb/mnist/)): a magic
//! number with type and dimensions, the sizes, then the bytes. Images and labels are in separate files.

use crate::entry::Folder;
use crate::error::DataError;
use crate::format::source::Source;
use crate::images::Images;

/// Magic number of unsigned bytes in three dimensions: count, rows, columns.
const IMAGES_MAGIC: u32 = 0x0000_0803;
/// Magic number of unsigned bytes in one dimension: count.
const LABELS_MAGIC: u32 = 0x0000_0801;
/// Rows and columns of every data set of this family.
const SIDE: u32 = 28;

/// Reads a part of the data set in `folder`, `train` or `t10k`, compressed or not. The file names are those
/// published (with a dash) or those of some archives (with a point).
pub(crate) fn in_folder(folder: &Folder, part: &str, classes: usize) -> Result<Images, DataError> {
    let open = |what, dimensions| {
        let names = ['-', '.'].map(|dash| format!("{part}-{what}{dash}idx{dimensions}-ubyte"));
        folder.open(&names.each_ref().map(|name| [name.clone(), format!("{name}.gz")]).concat())
    };
    read(open("images", 3)?, open("labels", 1)?, classes)
}

/// Reads images and their labels.
/// Refuses a wrong magic number, images of another size than 28x28, a length that differs from the header,
/// different counts of images and labels, a label of `classes` or above, and no images at all.
pub(crate) fn read(images: Source, labels: Source, classes: usize) -> Result<Images, DataError> {
    let (images_path, labels_path) = (images.path(), labels.path());
    let pixels = read_images(images)?;
    let labels = read_labels(labels, classes)?;
    let count = pixels.len() / (SIDE * SIDE) as usize;
    if count != labels.len() {
        return Err(DataError::Count { images_path, images: count, labels_path, labels: labels.len() });
    }
    if labels.is_empty() {
        return Err(DataError::Empty { path: images_path });
    }
    Ok(Images { channels: 1, height: SIDE as usize, width: SIDE as usize, pixels, labels })
}

fn read_images(mut source: Source) -> Result<Vec<u8>, DataError> {
    check_magic(&mut source, IMAGES_MAGIC, "IDX files of images")?;
    let [count, rows, columns] = source.header()?;
    if (rows, columns) != (SIDE, SIDE) {
        return Err(DataError::Dimensions {
            path: source.path(),
            found: (rows, columns),
            expected: (SIDE, SIDE),
        });
    }
    source.rest(u64::from(count) * u64::from(SIDE * SIDE))
}

fn read_labels(mut source: Source, classes: usize) -> Result<Vec<u32>, DataError> {
    check_magic(&mut source, LABELS_MAGIC, "IDX files of labels")?;
    let [count] = source.header()?;
    let path = source.path();
    let labels: Vec<u32> = source.rest(u64::from(count))?.into_iter().map(u32::from).collect();
    match labels.iter().position(|&label| label as usize >= classes) {
        Some(index) => Err(DataError::Label { path, index, label: labels[index], classes }),
        None => Ok(labels),
    }
}

fn check_magic(source: &mut Source, expected: u32, what: &'static str) -> Result<(), DataError> {
    let [found] = source.header()?;
    if found == expected {
        Ok(())
    } else {
        Err(DataError::Magic { path: source.path(), found, expected, what })
    }
}
