//! Processor time of a training step of GPT-2 (forward, backward, AdamW) with one worker, for
//! `bench/peers/gpt2.py`; `cargo run --release -p kolo-models --example gpt2_step`.
//!
//! It reads lines `LAYERS WIDTH VOCABULARY BATCH TIME SECONDS` from standard input, and answers each with the
//! median of the steps that fit into the time, in milliseconds.
//!
//! `gpt2_step --shard nothing|optimizer|gradients|parameters` is one of several workers, for
//! `bench/peers/gpt2_processes.py`. Its lines end with a number of steps instead of seconds, and it answers
//! with the median of their wall-clock times.
//!
//! `gpt2_step FOLDER BATCH TIME OUT` writes loss and gradients of the weights in a folder for transformers:
//! `f32`, little-endian; the loss, then each parameter's gradient in the module's order, which it prints.

use std::path::Path;
use std::time::{Duration, Instant};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor};
use kolo_burn::{Ddp, DropoutKey};
use kolo_burn_train::TrainingContext;
use kolo_comm::Group;
use kolo_data::Batch;
use kolo_ddp::{Config, Sharding, optimizer};
use kolo_models::{Gpt2, Gpt2Config};
use kolo_weights::WeightsFile;
use rustix::time::{ClockId, clock_gettime};

/// Allocator of the program `kolo`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ARGUMENTS: &str = "arguments: none, --shard SHARDING, or FOLDER BATCH TIME OUT";

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => answer_lines(None),
        [shard, how] if shard == "--shard" => {
            let (_, sharding) = Sharding::ALL.iter().find(|(name, _)| name == how).ok_or(ARGUMENTS)?;
            answer_lines(Some(*sharding))
        }
        [folder, batch, time, out] => write_gradients(Path::new(folder), batch.parse()?, time.parse()?, out),
        _ => Err(ARGUMENTS.into()),
    }
}

/// Makes windows of a text that looks random, each with the token that follows.
fn windows(vocabulary: usize, batch: usize, time: usize) -> Batch {
    let token = |i: usize| ((i * 7_919 + i / 3 * 104_729) % vocabulary) as f32;
    let images = (0..batch * (time + 1)).map(token).collect();
    Batch { images, labels: vec![0; batch], shape: [batch, 1, 1, time + 1] }
}

/// Calls `with` with the place in a training without dropout.
fn context<R>(device: &Device, with: impl FnOnce(&TrainingContext<'_>) -> R) -> R {
    let dropout = &DropoutKey { seed: 0, epoch: 0, step: 0, shard: 0 };
    with(&TrainingContext { dropout, cross_shard: None, device, label_smoothing: 0.0, mixing: None })
}

fn write_gradients(folder: &Path, batch: usize, time: usize, out: &str) -> Result<(), Failure> {
    let device = Device::flex().autodiff();
    let config = Gpt2Config::of(&WeightsFile::read(folder)?, folder)?;
    let model: Gpt2 = WeightsFile::read(folder)?.into_module(config.init(0, &device))?;
    let batch = windows(config.vocabulary, batch, time);
    let loss = context(&device, |context| model.loss(batch, context)).into_mean();
    let mut found = vec![loss.clone().into_scalar::<f32>()];
    let mut read = ReadGradients { gradients: loss.backward(), path: Vec::new(), found: &mut found };
    model.visit(&mut read);
    Ok(std::fs::write(out, found.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())?)
}

struct ReadGradients<'a> {
    gradients: Gradients,
    path: Vec<String>,
    found: &'a mut Vec<f32>,
}

impl ModuleVisitor for ReadGradients<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        println!("{}", self.path.join("."));
        let gradient = param.grad(&self.gradients).expect("every parameter is used").into_data();
        self.found.extend(gradient.iter::<f32>());
    }
}

/// Answers lines; with `sharding` as one of several workers.
fn answer_lines(sharding: Option<Sharding>) -> Result<(), Failure> {
    let mut trainee: Option<Trainee> = None;
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        let &[ref shape @ .., seconds] = &words?[..] else { return Err("an empty line".into()) };
        let shape: Vec<usize> = shape.iter().map(|number| *number as usize).collect();
        let &[layers, width, vocabulary, batch, time] = &shape[..] else {
            let words = "LAYERS WIDTH VOCABULARY BATCH TIME SECONDS-OR-STEPS";
            return Err(format!("{line:?}: a line is {words}").into());
        };
        if trainee.as_ref().is_none_or(|trainee| trainee.shape != shape) {
            drop(trainee.take());
            let batch = windows(vocabulary, batch, time);
            let config = Gpt2Config {
                layers,
                width,
                positions: 1024,
                vocabulary,
                dropout: 0.0,
                activation_checkpointing: false,
            };
            trainee = Some(Trainee::new(shape, &config, batch, sharding)?);
        }
        if let Some(trainee) = &mut trainee {
            let median = match sharding {
                None => trainee.median(Duration::from_secs_f64(seconds))?,
                Some(_) => trainee.median_of(seconds as usize)?,
            };
            println!("{median}");
        }
    }
    Ok(())
}

struct Trainee {
    shape: Vec<usize>,
    ddp: Ddp<Gpt2>,
    device: Device,
    batch: Batch,
}

impl Trainee {
    /// Makes the model, and takes two steps that warm up.
    fn new(
        shape: Vec<usize>,
        config: &Gpt2Config,
        batch: Batch,
        sharding: Option<Sharding>,
    ) -> Result<Self, Failure> {
        let device = Device::flex().autodiff();
        let settings = [("weight_decay".into(), 0.1.into())].into_iter().collect();
        let adamw = optimizer::named("adamw", &settings)?;
        let group = if sharding.is_some() { Group::from_env()? } else { Group::alone() };
        let settings = Config { sharding: sharding.unwrap_or_default(), ..Config::default() };
        let ddp = Ddp::new(group, config.init(0, &device), &settings, adamw)?;
        let mut trainee = Trainee { shape, ddp, device, batch };
        for _ in 0..2 {
            trainee.step()?;
        }
        Ok(trainee)
    }

    fn step(&mut self) -> Result<f64, Failure> {
        let start = processor_seconds();
        let batch = self.batch.clone();
        let loss = context(&self.device, |context| self.ddp.model().loss(batch, context));
        self.ddp.backward(loss)?;
        self.ddp.step(1e-4)?;
        Ok(1e3 * (processor_seconds() - start))
    }

    /// Returns the median of the steps that fit into the time, at least one, in milliseconds.
    fn median(&mut self, duration: Duration) -> Result<f64, Failure> {
        let end = Instant::now() + duration;
        let mut times = vec![self.step()?];
        while Instant::now() < end {
            times.push(self.step()?);
        }
        Ok(middle(times))
    }

    /// Returns the median of so many steps by the clock, which all workers take together, in milliseconds.
    fn median_of(&mut self, steps: usize) -> Result<f64, Failure> {
        let mut times = Vec::new();
        for _ in 0..steps.max(1) {
            let start = Instant::now();
            self.step()?;
            times.push(1e3 * start.elapsed().as_secs_f64());
        }
        Ok(middle(times))
    }
}

fn middle(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Returns the processor time of all threads.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
