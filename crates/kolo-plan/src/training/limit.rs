//! Determines what limits a training. Which of three limits binds decides what helps.

use serde::Serialize;

/// Source of a training's data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DataSource {
    /// Bytes read in the whole training, over all epochs.
    pub bytes: f64,
    /// Bytes per second that one worker reads.
    pub per_worker: f64,
    /// Maximum bytes per second that all workers read together; infinite if each has its own disk.
    pub together: f64,
}

/// Demands of a training and the resources it has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes that a worker needs.
    pub memory_needed: f64,
    /// Bytes that a worker has.
    pub memory: f64,
    /// Seconds of computation and communication.
    pub seconds: f64,
    /// Number of workers.
    pub workers: f64,
    /// Source of the data.
    pub data: DataSource,
}

/// Limit that binds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The model does not fit. Sharding helps; no number of workers that each hold all of it does.
    Memory {
        /// Number of missing bytes.
        missing: f64,
    },
    /// The workers wait for data. More workers help only if each reads independently.
    Data {
        /// Seconds of reading.
        seconds: f64,
    },
    /// The workers compute all the time. More workers help.
    Compute,
}

impl Limits {
    /// Returns the limit that binds.
    pub fn binding(&self) -> Limit {
        if self.memory_needed > self.memory {
            return Limit::Memory { missing: self.memory_needed - self.memory };
        }
        let rate = (self.workers * self.data.per_worker).min(self.data.together);
        let seconds = self.data.bytes / rate;
        if seconds > self.seconds { Limit::Data { seconds } } else { Limit::Compute }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MIXED_ADAM, Sharding};
    use crate::training::compute::training_flops;

    const GB: f64 = 1e9;

    /// One GPU at 40 % of 312 TFLOP/s with 80 GB.
    fn binding(parameters: f64, tokens: f64, bytes: f64, per_worker: f64) -> Limit {
        let memory_needed = MIXED_ADAM.per_worker(parameters, 1.0, Sharding::None).total();
        let seconds = training_flops(parameters, tokens) / (0.4 * 312e12);
        let data = DataSource { bytes, per_worker, together: f64::INFINITY };
        Limits { memory_needed, memory: 80.0 * GB, seconds, workers: 1.0, data }.binding()
    }

    /// Exercise 15.1.1 of "Data-Parallel Deep Learning". Arithmetic limits (a) a small model that is due
    /// tomorrow and (c) many epochs over 20 TB of images (100 kB and 196 patches each): more workers help,
    /// unless the disk is slow. (b) 175 billion parameters do not fit.
    #[test]
    fn each_of_the_three_pressures_binds_somewhere() {
        let disk = 0.5 * GB;
        assert_eq!(binding(1e9, 1e10, 4e10, disk), Limit::Compute);
        assert!(matches!(binding(175e9, 3e11, 12e11, disk), Limit::Memory { missing } if missing > 2e12));
        let images = |epochs: f64, disk| binding(3e9, epochs * 2e8 * 196.0, epochs * 20e12, disk);
        assert_eq!(images(10.0, disk), Limit::Compute);
        assert!(matches!(images(10.0, 2e6), Limit::Data { seconds } if seconds == 1e8));
    }
}
