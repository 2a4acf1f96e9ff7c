//! Reads samples to find one that cannot be read.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::dataset::DataSet;
use crate::error::DataError;
use crate::part::Part;

/// Samples of a part that are read where the data set has read its files when it was opened.
const TRIED: usize = 16;

/// Reads samples of all parts in their order with so many threads, as many as there is time for: all if each
/// is a file of its own, else some of each part. Returns their number, and that of those to be read.
///
/// # Errors
///
/// The first sample that cannot be read.
pub fn read_samples<D: DataSet + ?Sized>(
    data: &D,
    threads: usize,
    until: Instant,
) -> Result<(usize, usize), DataError> {
    let most = if data.sample_name(Part::Train, 0).is_some() { usize::MAX } else { TRIED };
    let indices = |part| (0..data.samples(part).min(most)).map(move |index| (part, index));
    let all: Vec<(Part, usize)> = Part::ALL.into_iter().flat_map(indices).collect();
    let (next, first_bad) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let of_thread = || {
        let mut read = 0;
        while Instant::now() < until && first_bad.load(Ordering::Relaxed) == usize::MAX {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(part, index)) = all.get(at) else { break };
            let batch = catch_unwind(AssertUnwindSafe(|| data.batch(part, &[index], None).map(drop)));
            let (part, index) = data.origin(part, index);
            let failed = || Err(DataError::sample(part, index, "the program failed while it read this"));
            if let Err(error) = batch.unwrap_or_else(|_| failed()) {
                first_bad.fetch_min(at, Ordering::Relaxed);
                return (read, Some((at, error)));
            }
            read += 1;
        }
        (read, None)
    };
    let found: Vec<(usize, Option<(usize, DataError)>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(of_thread)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let read = found.iter().map(|(read, _)| read).sum();
    let bad = found.into_iter().filter_map(|(_, bad)| bad).min_by_key(|(at, _)| *at);
    bad.map_or(Ok((read, all.len())), |(_, error)| Err(error))
}
