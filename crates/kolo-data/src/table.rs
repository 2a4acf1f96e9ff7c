//! The data sets that Kolo knows: one entry each. Opening, help text and error messages all read this table.

use crate::augment::Augment;
use crate::shape::Shape;

/// What the command line's help, the error messages and [`open`](crate::open) need to know of a data set.
#[derive(Debug)]
pub struct DatasetEntry {
    /// What the user types.
    pub name: &'static str,
    /// One line for the help text.
    pub about: &'static str,
    /// Number of classes.
    pub classes: usize,
    /// Where its files are.
    pub place: Place,
    /// Where its files come from: completes "get it with …" or "get it from …".
    pub get: &'static str,
    /// How its files are read.
    pub(crate) format: Format,
    /// The shape in which its images reach the network.
    pub shape: Shape,
    /// How its training images may be altered.
    pub augment: Augment,
}

/// Where the files of a data set are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the program itself.
    Embedded,
    /// In this folder, if the user names no other.
    Usually(&'static str),
    /// Where the user says.
    Given,
}

/// How the files of a data set are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The four embedded IDX files.
    Embedded,
    /// Four IDX files, plain or gzip.
    Idx,
    /// CIFAR-10's six binary files.
    Cifar10,
    /// CIFAR-100's two binary files.
    Cifar100,
}

const FASHION_PACKAGE: &str = "`apt-get install dataset-fashion-mnist` (Debian, Ubuntu)";
const FASHION_FOLDER: &str = "/usr/share/datasets/fashion-mnist";
const MNIST_SITE: &str = "https://ossci-datasets.s3.amazonaws.com/mnist/";
const CIFAR10_SITE: &str = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";
const CIFAR100_SITE: &str = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz";

const FLIP: Augment = Augment { crop_padding: 0, flip: true };
const SHIFT: Augment = Augment { crop_padding: 2, flip: false };
const SHIFT_AND_FLIP: Augment = Augment { crop_padding: 4, flip: true };

/// All data sets.
pub const DATASETS: &[DatasetEntry] = &[
    DatasetEntry {
        name: "fashion-mnist-small",
        about: "10,000 of Fashion-MNIST's images, 1x28x28, part of the program",
        classes: 10,
        place: Place::Embedded,
        get: "",
        format: Format::Embedded,
        shape: Shape::AsStored,
        augment: FLIP,
    },
    DatasetEntry {
        name: "fashion-mnist",
        about: "Fashion-MNIST whole, 60,000 images, padded to 3x32x32",
        classes: 10,
        place: Place::Usually(FASHION_FOLDER),
        get: FASHION_PACKAGE,
        format: Format::Idx,
        shape: Shape::Colour32,
        augment: SHIFT_AND_FLIP,
    },
    DatasetEntry {
        name: "mnist",
        about: "MNIST, 60,000 images, padded to 3x32x32",
        classes: 10,
        place: Place::Given,
        get: MNIST_SITE,
        format: Format::Idx,
        shape: Shape::Colour32,
        augment: SHIFT,
    },
    DatasetEntry {
        name: "cifar10",
        about: "CIFAR-10, binary version, 50,000 images, 3x32x32",
        classes: 10,
        place: Place::Given,
        get: CIFAR10_SITE,
        format: Format::Cifar10,
        shape: Shape::AsStored,
        augment: SHIFT_AND_FLIP,
    },
    DatasetEntry {
        name: "cifar100",
        about: "CIFAR-100, binary version, 50,000 images, 3x32x32",
        classes: 100,
        place: Place::Given,
        get: CIFAR100_SITE,
        format: Format::Cifar100,
        shape: Shape::AsStored,
        augment: SHIFT_AND_FLIP,
    },
];

impl DatasetEntry {
    /// How the data set is written on the command line: `cifar10:DIR`, `fashion-mnist[:DIR]`,
    /// `fashion-mnist-small`.
    pub fn usage(&self) -> String {
        match self.place {
            Place::Embedded => self.name.into(),
            Place::Usually(_) => format!("{}[:DIR]", self.name),
            Place::Given => format!("{}:DIR", self.name),
        }
    }

    /// What to do if the files are not there.
    pub(crate) fn remedy(&self) -> String {
        let get = self.get;
        let how =
            if get.starts_with("http") { format!("get it from {get}") } else { format!("get it with {get}") };
        format!("{how}, or name the folder that has it: `{}:DIR`", self.name)
    }
}
