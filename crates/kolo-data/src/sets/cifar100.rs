//! [CIFAR-100](https://www.cs.toronto.edu/~kriz/cifar.html) (Krizhevsky 2009), binary version, fine classes.

use std::sync::Arc;

use crate::augment::Augment;
use crate::entry::{DatasetEntry, Folder, Location};
use crate::error::DataError;
use crate::format::cifar::{self, Record};
use crate::image_set::ImageSet;

const CLASSES: usize = 100;

/// Names by label, as in the archive's `fine_label_names.txt`.
const LABEL_NAMES: &str = "\
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly \
    camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup \
    dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower \
    leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid \
    otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray \
    road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar \
    sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle \
    wardrobe whale willow_tree wolf woman worm";

pub(super) const ENTRY: DatasetEntry = DatasetEntry {
    name: "cifar100",
    about: "CIFAR-100, binary version, 50,000 images, 3x32x32",
    location: Location::Given,
    takes: &[],
    get: "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    open: |folder, _| Ok(Arc::new(read(folder)?)),
};

fn read(folder: &Folder) -> Result<ImageSet, DataError> {
    let images = |name: &str, count| {
        cifar::in_folder(folder, &[name.to_owned()], Record { label_bytes: 2, count }, CLASSES)
    };
    let (train, test) = (images("train.bin", 50_000)?, images("test.bin", 10_000)?);
    let set = ImageSet::new(train, test, CLASSES, Augment { crop_padding: 4, flip: true })?;
    Ok(set.with_label_names(LABEL_NAMES.split(' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_name_and_they_are_sorted_as_in_the_archive() {
        let names: Vec<&str> = LABEL_NAMES.split(' ').collect();
        assert_eq!((names.len(), names[0], names[99]), (CLASSES, "apple", "worm"));
        assert!(names.is_sorted());
    }
}
