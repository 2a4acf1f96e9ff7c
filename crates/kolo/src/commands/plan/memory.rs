//! `kolo plan memory`: memory of each worker.

use clap::{ArgGroup, Args};
use kolo::Failure;
use kolo_models::language_model_size;
use kolo_plan::memory::{FOOTPRINTS, Footprint};
use kolo_plan::memory_table::{Row, Training};
use kolo_program::output::{print, print_json};

use super::numbers::model_size;

/// Predict what each worker holds in memory, for each way to shard it.
///
/// Activations come on top. They depend on the batch, so measure them: `kolo train` writes peak_rss_bytes.
#[derive(Args)]
#[command(group(ArgGroup::new("size").args(["parameters", "model"]).required(true)))]
pub(crate) struct Memory {
    /// Parameters of the model; or give --model
    #[arg(long, value_name = "NUMBER", value_parser = model_size)]
    parameters: Option<f64>,
    /// Language model of `kolo train --model`, as gpt2:small, with its vectors of --vocabulary tokens
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Parameters of its largest tensor, of which --shard parameters has copies; --model knows it
    #[arg(long, value_name = "NUMBER", value_parser = model_size, conflicts_with = "model")]
    largest: Option<f64>,
    /// Tokens of that model [default: 257, bytes]
    #[arg(long, value_name = "TOKENS", requires = "model")]
    vocabulary: Option<usize>,
    /// Numbers of workers
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 8, 64])]
    workers: Vec<u64>,
    /// State of each parameter: f32-sgd, f32-momentum, f32-adam or mixed-adam [default: that of `kolo train`:
    /// f32-adam with --model, else f32-momentum]
    #[arg(long, value_parser = footprint)]
    footprint: Option<&'static Footprint>,
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

impl Memory {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.workers.contains(&0) {
            return Err(Failure::input("--workers 0: a job has at least one"));
        }
        if ![1, 2].contains(&self.redundancy) {
            let given = self.redundancy;
            return Err(Failure::input(format!(
                "--redundancy {given}: one worker or two hold each part; give 1 or 2"
            )));
        }
        let usual = if self.model.is_some() { "f32-adam" } else { "f32-momentum" };
        let footprint = self.footprint.map_or_else(|| footprint(usual), Ok).map_err(Failure::input)?;
        let (redundancy, offload) = (self.redundancy, self.offload);
        let (parameters, largest) = self.model_sizes()?;
        let training = Training { parameters, largest, footprint, redundancy, offload };
        let rows: Vec<Row> = self.workers.iter().map(|workers| training.row(*workers)).collect();
        if self.json {
            return print_json(&rows);
        }
        print(&training.table(&rows))
    }

    /// Parameters of the model and of its largest tensor, if that is known.
    fn model_sizes(&self) -> Result<(f64, Option<f64>), Failure> {
        let Some(model) = &self.model else { return Ok((self.parameters.unwrap_or_default(), self.largest)) };
        let size = language_model_size(model, self.vocabulary.unwrap_or(kolo_data::BYTE_VOCABULARY))?;
        Ok((size.all as f64, Some(size.largest as f64)))
    }
}

fn footprint(name: &str) -> Result<&'static Footprint, String> {
    FOOTPRINTS.iter().find(|footprint| footprint.name == name).ok_or_else(|| {
        let names: Vec<&str> = FOOTPRINTS.iter().map(|footprint| footprint.name).collect();
        format!("known are {}", names.join(", "))
    })
}
