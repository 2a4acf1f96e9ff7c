//! A model small enough to differentiate by hand, written out below, with all features of a real one:
//! several parameters, one used twice, one never used, and a statistic.

#![allow(dead_code, reason = "each program of tests uses a part of it")]

pub mod checkpoints;
pub mod elastic;
pub mod groups;
pub mod own;
pub mod smooth;
pub mod stale;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use kolo_comm::{Generation, Group, JobMembership, Options, threads};
use kolo_ddp::optimizer::{self, OPTIMIZERS, Optimizer, Settings};
use kolo_ddp::reduction::{REDUCTIONS, Reducer};
use kolo_ddp::table::{Choice, Entry};
use kolo_ddp::{Config, Error, Kind, ParamSpec, Replica, SpanId};

pub const WIDTH: usize = 300;
/// Shape of each tensor, so that reductions of matrices have some.
pub const SHAPE: [usize; 2] = [15, 20];
pub const NAMES: [&str; 5] = ["first", "shared", "unused", "last", "mean"];

/// Values that are the same in every run.
pub fn noise(seed: usize, index: usize) -> f32 {
    ((seed * 7_919 + index * 104_729 + 13) as f32 * 0.37).sin()
}

/// The first elements of [`noise`] with a seed below 64, which are computed once: many ranks use the same
/// ones.
pub fn noises(seed: usize) -> &'static [f32] {
    static ALL: [OnceLock<Vec<f32>>; 64] = [const { OnceLock::new() }; 64];
    ALL[seed].get_or_init(|| (0..80_000).map(|index| noise(seed, index)).collect())
}

pub fn specs() -> Vec<ParamSpec> {
    let kind = |name: &str| match name {
        "mean" => Kind::Statistic,
        _ => Kind::Parameter { decay: name != "last" },
    };
    NAMES.iter().map(|name| ParamSpec::new(*name, SHAPE.to_vec(), kind(name))).collect()
}

pub fn replica(group: Arc<Group>, config: &Config, optimizer: &str, settings: Settings) -> Replica {
    replica_with(group, config, optimizer::named(optimizer, &settings).unwrap()).unwrap()
}

pub fn replica_with(
    group: Arc<Group>,
    config: &Config,
    optimizer: Box<dyn Optimizer>,
) -> Result<Replica, Error> {
    let rank = group.rank().0;
    // Rank 0's values apply; the others start from different ones.
    let values = (0..NAMES.len() * WIDTH).map(|i| noise(rank, i) * 0.5).collect();
    Replica::new(group, specs(), values, config, optimizer)
}

pub fn sgd() -> Box<dyn Optimizer> {
    optimizer::named("sgd", &Settings::default()).unwrap()
}

/// Returns the words with which a replica that steps by SGD is refused; empty if it is not.
pub fn refusal(group: Group, config: &Config) -> String {
    replica_with(Arc::new(group), config, sgd()).err().map_or_else(String::new, |error| error.to_string())
}

/// Bits of all values.
pub fn bits(replica: &mut Replica) -> Vec<u32> {
    bits_of(replica.values().unwrap())
}

pub fn bits_of(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Runs a shard's backward pass, which computes gradients of these tensors one after another.
pub fn pass<G: AsRef<[f32]>>(
    replica: &mut Replica,
    loss: f64,
    count: f64,
    gradients: impl IntoIterator<Item = (usize, G)>,
) -> Result<(), Error> {
    let mut pass = replica.begin_shard(loss, count)?;
    gradients.into_iter().for_each(|(span, gradient)| pass.ready(SpanId(span), gradient.as_ref()));
    pass.finish()
}

pub fn clip(norm: f64) -> Vec<Choice> {
    vec![Choice::new("clip").with("clip_norm", norm)]
}

/// A membership with the groups that a test has made; the test requests a change.
pub struct Scripted {
    pub groups: Receiver<Group>,
    pub wanted: Arc<AtomicBool>,
    /// Set when the worker says that it has the job's state.
    pub has_state: Arc<AtomicBool>,
    /// Number of the current generation; before the first group that of the generation before.
    pub generation: u64,
}

impl Scripted {
    /// A membership that begins with the job.
    pub fn new(groups: Receiver<Group>, wanted: Arc<AtomicBool>) -> Self {
        Scripted { groups, wanted, has_state: Arc::default(), generation: 0 }
    }
}

impl JobMembership for Scripted {
    fn next_group(&mut self, _: Option<&str>) -> Result<Group, kolo_comm::Error> {
        self.wanted.store(false, Ordering::SeqCst);
        self.generation += 1;
        self.groups.recv().map_err(|_| kolo_comm::Error::Orphaned)
    }

    fn set_has_state(&mut self) {
        self.has_state.store(true, Ordering::SeqCst);
    }

    fn step_done(&self) {}

    fn is_change_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    fn generation(&self) -> Option<Generation> {
        let (reason, formed) = ("the script says so".into(), SystemTime::now());
        Some(Generation { number: self.generation, reason, formed })
    }
}

/// The groups of several generations, each of these members; returns those of every member, in order.
pub fn scripted(members: usize, generations: &[&[usize]]) -> Vec<Receiver<Group>> {
    let (scripts, groups): (Vec<_>, Vec<_>) = (0..members).map(|_| channel()).unzip();
    for generation in generations {
        let made = threads::groups(generation.len(), &Options::default()).unwrap();
        generation.iter().zip(made).for_each(|(member, group)| scripts[*member].send(group).unwrap());
    }
    groups
}

/// Settings of a table's optimizer with which every part of its rule has an effect.
pub fn lively(entry: &Entry<dyn Optimizer>) -> Settings {
    let wishes = [("weight_decay", 0.01), ("momentum", 0.9)].into_iter();
    wishes
        .filter(|(name, _)| entry.setting(name).is_some())
        .fold(Settings::default(), |settings, (name, value)| settings.with(name, value))
}

/// Steps after which reductions begin to compress.
const WARM_UP: f64 = 2.0;

/// A table's reduction with settings with which every part of its rule has an effect in a small model.
pub fn lively_reduction(entry: &Entry<dyn Reducer>) -> Arc<dyn Reducer> {
    let sizes = [("dense_below", 0.0), ("density", 0.1), ("rank", 2.0), ("min_rate", 1.0), ("block", 100.0)];
    let settings = sizes
        .into_iter()
        .chain([("warmup_steps", WARM_UP)])
        .filter(|(name, _)| entry.setting(name).is_some())
        .fold(Settings::default(), |settings, (name, value)| settings.with(name, value));
    entry.build(&settings).unwrap().into()
}

pub fn reductions() -> impl Iterator<Item = Arc<dyn Reducer>> {
    REDUCTIONS.iter().map(lively_reduction)
}

/// An optimizer with its settings, and a reduction.
pub type Combination = (&'static Entry<dyn Optimizer>, Settings, Arc<dyn Reducer>);

/// Every optimizer with the sum; and every reduction with an optimizer that steps elements and with one that
/// steps whole tensors, or if it fits neither, with Adam.
pub fn combinations() -> Vec<Combination> {
    let sum = lively_reduction(&REDUCTIONS[0]);
    let mut all: Vec<Combination> =
        OPTIMIZERS.iter().filter_map(|optimizer| fitting(optimizer, sum.clone())).collect();
    for reduction in REDUCTIONS[1..].iter().map(lively_reduction) {
        let fitting = |name| fitting(optimizer::find(name).unwrap(), reduction.clone());
        let usual: Vec<Combination> = ["sgd", "lamb"].into_iter().filter_map(fitting).collect();
        all.extend(if usual.is_empty() { fitting("adam").into_iter().collect() } else { usual });
    }
    all
}

/// Returns the settings of an optimizer that a reduction accepts, if there are any: some need no momentum,
/// or a constant second moment.
fn fitting(optimizer: &'static Entry<dyn Optimizer>, reduction: Arc<dyn Reducer>) -> Option<Combination> {
    // After so few steps a second moment may be tiny, and stays so.
    let frozen = || lively(optimizer).with("freeze_after", WARM_UP).with("epsilon", 0.1);
    let frozen = optimizer.setting("freeze_after").map(|_| frozen());
    let settings = [lively(optimizer), Settings::default()].into_iter().chain(frozen);
    let fits = |settings: &Settings| reduction.fits(&*optimizer.build(settings).unwrap(), &[]).is_ok();
    let settings = settings.into_iter().find(fits)?;
    Some((optimizer, settings, reduction))
}

/// Loss and gradients of one sample x (its number): ½ Σ (first·x + shared² + last·shared − x)², element by
/// element.
pub struct Pass {
    pub loss: f64,
    pub first: Vec<f32>,
    /// Gradients of the two uses of `shared`.
    pub shared: [Vec<f32>; 2],
    pub last: Vec<f32>,
    /// Change of the running mean.
    pub mean: Vec<f32>,
}

pub fn backward(values: &[f32], samples: &[usize]) -> Pass {
    let zeros = || vec![0.0f32; WIDTH];
    let mut pass =
        Pass { loss: 0.0, first: zeros(), shared: [zeros(), zeros()], last: zeros(), mean: zeros() };
    for &sample in samples {
        for i in 0..WIDTH {
            let x = noise(sample + 100, i);
            let (first, shared, last) = (values[i], values[WIDTH + i], values[3 * WIDTH + i]);
            let residual = first * x + shared * shared + last * shared - x;
            pass.loss += 0.5 * f64::from(residual) * f64::from(residual);
            pass.first[i] += residual * x;
            pass.shared[0][i] += residual * 2.0 * shared;
            pass.shared[1][i] += residual * last;
            pass.last[i] += residual * shared;
            pass.mean[i] += 0.1 * (x - values[4 * WIDTH + i]);
        }
    }
    pass
}

/// Runs one shard's forward pass, which requests tensor after tensor, and its backward pass: gradients of
/// the last layer first.
pub fn run_shard(replica: &mut Replica, samples: &[usize]) {
    let values: Vec<f32> = (0..NAMES.len()).flat_map(|id| replica.latest(SpanId(id)).to_vec()).collect();
    let Pass { loss, first, shared: [once, twice], last, mean } = backward(&values, samples);
    let gradients = [(3, last), (1, once), (1, twice), (0, first), (4, mean)];
    let used = gradients.into_iter().filter(|_| !samples.is_empty());
    pass(replica, loss, samples.len() as f64, used).unwrap();
}
