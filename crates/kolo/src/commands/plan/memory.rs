//! `kolo plan memory`: memory of each worker.

use clap::{ArgGroup, Args};
use kolo::Failure;
use kolo_models as models;
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
    /// Model of `kolo train --model`, as gpt2:small with its vectors of --vocabulary tokens, or resnet18 for
    /// ImageNet. Those that torchvision does not have are for Fashion-MNIST
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Parameters of its largest tensor, of which --shard parameters has copies; --model knows it
    #[arg(long, value_name = "NUMBER", value_parser = model_size, conflicts_with = "model")]
    largest: Option<f64>,
    /// Tokens of a language model [default: 257, bytes]
    #[arg(long, value_name = "TOKENS", requires = "model")]
    vocabulary: Option<usize>,
    /// Numbers of workers
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 8, 64])]
    workers: Vec<u64>,
    /// State of each parameter: f32-sgd, f32-momentum, f32-adam or mixed-adam [default: that of `kolo train`:
    /// f32-adam for a language model, else f32-momentum]
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
        let (redundancy, offload) = (self.redundancy, self.offload);
        if ![1, 2].contains(&redundancy) {
            return Err(Failure::input(format!(
                "--redundancy {redundancy}: one worker or two hold each part; give 1 or 2"
            )));
        }
        let model = self.model.as_ref().map(|name| models::find(name)).transpose()?;
        let reads_text = model.is_some_and(|model| model.traits().reads_text);
        let usual = if reads_text { "f32-adam" } else { "f32-momentum" };
        let footprint = self.footprint.map_or_else(|| footprint(usual), Ok).map_err(Failure::input)?;
        let (parameters, largest) = match model {
            Some(model) => {
                let size = model.size(self.vocabulary)?;
                (size.all as f64, Some(size.largest as f64))
            }
            None => (self.parameters.unwrap_or_default(), self.largest),
        };
        let training = Training { parameters, largest, footprint, redundancy, offload };
        let rows: Vec<Row> = self.workers.iter().map(|workers| training.row(*workers)).collect();
        if self.json {
            return print_json(&rows);
        }
        print(&training.table(&rows))
    }
}

fn footprint(name: &str) -> Result<&'static Footprint, String> {
    FOOTPRINTS.iter().find(|footprint| footprint.name == name).ok_or_else(|| {
        let names: Vec<&str> = FOOTPRINTS.iter().map(|footprint| footprint.name).collect();
        format!("known are {}", names.join(", "))
    })
}
