//! Setup of servers that hold the weights: excluded settings, and a group for each pair of worker and
//! server.

use kolo_comm::{Group, Rank};
use serde::Deserialize;

use super::message::Pair;
use super::pairs::pairs;
use super::part_state::{PartState, Plan};
use super::server::Server;
use super::stale_mode::{Role, Stale};
use super::worker::{ServerPart, Worker};
use crate::config::Config;
use crate::replica::core::Core;
use crate::staleness::Staleness;
use crate::sync::exclusion::{JobSetting, NO_GLOBAL_BATCH, NO_ISLANDS, NO_PLAIN_STEP, NO_TURNS};
use crate::sync::mode::{Made, another, refused};
use crate::sync::synchronization::Synchronization;
use crate::sync::traits::SyncTraits;
use crate::verify::is_watched;
use kolo_optim::Optimizer;
use kolo_optim::table::{Entry, Setting};
use kolo_reduction::{Error, Owners, slices};

pub(in crate::sync) const STALE: Entry<Synchronization> = Entry {
    name: "stale",
    about: "asynchronous SGD through servers, each worker at its own pace: promises no bits (Ho et al. 2013)",
    settings: &[Setting::whole(
        "K",
        3,
        0..u64::MAX,
        "Most steps by which the slowest worker may be behind one that pulls weights",
    )],
    make: |settings| {
        let BoundSetting { bound } = settings.read();
        let traits = SyncTraits { staleness_bound: Some(bound as u64), ..SyncTraits::default() };
        Box::new(Synchronization { traits, excludes: EXCLUDES, make })
    },
};

const EXCLUDES: &[(JobSetting, &str)] = &[
    NO_ISLANDS,
    (
        JobSetting::Elastic,
        "cannot continue without a worker or a server that dies, because each has state that no other has",
    ),
    NO_GLOBAL_BATCH,
    (JobSetting::LocalStatistics, "keeps running statistics on the servers, as it does weights"),
    (
        JobSetting::NoiseScale,
        "has no batch of all shards in each step, between which and a shard the noise scale is measured",
    ),
    (
        JobSetting::Straggler,
        "lets each worker go at its own pace, so Kolo moves no shards and drops no worker",
    ),
    (JobSetting::Reduction, "sends each gradient to the servers as it is"),
    (
        JobSetting::Transforms,
        "has no gradient of all shards that a transform, such as clipping, could look at",
    ),
    (JobSetting::LossScaling, "has no step of all shards in which an overflow could be agreed on"),
    NO_TURNS,
    NO_PLAIN_STEP,
    (JobSetting::Offload, "has servers hold the optimizers' state, in memory"),
];

#[derive(Deserialize)]
struct BoundSetting {
    #[serde(rename = "K")]
    bound: f64,
}

/// Creates the mode, before this rank is a worker or a server. Errors: a setting excludes the mode.
fn make(config: &Config, _: usize, optimizer: Box<dyn Optimizer>) -> Result<Made, Error> {
    if is_watched()? {
        let problem = "promises no bits, so there is nothing that `kolo verify` or `kolo chaos` could compare; take another one";
        return Err(refused(config, problem));
    }
    if another(&*optimizer).is_none() {
        let problem = format!(
            "needs an optimizer on each server, and `{}` cannot make another one: implement `Optimizer::another`",
            optimizer.name()
        );
        return Err(refused(config, &problem));
    }
    let mode = Box::new(Stale {
        bound: config.sync.traits().staleness_bound.unwrap_or(0),
        role: None,
        must_load: false,
        updates: 0,
        began: 0,
        rates: Vec::new(),
        ends: false,
        known: Vec::new(),
        staleness: Staleness::default(),
    });
    Ok(Made { config: config.clone(), optimizer, mode })
}

impl Stale {
    /// Makes this rank a worker or a server. A collective.
    pub(super) fn connect(&self, outer: &Core) -> Result<Role, Error> {
        let (group, layout) = (&outer.ranks.group, &outer.weights.layout);
        let (workers, servers) = (outer.workers(), outer.server_ranks());
        let owners = Owners::split(layout, outer.weights.optimizer.scope(), &servers, 1);
        let place = |server: Rank| owners.runs_of(server).next().unwrap_or(0..0);
        let mut groups: Vec<(usize, Group)> = Vec::new();
        for turn in pairs(workers.len(), servers.len()) {
            let own = turn.into_iter().find(|(worker, server)| {
                workers[*worker] == group.rank() || servers[*server] == group.rank()
            });
            let pair = group.split(own.map(|(worker, _)| worker as u32), 0)?;
            let other = own.map(|(worker, server)| if outer.ranks.server { worker } else { server });
            groups.extend(other.zip(pair));
        }
        groups.sort_by_key(|(other, _)| *other);
        let pairs = groups.into_iter().map(|(_, pair)| Pair::new(pair));
        let Some(number) = servers.iter().position(|server| *server == group.rank()) else {
            let part = |(pair, server): (Pair, &Rank)| {
                let place = place(*server);
                ServerPart { pair, slices: slices(layout, &place), place }
            };
            return Ok(Role::Worker(Worker::new(pairs.zip(&servers).map(part).collect(), layout.len())));
        };
        let shares = outer.step.shares();
        let plan = Plan {
            layout: layout.clone(),
            groups: outer.weights.groups.clone(),
            place: place(servers[number]),
            bound: self.bound,
            shares: workers
                .iter()
                .map(|worker| shares[worker.0] as f64 / outer.ranks.shards as f64)
                .collect(),
            tells_losses: number == 0,
        };
        let mut optimizer = another(&*outer.weights.optimizer).ok_or(Error::Lost)?;
        if !outer.config.groups.is_empty() {
            optimizer.set_groups(outer.weights.groups.settings())?;
        }
        optimizer.init(layout);
        let part = PartState::new(plan, optimizer);
        Ok(Role::Server(Server::start(group.clone(), workers, pairs.collect(), part)?))
    }
}
