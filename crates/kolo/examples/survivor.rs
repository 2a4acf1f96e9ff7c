//! A small job that goes on when its workers die: `kolo chaos -- target/debug/examples/survivor 200`, or
//! `kolo launch --nproc 3 -- target/debug/examples/survivor 2000`, and `kill -9` of any of its workers.
//!
//! A linear model learns a line, for as many steps as the argument says, each of some milliseconds.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor, TensorData};
use kolo::{Config, Ddp, Group, Loss, Rank, Settings, optimizer};
use kolo_elastic::Member;

/// Samples of each shard.
const SAMPLES: usize = 8;

fn main() -> ExitCode {
    kolo::main(run)
}

fn run() -> Result<(), Box<dyn Error + Send + Sync>> {
    let text = std::env::args().nth(1).unwrap_or_else(|| "200".into());
    let total: u64 =
        text.parse().map_err(|_| kolo::Failure::input(format!("{text}: give a number of steps")))?;
    let device = Device::flex().autodiff();
    device.seed(0);
    let model = LinearConfig::new(1, 1).init(&device);
    let config = Config { shards: Some(4), ..Config::default() };
    let sgd = optimizer::named("sgd", &Settings::default().with("momentum", 0.9))?;
    let mut ddp = match Member::from_env()? {
        Some(member) => Ddp::elastic(member, model, &config, sgd)?,
        None => Ddp::new(Group::from_env()?, model, &config, sgd)?,
    };
    loop {
        let step = ddp.with_replica(|replica| replica.steps());
        if step >= total {
            return Ok(());
        }
        match train_step(&mut ddp, step, &device) {
            Ok(loss) if ddp.rank() == Rank(0) && step % 100 == 0 => println!("step {step}: loss {loss}"),
            Ok(_) => {}
            // The others go on where another worker has died; any other error is this worker's.
            Err(error) => ddp.recover(error)?,
        }
    }
}

fn train_step(ddp: &mut Ddp<Linear>, step: u64, device: &Device) -> Result<f64, kolo::Error> {
    for shard in ddp.shards() {
        let first = (step as usize * 4 + shard) * SAMPLES;
        let points: Vec<f32> = (first..first + SAMPLES).map(|i| i as f32 * 0.618 % 2.0 - 1.0).collect();
        let x = Tensor::<2>::from_data(TensorData::new(points, [SAMPLES, 1]), device);
        let y = x.clone() * 3.0 + 1.0;
        let loss = MseLoss::new().forward(ddp.model().forward(x), y, Reduction::Mean);
        ddp.backward(Loss::mean(loss, SAMPLES))?;
    }
    std::thread::sleep(Duration::from_millis(5));
    Ok(ddp.step(0.05)?.loss)
}
