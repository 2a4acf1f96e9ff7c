//! Loader of the batches of this worker's shards, ready when the training loop asks for them.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kolo_sampler::Sampler;

use crate::augment::AugmentKey;
use crate::dataset::DataSet;
use crate::error::DataError;
use crate::part::Part;
use crate::prefetch::{Prefetch, PrefetchError};

const AHEAD: usize = 3;

/// Prepares the batches of a rank's shards ahead of time, step after step, on threads of its own.
///
/// The sampler, the seed and the shard alone decide which samples a batch has and how they are altered, so
/// every rank gets the same batch for a shard. The training loop passes its step and its shards. If they
/// differ from the ones prepared, because a step is repeated or shards have moved, the loader starts again
/// from there.
///
/// ```
/// use kolo_data::{Loader, Part, open};
/// use kolo_sampler::Sampler;
///
/// let dataset = open("fashion-mnist-small")?;
/// let sampler = Sampler::new(dataset.samples(Part::Train), 32, 4, 0)?;
/// let mut loader = Loader::new(dataset, sampler.clone()).augmented(0);
/// for step in 0..3 {
///     for shard in loader.step(0, step, 2..4) {
///         let shard = shard?;
///         assert_eq!(shard.batch.unwrap().images.len(), 32 * 28 * 28);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Loader<D: DataSet + ?Sized> {
    data: Arc<D>,
    sampler: Sampler,
    /// Seed of the alterations of training samples; `None` if they are not altered.
    augment: Option<u64>,
    threads: usize,
    running: Option<Running<D::Batch>>,
}

kolo_schedule::opaque_debug!([D: DataSet + ?Sized] Loader<D> { sampler, augment, threads });

/// A batch, or the error of a sample.
type Prepared<B> = Result<ShardBatch<B>, DataError>;

struct Running<B> {
    batches: Prefetch<Prepared<B>>,
    /// Position of the next batch: epoch, step and shards.
    epoch: usize,
    step: usize,
    shards: Range<usize>,
}

/// Samples of one shard.
#[derive(Clone, Debug)]
pub struct ShardBatch<B> {
    /// Number of the shard in the step.
    pub shard: usize,
    /// The samples; `None` for a shard without any, as in a short last batch.
    pub batch: Option<B>,
    /// Time for which the training loop waited for the batch.
    pub waited: Duration,
}

impl<D: DataSet + ?Sized + 'static> Loader<D> {
    /// Creates a loader of the training samples of `data`, divided by `sampler`, without alterations.
    pub fn new(data: Arc<D>, sampler: Sampler) -> Self {
        Loader { data, sampler, augment: None, threads: 1, running: None }
    }

    /// Alters the samples at random, by this seed, in the ways that the data set supports.
    pub fn augmented(self, seed: u64) -> Self {
        Loader { augment: Some(seed), ..self }
    }

    /// Prepares batches on so many threads. Their number changes no batch.
    pub fn on_threads(self, threads: usize) -> Self {
        Loader { threads, ..self }
    }

    /// Returns the batches of `shards` in a step of an epoch, both from 0, one after another. The thread
    /// then continues with the steps and epochs that follow.
    ///
    /// The first item is an error if the epoch has no such step, or the thread could not be started; an item
    /// is if a sample cannot be prepared, or the thread panicked because of a bug in the data set.
    pub fn step(&mut self, epoch: usize, step: usize, shards: Range<usize>) -> Step<'_, D> {
        let comes_next = |next: &Running<_>| (next.epoch, next.step, &next.shards) == (epoch, step, &shards);
        if !self.running.as_ref().is_some_and(comes_next) {
            // The old thread ends first, because it may hold large batches.
            self.running = None;
        }
        let (epoch_after, step_after) = match step.saturating_add(1) < self.sampler.steps_of(epoch) {
            true => (epoch, step + 1),
            false => (epoch + 1, 0),
        };
        let due = shards.len();
        if due == 0 {
            // Steps without a batch would never end.
            return Step { loader: self, due, failed: None };
        }
        let running = match self.running.take() {
            Some(Running { batches, .. }) => Ok(batches),
            None => self.start(epoch, step, shards.clone()),
        };
        let failed = match running {
            Ok(batches) => {
                let (epoch, step) = (epoch_after, step_after);
                self.running = Some(Running { batches, epoch, step, shards });
                None
            }
            Err(error) => Some(error),
        };
        Step { loader: self, due, failed }
    }

    /// Like [`Loader::step`] for a step of the whole run, from 0, as `Ddp::steps` counts them.
    pub fn at(&mut self, step: u64, shards: Range<usize>) -> Step<'_, D> {
        let (epoch, step) = self.sampler.position(step);
        self.step(epoch, step, shards)
    }

    fn start(
        &self,
        epoch: usize,
        first: usize,
        shards: Range<usize>,
    ) -> Result<Prefetch<Prepared<D::Batch>>, PrefetchError> {
        let sampler = self.sampler.clone();
        let steps = sampler.steps_of(epoch);
        if first >= steps {
            return Err(PrefetchError::NoSuchStep { epoch, step: first, steps });
        }
        let requests = (epoch..).flat_map(move |number| {
            let (order, steps) = (Arc::new(sampler.epoch(number)), sampler.steps_of(number));
            let shards = shards.clone();
            let first = if number == epoch { first } else { 0 };
            (first..steps).flat_map(move |step| {
                let order = order.clone();
                shards.clone().map(move |shard| (number, shard, order.shard(step, shard)))
            })
        });
        let (data, augment) = (self.data.clone(), self.augment);
        let prepare = move |(epoch, shard, indices): (usize, usize, Vec<usize>)| {
            let augment = augment.map(|seed| AugmentKey { seed, epoch: epoch as u64 });
            let batch = match indices.is_empty() {
                true => None,
                false => Some(data.batch(Part::Train, &indices, augment)?),
            };
            Ok(ShardBatch { shard, batch, waited: Duration::ZERO })
        };
        Prefetch::new(requests, AHEAD, self.threads, prepare)
    }
}

/// An iterator over the batches of one step. If it is dropped early, the remaining batches are lost, and
/// the next step starts the thread again.
pub struct Step<'a, D: DataSet + ?Sized> {
    loader: &'a mut Loader<D>,
    due: usize,
    failed: Option<PrefetchError>,
}

kolo_schedule::opaque_debug!([D: DataSet + ?Sized] Step<'_, D> { due });

impl<D: DataSet + ?Sized> Iterator for Step<'_, D> {
    type Item = Result<ShardBatch<D::Batch>, PrefetchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.due == 0 {
            return None;
        }
        self.due -= 1;
        if let Some(error) = self.failed.take() {
            self.due = 0;
            return Some(Err(error));
        }
        let started = Instant::now();
        let next = self.loader.running.as_mut()?.batches.next()?;
        let next = next.and_then(|batch| Ok(batch?));
        if next.is_err() {
            self.due = 0;
            self.loader.running = None;
        }
        Some(next.map(|batch| ShardBatch { waited: started.elapsed(), ..batch }))
    }
}

impl<D: DataSet + ?Sized> Drop for Step<'_, D> {
    fn drop(&mut self) {
        if self.due > 0 {
            self.loader.running = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data set whose samples are their index and the epoch in which they were altered.
    struct Numbers;

    impl DataSet for Numbers {
        type Batch = Vec<(usize, u64)>;

        fn samples(&self, _: Part) -> usize {
            23
        }

        fn batch(
            &self,
            _: Part,
            indices: &[usize],
            augment: Option<AugmentKey>,
        ) -> Result<Self::Batch, DataError> {
            assert!(!indices.is_empty());
            Ok(indices.iter().map(|index| (*index, augment.unwrap().epoch)).collect())
        }
    }

    fn loader() -> Loader<Numbers> {
        Loader::new(Arc::new(Numbers), sampler()).augmented(0)
    }

    /// Three steps per epoch, of which the last has three samples for four shards.
    fn sampler() -> Sampler {
        Sampler::new(23, 5, 2, 3).unwrap()
    }

    /// Two steps per epoch from the second epoch on.
    fn growing() -> Sampler {
        Sampler::growing(23, 5, &["1:2".parse().unwrap()], 2, 3).unwrap()
    }

    type Numbered = Vec<(usize, Option<Vec<(usize, u64)>>)>;

    fn given(loader: &mut Loader<Numbers>, epoch: usize, step: usize, shards: Range<usize>) -> Numbered {
        let step = loader.step(epoch, step, shards);
        step.map(|shard| shard.map(|shard| (shard.shard, shard.batch)).unwrap()).collect()
    }

    fn expected(epoch: usize, step: usize, shards: Range<usize>) -> Numbered {
        let order = sampler().epoch(epoch);
        let altered =
            |shard| order.shard(step, shard).into_iter().map(|index| (index, epoch as u64)).collect();
        let batch = |shard| Some(altered(shard)).filter(|batch: &Vec<_>| !batch.is_empty());
        shards.map(|shard| (shard, batch(shard))).collect()
    }

    #[test]
    fn every_request_gets_its_batches() {
        (1..4).for_each(|threads| check_requests(loader().on_threads(threads)));
    }

    fn check_requests(mut loader: Loader<Numbers>) {
        // In order over the end of an epoch; a step again; other shards; a jump; no shards.
        for (epoch, step, shards) in [
            (0, 0, 0..2),
            (0, 1, 0..2),
            (0, 2, 0..2),
            (1, 0, 0..2),
            (1, 0, 0..2),
            (1, 1, 1..2),
            (1, 2, 1..2),
            (5, 1, 0..1),
            (5, 2, 0..0),
            (6, 0, 0..2),
        ] {
            let given = given(&mut loader, epoch, step, shards.clone());
            assert_eq!(given, expected(epoch, step, shards.clone()), "epoch {epoch} step {step} {shards:?}");
            let whole = (epoch * 3 + step) as u64;
            let again =
                loader.at(whole, shards.clone()).map(|shard| shard.map(|s| (s.shard, s.batch)).unwrap());
            assert_eq!(again.collect::<Numbered>(), given);
        }
    }

    #[test]
    fn a_batch_that_grows_is_prepared_ahead_over_the_end_of_an_epoch() {
        let mut loader = Loader::new(Arc::new(Numbers), growing()).augmented(0);
        let mut given = Vec::new();
        for step in 0..7 {
            given.push(loader.at(step, 0..2).map(|shard| shard.unwrap().batch.unwrap().len()).sum::<usize>());
        }
        assert_eq!(given, [10, 10, 3, 20, 3, 20, 3]);
    }

    #[test]
    fn a_step_that_is_given_up_does_not_move_the_next_one() {
        let mut loader = loader();
        drop(loader.step(0, 0, 0..2).next());
        assert_eq!(given(&mut loader, 0, 1, 0..2), expected(0, 1, 0..2));
    }

    #[test]
    fn a_step_that_the_epoch_does_not_have_is_an_error() {
        let mut loader = loader();
        assert_eq!(given(&mut loader, 0, 2, 0..2), expected(0, 2, 0..2));
        for step in [3, usize::MAX] {
            let mut beyond = loader.step(0, step, 0..2);
            let error = beyond.next().unwrap().unwrap_err().to_string();
            assert!(error.contains(&format!("epoch 0 has no step {step}: its 3 steps")), "{error}");
            assert!(beyond.next().is_none());
        }
        assert_eq!(given(&mut loader, 1, 0, 0..2), expected(1, 0, 0..2));
    }

    #[test]
    fn a_sample_that_cannot_be_read_is_named_and_may_be_tried_again() {
        struct Cut;
        impl DataSet for Cut {
            type Batch = ();
            fn samples(&self, _: Part) -> usize {
                8
            }
            fn batch(&self, part: Part, indices: &[usize], _: Option<AugmentKey>) -> Result<(), DataError> {
                match indices.contains(&5) {
                    true => Err(DataError::sample(part, 5, "it is cut off")),
                    false => Ok(()),
                }
            }
        }
        let sampler = Sampler::new(8, 1, 2, 0).unwrap();
        let wrong = (0..4).find(|step| (0..2).any(|shard| sampler.epoch(0).shard(*step, shard) == [5]));
        let mut loader = Loader::new(Arc::new(Cut), sampler);
        for step in (0..4).chain(0..4) {
            let prepared: Result<Vec<_>, _> = loader.step(0, step, 0..2).collect();
            let told = prepared.err().map(|error| error.to_string());
            let expected = (Some(step) == wrong).then(|| "training sample 5: it is cut off".to_owned());
            assert_eq!(told, expected, "step {step}");
        }
    }

    #[test]
    fn a_data_set_that_panics_is_an_error_and_no_end() {
        struct Broken;
        impl DataSet for Broken {
            type Batch = ();
            fn samples(&self, _: Part) -> usize {
                8
            }
            fn batch(&self, _: Part, _: &[usize], _: Option<AugmentKey>) -> Result<(), DataError> {
                panic!("no such file")
            }
        }
        let mut loader = Loader::new(Arc::new(Broken), Sampler::new(8, 2, 2, 0).unwrap());
        for _ in 0..2 {
            let mut step = loader.step(0, 0, 0..2);
            assert!(step.next().unwrap().unwrap_err().to_string().contains("no such file"));
            assert!(step.next().is_none());
        }
    }
}
