//! Elastic jobs whose workers die and join by a script: each worker is a thread that trains a small model,
//! and continues with the others after a death.

mod meeting;
mod script;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kolo_comm::schedule::ALGORITHMS;
use kolo_comm::{Group, Options, TCP, TransportKind};
use kolo_ddp::reduction::Reducer;
use kolo_ddp::{
    BucketCaps, Config, Error, Kind, LastStep, LossScale, LossScaling, NoiseScale, ParamSpec, Replica,
    Sharding, SpanId,
};

use self::meeting::Meeting;
use self::script::Generation;
pub use self::script::{MOMENTS, Role, STEPS, Script};
use super::smooth::Smooth;
use super::{NAMES, WIDTH, backward, bits_of, clip, noise, pass, specs};

/// Elements of a sixth tensor, which is cut into several buckets.
const LARGE: usize = 40_000;

/// The end of a worker: by its death, or by an error.
enum Stop {
    Dead,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

fn expected(error: &Error) {
    assert!(error.to_string().contains("killed"), "{error}");
}

struct Worker<'a> {
    script: &'a Script,
    meeting: &'a Meeting,
    transport: &'static TransportKind,
    role: Role,
    generation: usize,
    replica: Replica,
    known: Known,
}

/// Steps that a worker knows of: the bits of their losses, and the noise scale where it is measured.
pub type Known = BTreeMap<u64, (u64, Option<NoiseScale>)>;

/// The bits of a worker's values, and the state of loss scaling.
pub type End = (Vec<u32>, LossScale);

/// Copies every few steps, for reductions that keep state for each shard.
fn config(script: &Script, reduction: Arc<dyn Reducer>) -> Config {
    let backup_every = 3;
    let caps = BucketCaps { first: 4 * WIDTH, other: 4 * WIDTH };
    let transforms = script.clip_norm.map(clip).unwrap_or_default();
    let caps = Some(caps);
    let shards = Some(script.shards);
    // Clipping, scaling and the noise scale all wait for all of a step's gradient.
    let noise_scale =
        script.islands.is_none() && (script.clip_norm.is_some() || script.scaled) && reduction.is_sum();
    let scaling = LossScaling { initial: 64.0, growth_interval: 3, ..LossScaling::default() };
    let loss_scaling = script.scaled.then_some(scaling);
    let verify_every = 3;
    let config = Config {
        shards,
        caps,
        transforms,
        reduction,
        backup_every,
        noise_scale,
        verify_every,
        ..Config::default()
    };
    let (sync, islands) = (script.sync.parse().unwrap(), script.islands);
    let shared = script.sharding == Sharding::Host;
    let sharding = if script.owners == 0 && !shared { Sharding::Nothing } else { script.sharding };
    // In half of the disturbed runs the optimizer's state is in a file.
    let in_file = script.generations.len().is_multiple_of(2) && !shared;
    let offload = in_file.then(std::env::temp_dir);
    let config = Config { sharding, redundancy: script.owners.max(1), offload, ..config };
    Config { loss_scaling, elastic: true, sync, islands, tune: script.tuned, ..config }
}

impl<'a> Worker<'a> {
    fn new(
        script: &'a Script,
        meeting: &'a Meeting,
        transport: &'static TransportKind,
        role: Role,
        first: usize,
    ) -> Self {
        for generation in first..script.generations.len() {
            let join = || {
                let group = meet(script, meeting, generation, transport, role)?;
                let values = (0..NAMES.len() * WIDTH + LARGE).map(|i| noise(generation, i) * 0.5).collect();
                let (optimizer, settings, reduction) = script.combination.clone();
                let optimizer = optimizer.build(&settings)?;
                let kind = Kind::Parameter { decay: true };
                let large = ParamSpec::new("large", vec![LARGE / 100, 100], kind);
                let specs = specs().into_iter().chain([large]).collect();
                Replica::new(group, specs, values, &config(script, reduction), optimizer)
            };
            match join() {
                Ok(mut replica) => {
                    if script.smoothed {
                        replica.add_transform(Smooth::default());
                    }
                    if script.tuned {
                        replica.tune_hastily_for_tests();
                    }
                    let known = Known::new();
                    let mut worker = Worker { script, meeting, transport, role, generation, replica, known };
                    worker.note_last();
                    return worker;
                }
                Err(error) => expected(&error),
            }
        }
        panic!("a worker never got into a generation")
    }

    /// Continues in the next generation in which no worker dies before all are in it.
    fn regroup(&mut self) {
        while self.generation + 1 < self.script.generations.len() {
            self.generation += 1;
            let group = match self.script.generations[self.generation].alone {
                true => Ok(Arc::new(Group::alone())),
                false => meet(self.script, self.meeting, self.generation, self.transport, self.role),
            };
            match group.and_then(|group| self.replica.regroup(group)) {
                Ok(()) => return self.note_last(),
                Err(error) => expected(&error),
            }
        }
        panic!("nobody dies in the last generation")
    }

    /// State of loss scaling; for islands, which have one each, only the number of their skipped steps.
    fn loss_scaling(&self) -> LossScale {
        let skipped_steps = self.replica.skipped_steps();
        match self.script.islands {
            None => self.replica.loss_scaling(),
            Some(_) => LossScale { scale: 1.0, clean_steps: 0, skipped_steps },
        }
    }

    fn note_last(&mut self) {
        assert_eq!(self.replica.is_server(), self.role == Role::Server);
        let last = self.replica.last_step();
        assert_eq!(last.map_or(0, |last| last.step + 1), self.replica.steps());
        self.note(self.replica.last_steps());
    }

    fn note(&mut self, known: Vec<LastStep>) {
        let noted = |last: LastStep| (last.step, (last.loss.to_bits(), last.noise_scale));
        self.known.extend(known.into_iter().map(noted));
    }

    /// Trains to the end. Returns the end and the known steps, unless it dies.
    fn run(mut self) -> Option<(End, Known)> {
        loop {
            match self.train() {
                Ok(bits) => return Some(((bits, self.loss_scaling()), self.known)),
                Err(Stop::Dead) => {
                    self.replica.group().abandon("it was killed");
                    return None;
                }
                Err(Stop::Failed(error)) => {
                    expected(&error);
                    // One of two reads the model meanwhile, which must not matter.
                    if self.role == Role::Worker && self.replica.group().rank().0 % 2 == 1 {
                        (0..NAMES.len() + 1).for_each(|id| drop(self.replica.latest(SpanId(id)).to_vec()));
                    }
                    self.regroup();
                }
            }
        }
    }

    fn train(&mut self) -> Result<Vec<u32>, Stop> {
        while self.replica.steps() < STEPS {
            self.step()?;
        }
        Ok(bits_of(self.replica.values()?))
    }

    /// Some parameters are used twice in some steps and once in others.
    fn step(&mut self) -> Result<(), Stop> {
        let step = self.replica.steps();
        self.moment(step, 0)?;
        for (n, shard) in self.replica.shards().enumerate() {
            let mut values = vec![0.0; NAMES.len() * WIDTH + LARGE];
            // In the order in which reductions end, so that some are still in flight.
            for (moment, id) in [4, 2, 0, 1, 5, 3].into_iter().enumerate() {
                let latest = self.replica.latest(SpanId(id));
                values[id * WIDTH..][..latest.len()].copy_from_slice(latest);
                if n == 0 {
                    self.moment(step, 1 + moment)?;
                }
            }
            let samples = [step as usize * self.script.shards + shard, 7 * shard];
            // The second of the job's shards.
            let overflows = self.script.scaled && [8, 11].contains(&step) && shard == 1;
            let overflow = overflows.then_some((LARGE - 1, f32::MAX));
            pass_with_large(&mut self.replica, &values, &samples, overflow)?;
        }
        self.moment(step, MOMENTS - 2)?;
        if let Err(dead) = self.moment(step, MOMENTS - 1) {
            self.replica.reduce_for_tests(0.05)?;
            return Err(dead);
        }
        if step + 1 == STEPS {
            self.replica.end_round();
        }
        let report = self.replica.step(0.05)?;
        self.note(report.known);
        Ok(())
    }

    fn moment(&self, step: u64, moment: usize) -> Result<(), Stop> {
        let rank = self.replica.group().rank().0;
        match self.script.generations[self.generation].death {
            Some(death) if death == (rank, step, moment) => Err(Stop::Dead),
            _ => Ok(()),
        }
    }
}

fn meet(
    script: &Script,
    meeting: &Meeting,
    number: usize,
    transport: &'static TransportKind,
    role: Role,
) -> Result<Arc<Group>, Error> {
    let Generation { world, servers: [servers, _], .. } = script.generations[number];
    let direct = ALGORITHMS.iter().find(|algorithm| algorithm.name == "direct");
    // Over sockets a delay, so that a death finds buckets in flight.
    let delay = Duration::from_millis(u64::from(transport == &TCP && script.generations.len() > 1));
    let options = Options {
        transport: Some(transport),
        algorithm: direct.filter(|_| script.direct),
        server: role == Role::Server,
        delay,
        ..Options::default()
    };
    meeting.join(number, [world, servers], &options)
}

/// The pass of a shard of a model with a sixth tensor, whose gradient may `overflow` in some element. Some
/// parameters are used twice in some steps and once in others.
fn pass_with_large(
    replica: &mut Replica,
    values: &[f32],
    samples: &[usize],
    overflow: Option<(usize, f32)>,
) -> Result<(), Error> {
    let of = backward(values, samples);
    let mut large: Vec<f32> = values[NAMES.len() * WIDTH..].iter().map(|x| x * of.last[0]).collect();
    if let Some((index, value)) = overflow {
        large[index] = value;
    }
    let (scale, is_even) = (replica.loss_scale(), replica.steps().is_multiple_of(2));
    let twice = is_even.then_some((1, &of.shared[1]));
    let all =
        [(5, &large), (3, &of.last), (1, &of.shared[0])].into_iter().chain(twice).chain([(0, &of.first)]);
    let scaled = all.map(|(span, gradient)| (span, gradient.iter().map(|g| g * scale).collect()));
    pass(replica, of.loss, samples.len() as f64, scaled.chain([(4, of.mean.clone())]))
}

/// Runs a script; returns the ends of the surviving workers. Servers have seen the same steps and hold no
/// values.
pub fn run(script: &Script, transport: &'static TransportKind) -> Vec<(End, Known)> {
    let meeting = Meeting::default();
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for (generation, Generation { fresh, servers, .. }) in script.generations.iter().enumerate() {
            for (role, fresh) in [(Role::Worker, *fresh), (Role::Server, servers[1])] {
                for _ in 0..fresh {
                    let meeting = &meeting;
                    let work = move || Worker::new(script, meeting, transport, role, generation).run();
                    workers.push((role, scope.spawn(work)));
                }
            }
        }
        let (mut trained, mut servers) = (Vec::new(), Vec::new());
        for (role, worker) in workers {
            let ends = if role == Role::Worker { &mut trained } else { &mut servers };
            ends.extend(worker.join().unwrap());
        }
        let last = script.generations.last().unwrap();
        assert_eq!([trained.len(), servers.len()], [last.world, last.servers[0]], "{script:?}");
        for ((values, _), known) in servers {
            assert!(values.iter().all(|bits| f32::from_bits(*bits).is_nan()), "{script:?}");
            assert!(known.contains_key(&(STEPS - 1)), "{script:?}");
            assert!(known.iter().all(|(step, seen)| trained[0].1.get(step).is_none_or(|of| of == seen)));
        }
        trained
    })
}

/// Runs a script; its survivors must have the expected end, and know all steps.
pub fn check(script: &Script, transport: &'static TransportKind, seed: u64, expected: &End, losses: &Known) {
    let case = format!("{transport:?}, seed {seed}: {script:?}");
    for (end, known) in run(script, transport) {
        assert!(end == *expected, "{case}");
        // Without a gap, from the first known step.
        let first = *known.keys().next().unwrap();
        let seen: Known = losses.range(first..).map(|(step, loss)| (*step, *loss)).collect();
        assert_eq!(known, seen, "{case}");
    }
}
