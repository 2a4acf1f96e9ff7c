//! The data sets that have a name, one file each.

pub(crate) mod cifar10;
mod cifar100;
mod csv;
mod fashion_mnist;
mod fashion_mnist_small;
pub(crate) mod folder;
mod kolo_documents;
pub(crate) mod mnist;
mod table_file;
mod text;

use crate::entry::DatasetEntry;

/// All data sets. Opening, help text and error messages read this table.
pub static DATASETS: &[DatasetEntry] = &[
    fashion_mnist_small::ENTRY,
    fashion_mnist::ENTRY,
    mnist::ENTRY,
    cifar10::ENTRY,
    cifar100::ENTRY,
    folder::ENTRY,
    csv::ENTRY,
    csv::PARQUET,
    text::ENTRY,
    kolo_documents::ENTRY,
];
