//! How a job gets servers that hold its weights: what is refused, and the group of each worker and server.

use kolo_comm::Group;
use serde::Deserialize;

use super::message::Pair;
use super::part_state::{PartState, Plan};
use super::parts;
use super::server::Server;
use super::stale_mode::{Role, Stale};
use super::worker::{ServerPart, Worker};
use crate::config::Config;
use crate::error::Error;
use crate::reduction::REDUCTIONS;
use crate::replica::core::Core;
use crate::staleness::Staleness;
use crate::statistics::Statistics;
use crate::straggler::Policy;
use crate::sync::mode::{Made, another, refuse_islands, refused};
use crate::sync::table::Synchronization;
use crate::sync::traits::SyncTraits;
use crate::verify::is_watched;
use kolo_optim::table::{Entry, Setting};
use kolo_optim::{Optimizer, Scope};

pub(in crate::sync) const STALE: Entry<Synchronization> = Entry {
    name: "stale",
    about: "asynchronous SGD through servers, K steps stale at most: promises no bits (Ho et al. 2013)",
    settings: &[Setting::whole("K", 3, 0..u64::MAX, "Steps that a worker may be ahead of the slowest one")],
    make: |settings| {
        let BoundSetting { bound } = settings.read();
        let traits = SyncTraits { staleness_bound: Some(bound as u64), ..SyncTraits::default() };
        Box::new(Synchronization { traits, make })
    },
};

#[derive(Deserialize)]
struct BoundSetting {
    #[serde(rename = "K")]
    bound: f64,
}

/// Makes the mode, before this rank is a worker or a server.
///
/// # Errors
///
/// A setting excludes it.
fn make(config: &Config, _: usize, optimizer: Box<dyn Optimizer>) -> Result<Made, Error> {
    refuse_islands(config)?;
    if let Some(problem) = obstacle(config, &*optimizer)? {
        return Err(refused(config, &problem));
    }
    let mode = Box::new(Stale {
        bound: config.sync.staleness_bound().unwrap_or(0),
        role: None,
        must_load: false,
        updates: 0,
        gathered: 0,
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
        let (group, layout) = (&outer.group, &outer.layout);
        let (workers, servers) = (outer.workers(), outer.server_ranks());
        let whole_tensors = outer.optimizer.scope() == Scope::Tensor;
        let cut = parts::cut(layout, servers.len(), whole_tensors);
        let mut pairs: Vec<(usize, Group)> = Vec::new();
        for turn in parts::pairs(workers.len(), servers.len()) {
            let own = turn.into_iter().find(|(worker, server)| {
                workers[*worker] == group.rank() || servers[*server] == group.rank()
            });
            let pair = group.split(own.map(|(worker, _)| worker as u32), 0)?;
            let other = own.map(|(worker, server)| if outer.server { worker } else { server });
            pairs.extend(other.zip(pair));
        }
        pairs.sort_by_key(|(other, _)| *other);
        let pairs = pairs.into_iter().map(|(_, pair)| Pair::new(pair));
        let Some(number) = servers.iter().position(|server| *server == group.rank()) else {
            let part = |(pair, place)| ServerPart { pair, slices: parts::slices(layout, &place), place };
            return Ok(Role::Worker(Worker::new(pairs.zip(cut).map(part).collect(), layout.len())));
        };
        let shares = outer.step.shares();
        let plan = Plan {
            layout: layout.clone(),
            groups: outer.groups.clone(),
            place: cut[number].clone(),
            bound: self.bound,
            shares: workers.iter().map(|worker| shares[worker.0] as f64 / outer.shards as f64).collect(),
            tells_losses: number == 0,
        };
        let mut optimizer = another(&*outer.optimizer).ok_or(Error::Lost)?;
        if !outer.config.groups.is_empty() {
            optimizer.set_groups(outer.groups.settings())?;
        }
        optimizer.init(layout);
        let part = PartState::new(plan, optimizer);
        Ok(Role::Server(Server::start(group.clone(), workers, pairs.collect(), part)?))
    }
}

/// Why asynchronous training cannot be as it is configured, and what to do, if so.
fn obstacle(config: &Config, optimizer: &dyn Optimizer) -> Result<Option<String>, Error> {
    let problem = if config.elastic {
        "cannot go on without a worker or a server that dies, because each has what nobody else has; train with workers that stay \
         (`Config::elastic: false`)"
    } else if is_watched()? {
        "promises no bits, so there is nothing that `kolo verify` or `kolo chaos` could compare; take another one"
    } else if config.reduction.name() != REDUCTIONS[0].name {
        "sends each gradient to the servers as it is; leave the reduction at `sum`"
    } else if !config.transforms.is_empty() {
        "has no gradient of all shards that a transform, such as clipping, could look at; leave transforms out"
    } else if config.loss_scaling.is_some() {
        "has no step of all shards in which an overflow could be agreed on; compute in bf16 or f32"
    } else if config.noise_scale {
        "has no batch of all shards in each step, between which and a shard the noise scale is measured; leave it out"
    } else if config.statistics == Statistics::Local {
        "keeps running statistics on the servers, as it does weights; they cannot be each worker's own"
    } else if !matches!(config.straggler, Policy::Warn) {
        "lets each worker go at its own pace, so no shards are moved and nobody is dropped; leave what becomes of stragglers at `warn`"
    } else if another(optimizer).is_none() {
        return Ok(Some(format!(
            "needs an optimizer on each server, and `{}` cannot make another one: implement `Optimizer::another`",
            optimizer.name()
        )));
    } else {
        return Ok(None);
    };
    Ok(Some(problem.into()))
}
