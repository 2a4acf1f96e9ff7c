//! Check before training that a worker's addresses (`ulimit -v`) suffice for its state. Otherwise an
//! allocation ends the process, with words that help nobody.

use kolo_comm::schedule::words::counted;
use kolo_optim::{Layout, Optimizer, state_names};
use kolo_reduction::Error;
use kolo_sync::{Config, Sharding};
use kolo_values::address_space::{limit, resident};

/// Bytes of one value.
const BYTES: u64 = size_of::<f32>() as u64;

/// State of a model in training.
#[derive(Clone, Copy)]
struct State {
    /// Values of the model.
    values: u64,
    /// Arrays of the optimizer's state in memory, each as long as the model.
    arrays: u64,
    workers: u64,
    /// Owners of each part, where state is divided.
    redundancy: u64,
}

/// Returns an error if this worker may not have as many addresses as a model of so many values needs at
/// least, with the stage that needs fewer.
///
/// # Errors
///
/// [`Error::FewAddresses`].
pub(super) fn check(
    values: Option<usize>,
    config: &Config,
    optimizer: &mut dyn Optimizer,
    workers: usize,
) -> Result<(), Error> {
    let (Some(values), Some(limit)) = (values, limit()) else { return Ok(()) };
    optimizer.init(&Layout::new(Vec::new()));
    let arrays = if config.offload.is_some() { 0 } else { state_names(optimizer).len() as u64 };
    let redundancy = config.redundancy.max(1) as u64;
    let state = State { values: values as u64, arrays, workers: workers as u64, redundancy };
    state.check(config.sharding, limit, resident())
}

impl State {
    /// Bytes of addresses of values, gradients and the optimizer's state. A worker needs more for all else.
    fn needed(self, sharding: Sharding) -> u64 {
        let State { values, arrays, workers, redundancy } = self;
        let part = (values * redundancy.min(workers)).div_ceil(workers);
        BYTES
            * match sharding {
                Sharding::Nothing => values * (2 + arrays),
                // The next values lie beside the current ones.
                Sharding::Host => values * (3 + arrays),
                Sharding::Optimizer => values * 2 + part * arrays,
                // Flat memory has its addresses on every worker, also of values that are elsewhere.
                Sharding::Gradients | Sharding::Parameters => values + part * (1 + arrays),
            }
    }

    fn check(self, sharding: Sharding, limit: u64, used: u64) -> Result<(), Error> {
        let fits = |sharding| used + self.needed(sharding) <= limit;
        if fits(sharding) {
            return Ok(());
        }
        let smallest = Sharding::Parameters;
        let needed = self.needed(smallest);
        let remedy = match sharding != smallest && self.workers > 1 && fits(smallest) {
            true => format!("with sharding `{}` (--shard) they take {}", smallest.name(), megabytes(needed)),
            false => {
                let workers = counted(self.workers as usize, "worker");
                format!("no sharding among {workers} takes less than {}; raise the limit", megabytes(needed))
            }
        };
        Err(Error::FewAddresses {
            values: self.values,
            needed: megabytes(self.needed(sharding)),
            limit: megabytes(limit),
            used: megabytes(used),
            remedy,
        })
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: State = State { values: 100_000_000, arrays: 2, workers: 4, redundancy: 1 };

    #[test]
    fn state_needs_the_addresses_of_its_arrays() {
        let of = |state: State| Sharding::ALL.map(|(_, sharding)| state.needed(sharding) / 100_000_000);
        // Nothing, optimizer, gradients, parameters, host; in bytes a value.
        assert_eq!(of(STATE), [16, 10, 7, 7, 20]);
        assert_eq!(of(State { redundancy: 2, ..STATE }), [16, 12, 10, 10, 20]);
        assert_eq!(of(State { arrays: 0, workers: 1, redundancy: 3, ..STATE }), [8, 8, 8, 8, 12]);
    }

    #[test]
    fn what_would_fit_is_named() {
        let of = |sharding, limit| STATE.check(sharding, limit, 50_000_000).map_err(|e| e.to_string());
        assert_eq!(of(Sharding::Nothing, 1_650_000_000), Ok(()));
        assert_eq!(
            of(Sharding::Nothing, 1_000_000_000),
            Err("values, gradients and optimizer state of a model of 100000000 values take 1600 MB in a worker, which may have \
                 1000 MB of addresses (ulimit -v) and uses 50 MB; with sharding `parameters` (--shard) they take 700 MB"
                .into())
        );
        let none = "no sharding among 4 workers takes less than 700 MB; raise the limit";
        for sharding in [Sharding::Optimizer, Sharding::Parameters] {
            assert!(of(sharding, 749_999_999).unwrap_err().ends_with(none));
        }
        assert_eq!(of(Sharding::Parameters, 750_000_000), Ok(()));
    }
}
