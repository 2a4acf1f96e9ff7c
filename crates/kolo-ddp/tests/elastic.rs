//! Workers that die at any moment, and others that come: the weights end in the same bits.

mod common;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::{
    Combination, NAMES, WIDTH, backward, clip, combinations, lively, lively_reduction, noise, specs,
};
use kolo_comm::env::WorkerEnv;
use kolo_comm::{Group, Options, Rank, SHM, TCP, TransportKind};
use kolo_ddp::key::Key;
use kolo_ddp::optimizer::{OPTIMIZERS, Settings};
use kolo_ddp::reduction::{self, REDUCTIONS, Reducer};
use kolo_ddp::sync::SYNCS;
use kolo_ddp::{
    BucketCaps, Config, Error, Kind, LastStep, LossScale, LossScaling, NoiseScale, ParamSpec, Replica, SpanId,
};

const STEPS: u64 = 16;
/// A worker that fails keeps the others waiting.
const PATIENCE: Duration = Duration::from_secs(60);
const SHARDS: usize = 6;
/// Elements of a sixth tensor, which travels in several buckets.
const LARGE: usize = 40_000;
/// Moments of a step at which a worker may die: before it, after asking for each tensor of the next forward
/// pass, after all backward passes, and when the ranks have agreed but not all buckets are back.
const MOMENTS: usize = 3 + NAMES.len() + 1;

/// Where the ranks of each generation find one another.
#[derive(Default)]
struct Meeting {
    /// For each generation how many have come, and where they meet once all are there.
    generations: Mutex<BTreeMap<usize, (usize, Option<SocketAddr>)>>,
    changed: Condvar,
}

impl Meeting {
    /// Waits for all `world` members of a generation, and forms their group.
    fn join(
        &self,
        generation: usize,
        world: usize,
        transport: &'static TransportKind,
    ) -> Result<Arc<Group>, Error> {
        let mut generations = self.generations.lock().unwrap();
        let (count, master) = generations.entry(generation).or_default();
        let rank = *count;
        *count += 1;
        if *count == world {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            *master = Some(listener.local_addr().unwrap());
        }
        self.changed.notify_all();
        let master = loop {
            if let (_, Some(master)) = generations[&generation] {
                break master;
            }
            let (next, timeout) = self.changed.wait_timeout(generations, PATIENCE).unwrap();
            assert!(!timeout.timed_out(), "generation {generation} waits for {world} ranks");
            generations = next;
        };
        drop(generations);
        let place =
            WorkerEnv { rank: Rank(rank), world_size: world, local_rank: rank, endpoint: master.into() };
        // Over sockets a distance, so that a death finds buckets on the wire.
        let delay = Duration::from_millis(if transport == &TCP { 1 } else { 0 });
        let options = Options { transport: Some(transport), delay, ..Options::default() };
        Ok(Arc::new(Group::join(&place, &options)?))
    }
}

/// What happens in a run: in generation g so many ranks, of which one dies in some step at some moment.
#[derive(Debug)]
struct Script {
    combination: Combination,
    clip_norm: Option<f64>,
    /// Whether losses are scaled; then two steps overflow.
    scaled: bool,
    /// How often shards synchronise, and as how many islands if rarely.
    sync: String,
    islands: Option<usize>,
    generations: Vec<Generation>,
}

#[derive(Debug)]
struct Generation {
    world: usize,
    /// New ones among them.
    fresh: usize,
    /// Who dies, when; nobody in the last generation.
    death: Option<(usize, u64, usize)>,
    /// Each for itself.
    alone: bool,
}

impl Script {
    /// 4 ranks at first; each death may bring a new one.
    fn new(seed: u64, combination: &Combination, clip_norm: Option<f64>, scaled: bool) -> Script {
        let key = Key::new(seed);
        let deaths = 1 + key.with(0).below(3);
        let mut steps: Vec<u64> =
            (0..deaths).map(|n| 7 + key.with(1).with(n as u64).below(STEPS as usize - 10) as u64).collect();
        steps.sort();
        // The others may complete the step in which one died, so the next one dies later.
        (1..deaths).for_each(|n| steps[n] = steps[n].max(steps[n - 1] + 1));
        let (mut world, mut fresh, mut generations) = (4, 4, Vec::new());
        for (n, step) in steps.into_iter().enumerate() {
            let key = key.with(2).with(n as u64);
            let moment = match (clip_norm, scaled) {
                // Mostly early in the forward pass.
                (None, false) => key.with(1).below(MOMENTS) / (1 + key.with(3).below(3)),
                // Where gradients are clipped or losses scaled no step reaches into the next one.
                _ => [0, MOMENTS - 2, MOMENTS - 1][if scaled { key.with(1).below(3) } else { 2 }],
            };
            let death = Some((key.with(0).below(world), step, moment));
            generations.push(Generation { world, fresh, death, alone: false });
            fresh = key.with(2).below(2);
            world = world - 1 + fresh;
        }
        generations.push(Generation { world, fresh, death: None, alone: false });
        let (sync, islands) = ("every-step".into(), None);
        Script { combination: combination.clone(), clip_norm, scaled, sync, islands, generations }
    }

    /// With islands that synchronise rarely, in which any moment is as good as another.
    fn rarely(seed: u64, combination: &Combination, sync: &str, islands: usize) -> Script {
        // Of three islands one skips two steps, so that their scales are not the same.
        let mut script = Script::new(seed, combination, None, islands == 3);
        for (n, generation) in script.generations.iter_mut().enumerate() {
            if let Some((_, _, moment)) = &mut generation.death {
                *moment = Key::new(seed).with(4).with(n as u64).below(MOMENTS);
            }
        }
        Script { sync: sync.into(), islands: Some(islands), ..script }
    }

    /// With updates that are one step late, in which any moment is as good as another, too.
    fn late(seed: u64, combination: &Combination, clip_norm: Option<f64>) -> Script {
        Script { clip_norm, islands: None, ..Script::rarely(seed, combination, "delayed:1", 1) }
    }

    /// One rank, undisturbed.
    fn undisturbed(self) -> Script {
        let generations = vec![Generation { world: 1, fresh: 1, death: None, alone: false }];
        Script { generations, ..self }
    }

    /// After the first death every one goes on alone, as one does that is to save what all have come to.
    fn then_alone(mut self) -> Script {
        self.generations.truncate(1);
        self.generations.push(Generation { world: 3, fresh: 0, death: None, alone: true });
        self
    }
}

/// It is dead, or something failed.
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
    generation: usize,
    replica: Replica,
    known: Known,
}

/// Steps that a worker knows of: the bits of their losses, and the noise scale where it is measured.
type Known = BTreeMap<u64, (u64, Option<NoiseScale>)>;

/// The bits of a worker's values, and where loss scaling stands.
type End = (Vec<u32>, LossScale);

/// With copies every few steps, for reductions that keep something for each shard.
fn config(script: &Script, reduction: Arc<dyn Reducer>) -> Config {
    let backup_every = 3;
    let caps = BucketCaps { first: 4 * WIDTH, other: 4 * WIDTH };
    let transforms = script.clip_norm.map(clip).unwrap_or_default();
    let caps = Some(caps);
    let shards = Some(SHARDS);
    // Clipping, scaling and the noise scale all wait for all of a step's gradient.
    let noise_scale =
        script.islands.is_none() && (script.clip_norm.is_some() || script.scaled) && reduction.is_sum();
    let scaling = LossScaling { initial: 64.0, growth_interval: 3, ..LossScaling::default() };
    let loss_scaling = script.scaled.then_some(scaling);
    let config =
        Config { shards, caps, transforms, reduction, backup_every, noise_scale, ..Config::default() };
    let (sync, islands) = (script.sync.parse().unwrap(), script.islands);
    Config { loss_scaling, elastic: true, sync, islands, ..config }
}

impl<'a> Worker<'a> {
    fn new(
        script: &'a Script,
        meeting: &'a Meeting,
        transport: &'static TransportKind,
        first: usize,
    ) -> Self {
        for generation in first..script.generations.len() {
            let join = || {
                let group = meeting.join(generation, script.generations[generation].world, transport)?;
                let values = (0..NAMES.len() * WIDTH + LARGE).map(|i| noise(generation, i) * 0.5).collect();
                let (optimizer, settings, reduction) = script.combination.clone();
                let optimizer = optimizer.build(&settings)?;
                let kind = Kind::Parameter { decay: true };
                let large = ParamSpec::new("large", vec![LARGE / 100, 100], kind);
                let specs = specs().into_iter().chain([large]).collect();
                Replica::new(group, specs, values, &config(script, reduction), optimizer)
            };
            match join() {
                Ok(replica) => {
                    let known = Known::new();
                    let mut worker = Worker { script, meeting, transport, generation, replica, known };
                    worker.note_last();
                    return worker;
                }
                Err(error) => expected(&error),
            }
        }
        panic!("a worker never got into a generation")
    }

    /// Goes on in the next generation in which nobody dies before all are in it.
    fn regroup(&mut self) {
        while self.generation + 1 < self.script.generations.len() {
            self.generation += 1;
            let Generation { world, alone, .. } = self.script.generations[self.generation];
            let group = match alone {
                true => Ok(Arc::new(Group::alone())),
                false => self.meeting.join(self.generation, world, self.transport),
            };
            match group.and_then(|group| self.replica.regroup(group)) {
                Ok(()) => return self.note_last(),
                Err(error) => expected(&error),
            }
        }
        panic!("nobody dies in the last generation")
    }

    /// Where loss scaling stands; of islands, which have one each, how many of their steps were skipped.
    fn loss_scaling(&self) -> LossScale {
        let skipped_steps = self.replica.skipped_steps();
        match self.script.islands {
            None => self.replica.loss_scaling(),
            Some(_) => LossScale { scale: 1.0, clean_steps: 0, skipped_steps },
        }
    }

    fn note_last(&mut self) {
        let last = self.replica.last_step();
        assert_eq!(last.map_or(0, |last| last.step + 1), self.replica.steps());
        self.note(self.replica.last_steps());
    }

    fn note(&mut self, known: Vec<LastStep>) {
        let noted = |last: LastStep| (last.step, (last.loss.to_bits(), last.noise_scale));
        self.known.extend(known.into_iter().map(noted));
    }

    /// Trains to the end; what it ends as, unless it dies, and what it knows.
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
                    self.regroup();
                }
            }
        }
    }

    fn train(&mut self) -> Result<Vec<u32>, Stop> {
        while self.replica.steps() < STEPS {
            self.step()?;
        }
        Ok(self.replica.values()?.iter().map(|x| x.to_bits()).collect())
    }

    /// Some parameters are used twice in some steps and once in others.
    fn step(&mut self) -> Result<(), Stop> {
        let step = self.replica.steps();
        self.moment(step, 0)?;
        for (n, shard) in self.replica.shards().enumerate() {
            let scale = self.replica.loss_scale();
            let mut values = vec![0.0; NAMES.len() * WIDTH + LARGE];
            // In the order in which buckets come back, so that some are still on the wire.
            for (moment, id) in [4, 2, 0, 1, 5, 3].into_iter().enumerate() {
                let latest = self.replica.latest(SpanId(id));
                values[id * WIDTH..][..latest.len()].copy_from_slice(latest);
                if n == 0 {
                    self.moment(step, 1 + moment)?;
                }
            }
            let samples = [step as usize * SHARDS + shard, 7 * shard];
            let pass = backward(&values, &samples);
            let mut large: Vec<f32> =
                values[NAMES.len() * WIDTH..].iter().map(|x| x * pass.last[0]).collect();
            // Of the job's shards the second.
            if self.script.scaled && [8, 11].contains(&step) && shard == 1 {
                large[LARGE - 1] = f32::MAX;
            }
            let mut shard = self.replica.begin_shard(pass.loss, samples.len() as f64)?;
            let scaled = |gradient: &[f32]| gradient.iter().map(|g| g * scale).collect::<Vec<f32>>();
            shard.ready(SpanId(5), &scaled(&large));
            shard.ready(SpanId(3), &scaled(&pass.last));
            shard.ready(SpanId(1), &scaled(&pass.shared[0]));
            if step.is_multiple_of(2) {
                shard.ready(SpanId(1), &scaled(&pass.shared[1]));
            }
            shard.ready(SpanId(0), &scaled(&pass.first));
            shard.ready(SpanId(4), &pass.mean);
            shard.finish()?;
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

fn run(script: &Script, transport: &'static TransportKind) -> Vec<(End, Known)> {
    let meeting = Meeting::default();
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for (generation, Generation { fresh, .. }) in script.generations.iter().enumerate() {
            for _ in 0..*fresh {
                let meeting = &meeting;
                workers.push(scope.spawn(move || Worker::new(script, meeting, transport, generation).run()));
            }
        }
        workers.into_iter().filter_map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn deaths_and_joins_do_not_change_the_bits() {
    for (n, combination) in combinations().iter().enumerate() {
        let keeps = !combination.2.shard_state().is_empty();
        // With the sum the steps themselves are tried, with the others what they keep.
        let seeds = if combination.2.name() == "sum" { [15, 5, 5] } else { [6, 1, 1] };
        let kinds = [(None, false), (Some(1.5), false), (None, true)].into_iter().zip(seeds);
        for ((clip_norm, scaled), seeds) in kinds {
            let alone = Script::new(0, combination, clip_norm, scaled).undisturbed();
            let (expected, losses) = run(&alone, &TCP).remove(0);
            assert_eq!(expected.1.skipped_steps, if scaled { 2 } else { 0 });
            for transport in [&SHM, &TCP] {
                for seed in (0..seeds).map(|seed| n as u64 * seeds + seed) {
                    let script = match seed % 3 {
                        // No one of four has what all keep.
                        0 if !keeps => Script::new(seed, combination, clip_norm, scaled).then_alone(),
                        _ => Script::new(seed, combination, clip_norm, scaled),
                    };
                    check(&script, transport, seed, &expected, &losses);
                }
            }
        }
    }
}

/// Runs a script, whose survivors end as they should, and know all that they should.
fn check(script: &Script, transport: &'static TransportKind, seed: u64, expected: &End, losses: &Known) {
    let case = format!("{transport:?}, seed {seed}: {script:?}");
    let survivors = run(script, transport);
    assert_eq!(survivors.len(), script.generations.last().unwrap().world);
    for (end, known) in survivors {
        assert!(end == *expected, "{case}");
        // Without a gap, from the first step of which it knows.
        let first = *known.keys().next().unwrap();
        let seen: Known = losses.range(first..).map(|(step, loss)| (*step, *loss)).collect();
        assert_eq!(known, seen, "{case}");
    }
}

#[test]
fn late_updates_survive_deaths_and_joins_in_the_same_bits() {
    let keeps_nothing = |(.., reduction): &&Combination| !reduction.keeps_state();
    for (n, combination) in combinations().iter().filter(keeps_nothing).enumerate() {
        let script = |seed| Script::late(seed, combination, (n % 2 == 1).then_some(1.5));
        let (expected, losses) = run(&script(0).undisturbed(), &TCP).remove(0);
        assert_eq!(losses.len() as u64, STEPS);
        for (transport, seed) in [(&SHM, 0), (&TCP, 1), (&SHM, 2), (&TCP, 3)] {
            let seed = seed + 4 * n as u64;
            check(&script(seed), transport, seed, &expected, &losses);
        }
        // Each rank has all that is kept.
        check(&script(5).then_alone(), &TCP, 5, &expected, &losses);
    }
}

/// Every mode of the table with islands, which in a run have rounds before, in and after each death.
fn rare_modes() -> Vec<String> {
    let rare = SYNCS.iter().filter(|mode| mode.setting("H").is_some());
    rare.flat_map(|mode| {
        let rounds = if mode.setting("T").is_some() { "H=3,T=9" } else { "H=4" };
        ["", ",restart_inner"].map(|more| format!("{}:{rounds}{more}", mode.name))
    })
    .collect()
}

#[test]
fn islands_survive_deaths_and_joins_in_the_same_bits() {
    for (n, sync) in rare_modes().iter().enumerate() {
        let optimizer = &OPTIMIZERS[n % OPTIMIZERS.len()];
        let mut outer_reduction = lively_reduction(&REDUCTIONS[0]);
        if n % 3 == 2 {
            // Residuals of islands die with a worker, too.
            outer_reduction =
                reduction::named("ef-sign", &Settings::default().with("dense_below", 0.0)).unwrap();
        }
        let combination = (optimizer, lively(optimizer), outer_reduction);
        for islands in [6, 3, 2] {
            let script = |seed| Script::rarely(seed, &combination, sync, islands);
            let (expected, losses) = run(&script(0).undisturbed(), &TCP).remove(0);
            assert_eq!(losses.len() as u64, STEPS);
            assert_eq!(expected.1.skipped_steps, if islands == 3 { 2 } else { 0 });
            for (transport, seed) in [(&SHM, 0), (&TCP, 1), (&SHM, 2), (&TCP, 3)] {
                let seed = seed + 10 * (n * 3 + islands) as u64;
                check(&script(seed), transport, seed, &expected, &losses);
            }
            // Where islands begin each round without state each rank has all that is kept.
            if sync.contains("restart_inner") && combination.2.shard_state().is_empty() {
                check(&script(7).then_alone(), &TCP, 7, &expected, &losses);
            }
        }
    }
}
