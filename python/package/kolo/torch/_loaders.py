"""Loaders of shards."""

import re
import warnings

# Parts of the names of torchvision's and others' random transforms.
_RANDOM = re.compile(r"\w*(?:[Rr]and|Jitter|Augment|AugMix)\w*")


def _names(transform):
    """Returns the name of a transform, and those of its parts as far as it shows them."""
    parts = repr(transform)
    return type(transform).__name__ + ("" if parts.startswith("<") else f" {parts}")


def warn_of_random_transforms(loader):
    """Warns if worker processes of a loader draw random numbers: these depend on which process loads a sample."""
    dataset, workers, found = getattr(loader, "dataset", None), getattr(loader, "num_workers", 0), None
    while workers and dataset is not None and not found:
        transforms = [getattr(dataset, name, None) for name in ("transform", "transforms", "target_transform")]
        found = _RANDOM.search(" ".join(_names(transform) for transform in transforms if transform is not None))
        dataset = getattr(dataset, "dataset", None)
    if found:
        warnings.warn(f"kolo: the data set's transform {found.group()} draws random numbers in {workers} worker processes, so "
                      "the bits follow their number; use num_workers=0, or derive the numbers from the sample's index", stacklevel=3)
