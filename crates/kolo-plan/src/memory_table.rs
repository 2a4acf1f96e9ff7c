//! Memory of each worker, by number of workers and by what they divide: as numbers and as a table.

use serde::Serialize;

use crate::memory::{Footprint, SHARDINGS, Sharding};

/// Units of the table, of which the first that does not make the largest number smaller than 1 counts.
const UNITS: [(&str, f64); 4] = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1.0)];

/// A training whose memory is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Training {
    /// Parameters of the model.
    pub parameters: f64,
    /// Parameters of its largest tensor; `None` if that is not known.
    pub largest: Option<f64>,
    /// State of each parameter.
    pub footprint: &'static Footprint,
    /// Workers that hold each part of divided state; at least 1.
    pub redundancy: u64,
    /// True if the optimizer's state is in a file.
    pub offload: bool,
}

/// Memory with one number of workers.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Number of workers.
    pub workers: u64,
    /// Memory of a worker for each kind of sharding.
    pub by_sharding: Vec<Entry>,
}

/// Memory of a worker with one kind of sharding.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Name of the kind.
    pub sharding: &'static str,
    /// Sum of `parts`.
    pub bytes: f64,
    /// Memory of each part.
    pub parts: Parts,
    /// Bytes of buckets on their way, on top.
    pub bucket_bytes: f64,
    /// Bytes of gathered tensors, on top, if the largest tensor is known.
    pub tensor_bytes: f64,
    /// Bytes of all that `kolo train` holds on a CPU besides activations: `bytes`, `bucket_bytes`,
    /// `tensor_bytes`, and copies of values or gradients.
    pub held_bytes: f64,
    /// Bytes of the optimizer's state in a file.
    pub file_bytes: f64,
    /// Bytes that the worker which writes a checkpoint holds on top meanwhile.
    pub saving_bytes: f64,
    /// Elements that a worker sends and receives in a step.
    pub volume_elements: f64,
}

/// Bytes in memory.
#[derive(Clone, Debug, Serialize)]
pub struct Parts {
    /// Of parameters.
    pub parameters: f64,
    /// Of gradients.
    pub gradients: f64,
    /// Of the optimizer's state.
    pub optimizer: f64,
    /// Of buffers of the state in a file.
    pub file_buffers: f64,
}

impl Training {
    /// Returns the memory of each of so many workers, of which there is at least one.
    pub fn row(&self, workers: u64) -> Row {
        // Copies leave as many parts as a job without them and with fewer workers has.
        let owners = (workers as f64 / self.redundancy as f64).max(1.0);
        let entry = |sharding: &Sharding| {
            let memory = self.footprint.per_worker(self.parameters, owners, *sharding);
            let memory = if self.offload { self.footprint.offloaded(memory) } else { memory };
            let tensors = self.footprint.gathered(self.largest.unwrap_or(0.0), owners, *sharding);
            Entry {
                sharding: sharding.name(),
                bytes: memory.total(),
                parts: Parts {
                    parameters: memory.parameters,
                    gradients: memory.gradients,
                    optimizer: memory.optimizer,
                    file_buffers: memory.file_buffers,
                },
                bucket_bytes: memory.in_flight,
                tensor_bytes: tensors,
                held_bytes: memory.held() + tensors,
                file_bytes: memory.in_file,
                saving_bytes: self.footprint.saving(self.parameters, workers as f64, *sharding),
                volume_elements: sharding.volume() * self.parameters,
            }
        };
        Row { workers, by_sharding: self.shardings().map(entry).collect() }
    }

    /// Returns the kinds of sharding that `kolo train` permits with this redundancy and this place of the
    /// state.
    fn shardings(&self) -> impl Iterator<Item = &'static Sharding> {
        SHARDINGS
            .iter()
            .filter(|sharding| self.redundancy == 1 && !self.offload || **sharding != Sharding::Host)
    }

    /// Returns rows as a table for people.
    pub fn table(&self, rows: &[Row]) -> String {
        let entries = rows.iter().flat_map(|row| &row.by_sharding);
        let most = entries.map(|entry| entry.bytes).fold(0.0, f64::max);
        let (unit, factor) = UNITS.into_iter().find(|(_, factor)| most >= *factor).unwrap_or(UNITS[3]);
        let saving = self.footprint.saving(self.parameters, 1.0, Sharding::None) / factor;
        let mut text = format!(
            "{:.3e} parameters, {} ({}): {unit} of each worker by --shard.\nOn top come activations; with gradients and parameters \
             13 MB of buckets; with optimizer and gradients the values once more; with parameters three tensors; with nothing and \
             two workers that share memory the gradients once more.\nWhile it saves, the first worker takes {saving:.2} {unit} more \
             with nothing or host, and 13 MB with the others",
            self.parameters, self.footprint.name, self.footprint.about
        );
        if self.redundancy > 1 {
            text += &format!("; {} workers hold each part (--redundancy)", self.redundancy);
        }
        if self.offload {
            text += "; the optimizer's state is in a file";
        }
        text += &format!("\n\n{:>10}", "workers");
        self.shardings().for_each(|sharding| text += &format!("{:>14}", sharding.name()));
        for row in rows {
            text += &format!("\n{:>10}", row.workers);
            row.by_sharding.iter().for_each(|entry| text += &format!("{:>14.2}", entry.bytes / factor));
        }
        text + "\n"
    }
}
