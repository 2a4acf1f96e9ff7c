//! `kolo plan memory`: memory of each worker.

use clap::Args;
use kolo::Failure;
use kolo_models::language_model_size;
use kolo_plan::memory::{FOOTPRINTS, Footprint, SHARDINGS, Sharding};
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
    #[arg(long, value_name = "NUMBER", value_parser = model_size, required_unless_present = "model")]
    parameters: Option<f64>,
    /// Language model of `kolo train --model`, as gpt2:small, with its vectors of --vocabulary tokens
    #[arg(long, value_name = "NAME", conflicts_with = "parameters")]
    model: Option<String>,
    /// Tokens of that model [default: 257, bytes]
    #[arg(long, value_name = "TOKENS", requires = "model")]
    vocabulary: Option<usize>,
    /// Numbers of workers
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 8, 64])]
    workers: Vec<u64>,
    /// State of each parameter: f32-sgd, f32-momentum, f32-adam or mixed-adam
    #[arg(long, default_value = "mixed-adam", value_parser = footprint)]
    footprint: &'static Footprint,
    /// Workers that hold each part of divided state, as with `kolo train --redundancy`
    #[arg(long, value_name = "COPIES", default_value_t = 1)]
    redundancy: u64,
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
    /// Memory of a worker for each kind of sharding.
    by_sharding: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    sharding: &'static str,
    /// Sum of `parts`.
    bytes: f64,
    parts: Parts,
    /// Bytes of buckets on their way, on top.
    bucket_bytes: f64,
    /// Bytes of the optimizer's state in a file.
    file_bytes: f64,
    /// Elements that a worker sends and receives in a step.
    volume_elements: f64,
}

/// Bytes in memory.
#[derive(Serialize)]
struct Parts {
    parameters: f64,
    gradients: f64,
    optimizer: f64,
    file_buffers: f64,
}

impl Memory {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.workers.contains(&0) {
            return Err(Failure::input("--workers 0: a job has at least one"));
        }
        if self.redundancy == 0 {
            return Err(Failure::input(
                "--redundancy 0: one worker at least holds each part; give 1 or more",
            ));
        }
        let parameters = self.model_parameters()?;
        let rows: Vec<Row> = self.workers.iter().map(|workers| self.row(parameters, *workers)).collect();
        if self.json {
            return print_json(&rows);
        }
        print(&self.table(parameters, &rows))
    }

    fn model_parameters(&self) -> Result<f64, Failure> {
        let Some(model) = &self.model else { return Ok(self.parameters.unwrap_or_default()) };
        Ok(language_model_size(model, self.vocabulary.unwrap_or(kolo_data::BYTE_VOCABULARY))? as f64)
    }

    fn row(&self, parameters: f64, workers: u64) -> Row {
        // Copies leave as many parts as a job without them and with fewer workers has.
        let owners = (workers as f64 / self.redundancy as f64).max(1.0);
        let entry = |sharding: &Sharding| {
            let memory = self.footprint.per_worker(parameters, owners, *sharding);
            let memory = if self.offload { self.footprint.offloaded(memory) } else { memory };
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
                file_bytes: memory.in_file,
                volume_elements: sharding.volume() * parameters,
            }
        };
        Row { workers, by_sharding: self.shardings().map(entry).collect() }
    }

    /// Returns the kinds of sharding that `kolo train` permits with this redundancy.
    fn shardings(&self) -> impl Iterator<Item = &'static Sharding> {
        SHARDINGS.iter().filter(|sharding| self.redundancy == 1 || **sharding != Sharding::Parameters)
    }

    fn table(&self, parameters: f64, rows: &[Row]) -> String {
        let entries = rows.iter().flat_map(|row| &row.by_sharding);
        let most = entries.map(|entry| entry.bytes).fold(0.0, f64::max);
        let (unit, factor) = UNITS.into_iter().find(|(_, factor)| most >= *factor).unwrap_or(UNITS[3]);
        let mut text = format!(
            "{parameters:.3e} parameters, {} ({}): {unit} of each worker by --shard; \
             activations on top, 13 MB of buckets with gradients, three tensors with parameters{}{}\n\n",
            self.footprint.name,
            self.footprint.about,
            if self.redundancy > 1 {
                format!("; {} workers hold each part (--redundancy)", self.redundancy)
            } else {
                String::new()
            },
            if self.offload { "; the optimizer's state is in a file" } else { "" }
        );
        text += &format!("{:>10}", "workers");
        self.shardings().for_each(|sharding| text += &format!("{:>14}", sharding.name()));
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
