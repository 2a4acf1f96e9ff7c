//! Two networks, each with its own optimizer, in one loop: a GAN learns eight normal distributions on a ring.
//!
//! `target/release/kolo launch --nproc 3 -- target/release/examples/gan` prints the same hash for any number of
//! workers, also if you `kill -9` one of them. An argument says how many steps to train.

use std::error::Error;
use std::f32::consts::SQRT_2;
use std::process::ExitCode;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::{relu, softplus};
use burn::tensor::{Device, Tensor, TensorData};
use kolo::ddp::key::Key;
use kolo::elastic::Member;
use kolo::optimizer::Adam;
use kolo::{Config, Ddp, Failure, Group, Loss, Rank};

const SAMPLES: usize = 64; // of each shard
const NOISE: usize = 4;
#[rustfmt::skip]
const CENTERS: [[f32; 2]; 8] = [[2., 0.], [SQRT_2, SQRT_2], [0., 2.], [-SQRT_2, SQRT_2],
    [-2., 0.], [-SQRT_2, -SQRT_2], [0., -2.], [SQRT_2, -SQRT_2]];

#[derive(Module, Debug)]
struct Mlp {
    layers: [Linear; 3],
}

impl Mlp {
    fn new(sizes: [usize; 4], device: &Device) -> Self {
        Mlp { layers: [0, 1, 2].map(|n| LinearConfig::new(sizes[n], sizes[n + 1]).init(device)) }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let [first, second, last] = &self.layers;
        last.forward(relu(second.forward(relu(first.forward(x)))))
    }
}

/// Both networks: one job trains them, and one checkpoint has them.
#[derive(Module, Debug)]
pub(crate) struct Gan {
    critic: Mlp,
    generator: Mlp,
}

impl Gan {
    pub(crate) fn new(device: &Device) -> Self {
        Gan { critic: Mlp::new([2, 64, 64, 1], device), generator: Mlp::new([NOISE, 64, 64, 2], device) }
    }

    /// The loss of the network whose turn it is. Step and shard alone decide the random numbers.
    pub(crate) fn loss(&self, step: u64, shard: usize, device: &Device) -> Loss {
        let key = Key::new(0).with(step).with(shard as u64);
        let made = self.generator.forward(normal::<NOISE>(key, SAMPLES, device));
        let loss = if step.is_multiple_of(2) {
            let center = |i: usize| CENTERS[key.with_str("center").with(i as u64).below(CENTERS.len())];
            let centers = TensorData::new((0..SAMPLES).flat_map(center).collect(), [SAMPLES, 2]);
            let real = Tensor::from_data(centers, device) + normal::<2>(key.with(0), SAMPLES, device) * 0.1;
            softplus(-self.critic.forward(real), 1.0) + softplus(self.critic.forward(made.detach()), 1.0)
        } else {
            softplus(-self.critic.clone().no_grad().forward(made), 1.0)
        };
        Loss::mean(loss.mean(), SAMPLES)
    }

    /// Number of 1000 points from the generator that are near each of the distributions.
    fn hits(&self, device: &Device) -> [usize; 8] {
        let made = self.generator.forward(normal::<NOISE>(Key::new(1), 1000, device)).into_data();
        let made: Vec<f32> = made.iter().collect();
        CENTERS.map(|[x, y]| made.chunks(2).filter(|p| (p[0] - x).hypot(p[1] - y) < 0.4).count())
    }
}

fn normal<const N: usize>(key: Key, samples: usize, device: &Device) -> Tensor<2> {
    let values: Vec<f32> = (0..samples * N).map(|i| key.with(i as u64).normal() as f32).collect();
    Tensor::from_data(TensorData::new(values, [samples, N]), device)
}

fn main() -> ExitCode {
    kolo::main(run)
}

fn run() -> Result<(), Box<dyn Error + Send + Sync>> {
    let given = std::env::args().nth(1).unwrap_or("6000".into());
    let steps = given.parse().map_err(|_| Failure::input(format!("{given}: give a number of steps")))?;
    let device = Device::flex().autodiff();
    device.seed(0);
    // Step 0 trains the critic, step 1 the generator, step 2 the critic, …
    let turns = vec![vec!["critic.*".into()], vec!["generator.*".into()]];
    let config = Config { shards: Some(4), turns, ..Config::default() };
    let adam = Adam { beta1: 0.5, ..Adam::default() }.build()?;
    let mut ddp = match Member::from_env()? {
        Some(member) => Ddp::elastic(member, Gan::new(&device), &config, adam)?,
        None => Ddp::new(Group::from_env()?, Gan::new(&device), &config, adam)?,
    };
    loop {
        match advance(&mut ddp, steps, &device) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => ddp.recover(error)?, // after another worker's death
        }
    }
}

/// The next step, or the end of the job. Returns true if there is more to do.
fn advance(ddp: &mut Ddp<Gan>, steps: u64, device: &Device) -> Result<bool, kolo::Error> {
    let step = ddp.steps();
    if step == steps {
        let hash = ddp.weights_sha256()?;
        ddp.group().barrier()?; // nobody goes while another may still need its gradients
        if ddp.rank() == Rank(0) {
            println!("points near each distribution: {:?}\nweights {hash}", ddp.model().hits(device));
        }
        return Ok(false);
    }
    for shard in ddp.shards() {
        ddp.backward(ddp.model().loss(step, shard, device))?;
    }
    ddp.step(if step.is_multiple_of(2) { 1e-3 } else { 5e-4 })?;
    Ok(true)
}
