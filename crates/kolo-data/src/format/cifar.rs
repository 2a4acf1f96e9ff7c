//! The binary versions of [CIFAR-10 and CIFAR-100](https://www.cs.toronto.edu/~kriz/cifar.html): records
//! of one or two label bytes and 3x32x32 pixels, channel by channel. There is no header: only the length
//! shows whether a file is complete.

use crate::entry::Folder;
use crate::error::DataError;
use crate::format::source::Source;
use crate::images::Images;

const CHANNELS: usize = 3;
const SIDE: usize = 32;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Bytes before the pixels; the last one is the class (CIFAR-100 puts the coarse class before it).
    pub label_bytes: usize,
    /// Number of records in a file.
    pub count: usize,
}

/// Reads the named files, one after another.
pub(crate) fn in_folder(
    folder: &Folder,
    names: &[String],
    record: Record,
    classes: usize,
) -> Result<Images, DataError> {
    let sources = names.iter().map(|name| folder.open(std::slice::from_ref(name)));
    read(sources.collect::<Result<_, _>>()?, record, classes)
}

/// Reads files one after another.
/// Refuses a file whose length differs from `record`, and a label of `classes` or above.
pub(crate) fn read(sources: Vec<Source>, record: Record, classes: usize) -> Result<Images, DataError> {
    let mut images =
        Images { channels: CHANNELS, height: SIDE, width: SIDE, pixels: Vec::new(), labels: Vec::new() };
    let length = record.label_bytes + images.image_bytes();
    for source in sources {
        let path = source.path();
        let bytes = source.rest((record.count * length) as u64)?;
        for (index, record_bytes) in bytes.chunks_exact(length).enumerate() {
            let (labels, pixels) = record_bytes.split_at(record.label_bytes);
            let label = u32::from(labels[record.label_bytes - 1]);
            if label as usize >= classes {
                return Err(DataError::Label { path, index, label, classes });
            }
            images.labels.push(label);
            images.pixels.extend_from_slice(pixels);
        }
    }
    Ok(images)
}
