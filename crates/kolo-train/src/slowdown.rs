//! Artificially slow workers, for trials of the straggler policies.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kolo_data::{AugmentKey, DataError, DataSet, Part};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// The passes of a shard, in the training thread.
    Compute,
    /// The preparation of a shard's batch.
    Data,
}

/// An artificial delay of one worker: it sleeps for each of its shards, in its training thread or in the
/// preparation of batches. Its text form is `RANK:compute:MILLISECONDS` or `RANK:data:MILLISECONDS`.
#[derive(Clone, Debug, PartialEq)]
pub struct Slowdown {
    rank: usize,
    work: Work,
    pause: Duration,
}

impl FromStr for Slowdown {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let work = match parts[..] {
            [_, "compute", _] => Some(Work::Compute),
            [_, "data", _] => Some(Work::Data),
            _ => None,
        };
        let number = |part: usize| parts.get(part).and_then(|part| part.parse::<u32>().ok());
        match (number(0), work, number(2)) {
            (Some(rank), Some(work), Some(pause)) => {
                Ok(Slowdown { rank: rank as usize, work, pause: Duration::from_millis(pause.into()) })
            }
            _ => Err("give RANK:compute:MILLISECONDS or RANK:data:MILLISECONDS".into()),
        }
    }
}

impl Slowdown {
    /// Returns the sleep of `rank` for each of its shards, over both kinds of work.
    pub fn per_shard(slowdowns: &[Slowdown], rank: usize) -> Duration {
        [Work::Compute, Work::Data].map(|work| Slowdown::pause(slowdowns, rank, work)).into_iter().sum()
    }

    /// Returns the sleep of `rank` at this work; usually zero.
    pub(crate) fn pause(slowdowns: &[Slowdown], rank: usize, work: Work) -> Duration {
        let own = slowdowns.iter().filter(|slowdown| slowdown.rank == rank && slowdown.work == work);
        own.map(|slowdown| slowdown.pause).sum()
    }
}

/// A data set with artificially slow batches.
pub(crate) struct SlowData<D: ?Sized> {
    data: Arc<D>,
    /// Milliseconds of sleep for each batch.
    pause: Arc<AtomicU64>,
}

impl<D: ?Sized> SlowData<D> {
    /// Wraps `data`; `pause` is in milliseconds and may change.
    pub(crate) fn new(data: Arc<D>, pause: Arc<AtomicU64>) -> Self {
        SlowData { data, pause }
    }
}

impl<D: DataSet + ?Sized> DataSet for SlowData<D> {
    type Batch = D::Batch;

    fn samples(&self, part: Part) -> usize {
        self.data.samples(part)
    }

    fn batch(
        &self,
        part: Part,
        indices: &[usize],
        augment: Option<AugmentKey>,
    ) -> Result<D::Batch, DataError> {
        std::thread::sleep(Duration::from_millis(self.pause.load(Ordering::Relaxed)));
        self.data.batch(part, indices, augment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_is_slow_at_the_work_that_is_named() {
        let slowdowns = ["1:data:20", "2:compute:30"].map(|text| text.parse().unwrap());
        let pause = |rank, work| Slowdown::pause(&slowdowns, rank, work);
        assert_eq!((pause(0, Work::Data), pause(0, Work::Compute)), (Duration::ZERO, Duration::ZERO));
        assert_eq!(
            (pause(1, Work::Data), pause(1, Work::Compute)),
            (Duration::from_millis(20), Duration::ZERO)
        );
        assert_eq!(
            (pause(2, Work::Data), pause(2, Work::Compute)),
            (Duration::ZERO, Duration::from_millis(30))
        );
        for wrong in ["", "1:data", "1:sleep:2", "x:data:2", "1:data:-2", "1:data:2:3"] {
            assert!(wrong.parse::<Slowdown>().is_err(), "{wrong}");
        }
    }
}
