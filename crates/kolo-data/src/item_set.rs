//! A data set of another library's items.

use std::fmt;

use crate::augment::AugmentKey;
use crate::dataset::DataSet;
use crate::error::DataError;
use crate::part::Part;

type Get<I> = Box<dyn Fn(usize) -> Option<I> + Send + Sync>;

/// A data set of items of any kind, and a function that makes a batch of them: another library's data set, as
/// Burn's `Dataset` with its `Batcher`. Kolo decides on order and shards.
///
/// ```
/// use kolo_data::{DataSet, ItemSet, Part};
///
/// // With Burn: `ItemSet::new(move |items| batcher.batch(items, &device))`, and then
/// // `.with(Part::Train, train.len(), move |index| train.get(index))`.
/// let texts = ["a short text", "another one"];
/// let data = ItemSet::new(|texts: Vec<&str>| texts.iter().map(|text| text.len()).collect::<Vec<_>>())
///     .with(Part::Train, texts.len(), move |index| texts.get(index).copied());
/// assert_eq!(data.batch(Part::Train, &[1, 0], None)?, [11, 12]);
/// # Ok::<(), kolo_data::DataError>(())
/// ```
///
/// An item may depend on its index only, so that every worker has the same. Workers compare the number of
/// items, and the content of batches that [`ContentHash::batch`](crate::ContentHash::batch) knows.
pub struct ItemSet<I, O> {
    parts: [Option<(usize, Get<I>)>; 3],
    batch: Box<dyn Fn(Vec<I>) -> O + Send + Sync>,
}

impl<I, O> ItemSet<I, O> {
    /// Creates a data set without items, whose batches `batch` makes.
    pub fn new(batch: impl Fn(Vec<I>) -> O + Send + Sync + 'static) -> Self {
        ItemSet { parts: [None, None, None], batch: Box::new(batch) }
    }

    /// Gives `part` these items; `get` returns `None` for an item that cannot be had, which ends the run with
    /// its index.
    pub fn with(
        mut self,
        part: Part,
        items: usize,
        get: impl Fn(usize) -> Option<I> + Send + Sync + 'static,
    ) -> Self {
        self.parts[part as usize] = Some((items, Box::new(get)));
        self
    }
}

impl<I, O> fmt::Debug for ItemSet<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = self.parts.each_ref().map(|part| part.as_ref().map_or(0, |(items, _)| *items));
        write!(f, "ItemSet({} + {} + {} items)", items[0], items[1], items[2])
    }
}

impl<I, O: Send + 'static> DataSet for ItemSet<I, O> {
    type Batch = O;

    fn samples(&self, part: Part) -> usize {
        self.parts[part as usize].as_ref().map_or(0, |(items, _)| *items)
    }

    fn batch(&self, part: Part, indices: &[usize], _: Option<AugmentKey>) -> Result<O, DataError> {
        let item = |&index: &usize| {
            let get = self.parts[part as usize].as_ref().map(|(_, get)| get);
            let missing = || DataError::sample(part, index, "the data set returns none of that index");
            get.and_then(|get| get(index)).ok_or_else(missing)
        };
        Ok((self.batch)(indices.iter().map(item).collect::<Result<_, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::Loader;
    use kolo_sampler::Sampler;
    use std::sync::Arc;

    /// Squares, of which the one of 13 cannot be had; a batch is their sum.
    fn squares() -> ItemSet<usize, Vec<usize>> {
        let square = |index| (index != 13).then_some(index * index);
        ItemSet::new(|items: Vec<usize>| vec![items.iter().sum()]).with(Part::Train, 12, square).with(
            Part::Test,
            14,
            square,
        )
    }

    #[test]
    fn a_batch_has_the_items_of_the_sampler_in_its_order() {
        let sampler = Sampler::new(12, 3, 2, 5).unwrap();
        let mut loader = Loader::new(Arc::new(squares()), sampler.clone());
        let mut seen = Vec::new();
        for step in 0..sampler.steps() {
            for (shard, loaded) in (0..2).zip(loader.step(0, step, 0..2)) {
                let indices = sampler.epoch(0).shard(step, shard);
                assert_eq!(loaded.unwrap().batch, Some(vec![indices.iter().map(|i| i * i).sum()]));
                seen.extend(indices);
            }
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..12), "each item once");
    }

    #[test]
    fn an_item_that_is_missing_is_named_with_its_part() {
        let data = squares();
        assert_eq!(data.batch(Part::Test, &[2, 3], None).unwrap(), [13]);
        let error = data.batch(Part::Test, &[2, 13], None).unwrap_err();
        assert_eq!(error.to_string(), "test sample 13: the data set returns none of that index");
        assert_eq!(data.samples(Part::Validation), 0);
        assert_eq!(format!("{data:?}"), "ItemSet(12 + 14 + 0 items)");
        let counted = data.fingerprint(Part::Train);
        assert_eq!((counted.samples, counted.hashed), (12, 12));
        assert_eq!(data.fingerprint(Part::Test).content, None, "an item is missing");
    }
}
