//! A Burn model that learns the sine, on one worker and on two: `cargo run -p kolo-burn --example
//! two_workers`.
//!
//! The workers are threads here. Processes of their own, started by `kolo launch`, torchrun or mpirun, would
//! each take `Group::from_env()?` for their group.

use burn::module::Module;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::tanh;
use burn::tensor::{Device, Tensor, TensorData};
use kolo_burn::{Ddp, Loss};
use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::{Config, Error};

const SAMPLES: usize = 32;

#[derive(Module, Debug)]
struct Net {
    hidden: Linear,
    out: Linear,
}

impl Net {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.out.forward(tanh(self.hidden.forward(x)))
    }
}

/// Trains one worker's replica and returns the loss of every step.
fn train(group: Group, model: Net, device: &Device) -> Result<Vec<f64>, Error> {
    // The job: every step has 2 shards, whoever works on them.
    let config = Config { shards: Some(2), ..Config::default() };
    let sgd = optimizer::named("sgd", &Settings::default().with("momentum", 0.9))?;
    let mut ddp = Ddp::new(group, model, &config, sgd)?;
    let mut losses = Vec::new();
    for step in 0..200 {
        for shard in ddp.shards() {
            let points = (0..SAMPLES).map(|i| ((step * 2 + shard) * SAMPLES + i) as f32 * 0.618 % 6.0 - 3.0);
            let x = Tensor::from_data(TensorData::new(points.collect::<Vec<f32>>(), [SAMPLES, 1]), device);
            let loss = MseLoss::new().forward(ddp.model().forward(x.clone()), x.sin(), Reduction::Mean);
            ddp.backward(Loss::mean(loss, SAMPLES))?;
        }
        losses.push(ddp.step(0.05)?.loss);
    }
    Ok(losses)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::flex().autodiff();
    let model =
        Net { hidden: LinearConfig::new(1, 16).init(&device), out: LinearConfig::new(16, 1).init(&device) };
    let alone = train(Group::alone(), model.clone(), &device)?;
    for (step, loss) in alone.iter().enumerate().step_by(50) {
        println!("step {step:3}: loss {loss:.6}");
    }
    for losses in threads::spawn(2, |group| train(group, model.clone(), &device))? {
        assert_eq!(losses?, alone, "two workers have the losses of one, to the last bit");
    }
    println!("two workers: the same losses, to the last bit");
    Ok(())
}
