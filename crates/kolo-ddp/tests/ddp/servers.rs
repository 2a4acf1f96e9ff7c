//! Summation servers: ranks that add for the others, so that these send less. With any number of them the
//! weights end in the same bits, also when one of them dies.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::elastic::meeting::Meeting;
use crate::common::elastic::{LARGE, pass_with_large};
use crate::common::{Combination, NAMES, WIDTH, bits, clip, combinations, noise, refusal, specs};
use kolo_comm::schedule::ALGORITHMS;
use kolo_comm::{Group, Options, SHM, TCP, TransportKind, threads};
use kolo_ddp::straggler::Policy;
use kolo_ddp::{BucketCaps, Config, Error, Kind, LossScaling, ParamSpec, Replica, SpanId};

const STEPS: u64 = 10;
const SHARDS: usize = 6;
/// If losses are scaled, an element overflows in this step and shard.
const OVERFLOW: (u64, usize) = (6, 4);

/// One generation: its numbers of workers and servers; and the role, step and moment of a death: before the
/// step, after the backward passes, or when the ranks have agreed.
#[derive(Clone, Copy, Debug)]
struct Generation {
    workers: usize,
    servers: usize,
    death: Option<(Role, u64, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Worker,
    Server,
}

#[derive(Debug)]
struct Run {
    transport: &'static TransportKind,
    /// True if the algorithm that supports servers is used for everything.
    direct: bool,
    combination: Combination,
    config: Config,
    generations: Vec<Generation>,
}

/// Steps that a member knows of: their losses' bits.
type Losses = BTreeMap<u64, u64>;

impl Run {
    /// Waits for all members of a generation, workers before servers, and forms their group.
    fn join(&self, meeting: &Meeting, number: usize, role: Role) -> Arc<Group> {
        let Generation { workers, servers, .. } = self.generations[number];
        let direct = ALGORITHMS.iter().find(|algorithm| algorithm.name == "direct");
        let options = Options {
            transport: Some(self.transport),
            algorithm: direct.filter(|_| self.direct),
            server: role == Role::Server,
            ..Options::default()
        };
        meeting.join(number, [workers, servers], &options).unwrap()
    }
}

/// The end of a member.
#[derive(Debug, PartialEq)]
enum End {
    Died,
    /// The bits of its values, and the losses of the steps that it has seen.
    Trained(Vec<u32>, Losses),
}

struct Member<'a> {
    run: &'a Run,
    meeting: &'a Meeting,
    role: Role,
    generation: usize,
    losses: Losses,
}

impl Member<'_> {
    fn train(mut self) -> End {
        let values: Vec<f32> =
            (0..NAMES.len() * WIDTH + LARGE).map(|i| noise(self.role as usize, i) * 0.5).collect();
        let (entry, settings, reduction) = self.run.combination.clone();
        let config = Config { reduction, ..self.run.config.clone() };
        let large = ParamSpec::new("large", vec![LARGE], Kind::Parameter { decay: true });
        let specs: Vec<ParamSpec> = specs().into_iter().chain([large]).collect();
        let group = self.run.join(self.meeting, self.generation, self.role);
        let optimizer = entry.build(&settings).unwrap();
        let mut replica = Replica::new(group, specs, values, &config, optimizer).unwrap();
        loop {
            assert_eq!(replica.is_server(), self.role == Role::Server);
            assert_eq!(replica.workers().len(), self.run.generations[self.generation].workers);
            match self.steps(&mut replica) {
                Ok(true) => {
                    return End::Trained(bits(&mut replica), self.losses);
                }
                Ok(false) => {
                    replica.group().abandon("it was killed");
                    return End::Died;
                }
                Err(error) => self.regroup(&mut replica, error),
            }
        }
    }

    fn regroup(&mut self, replica: &mut Replica, error: Error) {
        assert!(error.to_string().contains("killed"), "{error}");
        self.generation += 1;
        let group = self.run.join(self.meeting, self.generation, self.role);
        replica.regroup(group).unwrap();
        let last = replica.last_step();
        self.losses.extend(last.map(|last| (last.step, last.loss.to_bits())));
    }

    /// Returns true when all steps are done, false when this member is to die now.
    fn steps(&mut self, replica: &mut Replica) -> Result<bool, Error> {
        // The last of its role is the one that dies.
        let Generation { workers, servers, death } = self.run.generations[self.generation];
        let last = if self.role == Role::Worker { workers - 1 } else { workers + servers - 1 };
        let death = death.filter(|(role, ..)| *role == self.role && replica.group().rank().0 == last);
        while replica.steps() < STEPS {
            let step = replica.steps();
            let dies = |moment: usize| death.is_some_and(|(_, at, when)| (at, when) == (step, moment));
            if dies(0) {
                return Ok(false);
            }
            for shard in replica.shards() {
                Self::pass(replica, step, shard)?;
            }
            if dies(1) {
                return Ok(false);
            }
            if dies(2) {
                replica.reduce_for_tests(0.05)?;
                return Ok(false);
            }
            let report = replica.step(0.05)?;
            assert_eq!(report.gradient_norm.is_some(), !self.run.config.transforms.is_empty());
            assert_eq!(report.noise_scale.is_some(), self.run.config.noise_scale);
            assert_eq!(report.skipped, self.run.config.loss_scaling.is_some() && step == OVERFLOW.0);
            self.losses.insert(step, report.loss.to_bits());
        }
        Ok(true)
    }

    fn pass(replica: &mut Replica, step: u64, shard: usize) -> Result<(), Error> {
        let mut values = vec![0.0; NAMES.len() * WIDTH + LARGE];
        for id in [4, 2, 0, 1, 5, 3] {
            let latest = replica.latest(SpanId(id));
            values[id * WIDTH..][..latest.len()].copy_from_slice(latest);
        }
        let samples = [step as usize * SHARDS + shard, 7 * shard];
        let overflows = replica.loss_scale() > 1.0 && (step, shard) == OVERFLOW;
        pass_with_large(replica, &values, &samples, overflows.then_some((LARGE / 3, f32::INFINITY)))
    }
}

fn config() -> Config {
    let caps = BucketCaps { first: 4 * WIDTH, other: 4 * WIDTH };
    Config { shards: Some(SHARDS), caps: Some(caps), elastic: true, verify_every: 3, ..Config::default() }
}

impl Run {
    /// Returns the bits and losses of the workers that have completed the run. Servers have completed it as
    /// well, have seen the same losses, and hold no values.
    fn ends(&self) -> Vec<(Vec<u32>, Losses)> {
        let meeting = Meeting::default();
        let mut ends = Vec::new();
        std::thread::scope(|scope| {
            let mut members = Vec::new();
            let mut before = [0; 2];
            for (generation, Generation { workers, servers, death }) in self.generations.iter().enumerate() {
                for (role, count) in [(Role::Worker, *workers), (Role::Server, *servers)] {
                    for _ in before[role as usize]..count {
                        let (run, meeting, losses) = (self, &meeting, Losses::new());
                        let member = Member { run, meeting, role, generation, losses };
                        members.push((role, scope.spawn(move || member.train())));
                    }
                    before[role as usize] = count - usize::from(death.is_some_and(|(dies, ..)| dies == role));
                }
            }
            for (role, member) in members {
                if let End::Trained(bits, losses) = member.join().unwrap() {
                    ends.push((role, bits, losses));
                }
            }
        });
        let last = self.generations.last().unwrap();
        assert_eq!(ends.len(), last.workers + last.servers, "{self:?}");
        let (servers, workers): (Vec<_>, Vec<_>) =
            ends.into_iter().partition(|(role, ..)| *role == Role::Server);
        for (_, bits, losses) in servers {
            assert!(bits.iter().all(|bits| f32::from_bits(*bits).is_nan()), "{self:?}");
            let seen: Vec<_> = workers[0].2.iter().filter(|(step, _)| losses.contains_key(step)).collect();
            assert!(losses.iter().eq(seen) && losses.contains_key(&(STEPS - 1)), "{self:?}: {losses:?}");
        }
        workers.into_iter().map(|(_, bits, losses)| (bits, losses)).collect()
    }
}

/// One worker without servers.
fn alone(combination: &Combination, config: &Config) -> (Vec<u32>, Losses) {
    let generations = vec![Generation { workers: 1, servers: 0, death: None }];
    let (combination, config) = (combination.clone(), config.clone());
    Run { transport: &TCP, direct: false, combination, config, generations }.ends().remove(0)
}

/// The sum and every other reduction, with one optimizer.
fn reductions() -> impl Iterator<Item = Combination> {
    combinations().into_iter().filter(|(optimizer, ..)| optimizer.name == "sgd")
}

#[test]
fn the_same_bits_with_any_number_of_servers() {
    let clipped = Config { transforms: clip(1.5), forward_overlap: false, noise_scale: true, ..config() };
    let scaling = LossScaling { initial: 16.0, ..LossScaling::default() };
    let scaled = Config { loss_scaling: Some(scaling), ..config() };
    for (number, combination) in reductions().enumerate() {
        for config in
            [config(), scaled.clone(), clipped.clone()].into_iter().take(if number == 0 { 3 } else { 2 })
        {
            let expected = alone(&combination, &config);
            for transport in [&SHM, &TCP] {
                let counts = (1..=4).flat_map(|workers| (0..=2).map(move |servers| (workers, servers)));
                // All of them with the sum.
                for (workers, servers) in
                    counts.filter(|counts| number == 0 || [(2, 1), (3, 2)].contains(counts))
                {
                    let (direct, config) = ((workers + servers) % 2 == 0, config.clone());
                    let generations = vec![Generation { workers, servers, death: None }];
                    let run =
                        Run { transport, direct, combination: combination.clone(), config, generations };
                    assert!(run.ends().iter().all(|end| *end == expected), "{run:?}");
                }
            }
        }
    }
}

#[test]
fn a_server_that_dies_is_a_member_that_dies() {
    let generation = |workers, servers, death| Generation { workers, servers, death };
    // Copies every few steps, for reductions that keep state for each shard.
    let config = Config { backup_every: 2, ..config() };
    for combination in reductions().filter(|(.., reduction)| ["sum", "powersgd"].contains(&reduction.name()))
    {
        let expected = alone(&combination, &config);
        for (transport, moment) in
            [&SHM, &TCP].into_iter().flat_map(|transport| (0..3).map(move |n| (transport, n)))
        {
            for generations in [
                // A server dies without a replacement; then the last one.
                vec![
                    generation(3, 2, Some((Role::Server, 3, moment))),
                    generation(3, 1, Some((Role::Server, 6, (moment + 1) % 3))),
                    generation(3, 0, None),
                ],
                // A server dies, another one joins; a worker dies, and another one joins.
                vec![
                    generation(2, 1, Some((Role::Server, 4, moment))),
                    generation(2, 1, Some((Role::Worker, 7, moment))),
                    generation(2, 2, None),
                ],
                // A worker dies, and the servers outnumber the remaining workers.
                vec![generation(2, 2, Some((Role::Worker, 5, moment))), generation(1, 2, None)],
            ] {
                let (combination, config) = (combination.clone(), config.clone());
                let run = Run { transport, direct: moment != 1, combination, config, generations };
                for (bits, losses) in run.ends() {
                    assert!(bits == expected.0, "{run:?}");
                    let first = *losses.keys().next().unwrap();
                    let seen = expected.1.range(first..).map(|(step, loss)| (*step, *loss));
                    assert!(losses.into_iter().eq(seen), "{run:?}");
                }
            }
        }
    }
}

/// Returns the errors of a job's ranks; `servers` marks servers.
fn refused(servers: &[bool], config: &Config) -> Vec<String> {
    threads::spawn(servers.len(), |group| {
        let rank = group.rank().0;
        let group = if servers[rank] { group.into_server() } else { group };
        refusal(group, config)
    })
    .unwrap()
}

#[test]
fn ranks_that_cannot_train_together_get_one_sentence() {
    let config = Config { shards: Some(4), straggler: Policy::Warn, ..Config::default() };
    let weights = |weights: &[f64]| Config { shares: Some(weights.to_vec()), ..config.clone() };
    let all = |errors: Vec<String>, text: &str| {
        assert!(errors.iter().all(|error| error.contains(text)), "{text}: {errors:?}");
    };
    all(refused(&[true, true], &config), "all of 2 ranks are summation servers; start workers");
    all(refused(&[true, false], &config), "rank 0 is a summation server");
    all(refused(&[false, false, true], &weights(&[1.0, 1.0, 1.0])), "3 weights for 2 workers");
    assert!(refused(&[false, false, true], &weights(&[3.0, 1.0])).iter().all(String::is_empty));
    // One shard for each worker.
    let config = Config { shards: None, ..Config::default() };
    assert!(refused(&[false, true, false], &config).iter().all(String::is_empty));
}
