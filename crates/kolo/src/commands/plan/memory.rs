//! `kolo plan memory`: memory of each worker.

use clap::Args;
use kolo::Failure;
use kolo_plan::memory::{FOOTPRINTS, Footprint, SHARDINGS, WorkerMemory};
use kolo_program::output::{print, print_json};
use serde::Serialize;

use super::numbers::model_size;

/// Units of the table, of which the first that does not make the largest number smaller than 1 counts.
const UNITS: [(&str, f64); 4] = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1.0)];

/// Predict what each worker holds in memory, for each way to shard it.
///
/// Activations come on top. They depend on the batch, so measure them: `kolo train` writes peak_rss_bytes.
#[derive(Args)]
pub(crate) struct Memory {
    /// Parameters of the model
    #[arg(long, value_name = "NUMBER", value_parser = model_size)]
    parameters: f64,
    /// Numbers of workers
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 8, 64])]
    workers: Vec<u64>,
    /// State of each parameter: f32-sgd, f32-momentum, f32-adam or mixed-adam
    #[arg(long, default_value = "mixed-adam", value_parser = footprint)]
    footprint: &'static Footprint,
    /// The optimizer's state is in a file, as with `kolo train --offload`
    #[arg(long)]
    offload: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    workers: u64,
    /// Bytes of a worker for each kind of sharding.
    by_sharding: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    sharding: &'static str,
    bytes: f64,
    parts: WorkerMemory,
    /// Elements that a worker sends and receives in a step.
    volume: f64,
}

impl Memory {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.workers.contains(&0) {
            return Err(Failure::input("--workers 0: a job has at least one"));
        }
        let rows: Vec<Row> = self.workers.iter().map(|workers| self.row(*workers)).collect();
        if self.json {
            return print_json(&rows);
        }
        print(&self.table(&rows))
    }

    fn row(&self, workers: u64) -> Row {
        let entry = |sharding: &kolo_plan::memory::Sharding| {
            let parts = self.footprint.per_worker(self.parameters, workers as f64, *sharding);
            let is_in_file = self.offload && *sharding != kolo_plan::memory::Sharding::Host;
            let parts = if is_in_file { self.footprint.offloaded(parts) } else { parts };
            let volume = sharding.volume() * self.parameters;
            Entry { sharding: sharding.name(), bytes: parts.total(), parts, volume }
        };
        Row { workers, by_sharding: SHARDINGS.iter().map(entry).collect() }
    }

    fn table(&self, rows: &[Row]) -> String {
        let entries = rows.iter().flat_map(|row| &row.by_sharding);
        let most = entries.map(|entry| entry.bytes).fold(0.0, f64::max);
        let (unit, factor) = UNITS.into_iter().find(|(_, factor)| most >= *factor).unwrap_or(UNITS[3]);
        let mut text = format!(
            "{:.3e} parameters, {} ({}): {unit} of each worker by what is shared out; \
             activations on top, 13 MB of buckets where gradients are, three tensors where all is{}\n\n",
            self.parameters,
            self.footprint.name,
            self.footprint.about,
            if self.offload { "; the optimizer's state is in a file" } else { "" }
        );
        text += &format!("{:>10}", "workers");
        SHARDINGS.iter().for_each(|sharding| text += &format!("{:>14}", sharding.name()));
        for row in rows {
            text += &format!("\n{:>10}", row.workers);
            row.by_sharding.iter().for_each(|entry| text += &format!("{:>14.2}", entry.bytes / factor));
        }
        text + "\n"
    }
}

fn footprint(name: &str) -> Result<&'static Footprint, String> {
    FOOTPRINTS.iter().find(|footprint| footprint.name == name).ok_or_else(|| {
        let names: Vec<&str> = FOOTPRINTS.iter().map(|footprint| footprint.name).collect();
        format!("known are {}", names.join(", "))
    })
}
