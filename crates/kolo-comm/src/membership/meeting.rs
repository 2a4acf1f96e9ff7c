//! How ranks that found a group show each other what the others must know, and get their connections.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Ground;
use crate::group::Group;
use crate::transport::channel::Channel;
use crate::transport::data_listener::{Caller, Calls};
use kolo_rendezvous::Error;
use kolo_rendezvous::Liveness;
use kolo_rendezvous::store::Store;
use kolo_schedule::Rank;

/// The ranks that found a group, while they do.
pub(crate) struct Meeting<'a> {
    pub(super) via: Via<'a>,
    pub(super) world: usize,
    pub(super) timeout: Duration,
    pub(super) liveness: &'a Liveness,
}

/// Where they talk.
pub(super) enum Via<'a> {
    /// Over the job's store.
    Store { store: &'a mut Store, address: SocketAddr, rank: Rank },
    /// Over a group, all of whose ranks take part in every exchange, whatever group they found.
    Group { group: &'a Group, members: &'a [Rank] },
}

impl<'a> Meeting<'a> {
    /// Among some members of a group.
    pub(crate) fn within(group: &'a Group, ground: &Ground, members: &'a [Rank]) -> Self {
        let (via, timeout) = (Via::Group { group, members }, ground.timeout);
        Meeting { via, world: members.len(), timeout, liveness: group.liveness() }
    }

    /// Shows this rank's value and collects everybody's.
    pub(super) fn exchange<S: Serialize, T: for<'de> Deserialize<'de>>(
        &mut self,
        topic: &str,
        own: &S,
    ) -> Result<Vec<T>, Error> {
        let bad =
            |cause: serde_json::Error| Error::system(format!("rendezvous: unreadable `{topic}`"), cause);
        let own = serde_json::to_string(own).map_err(bad)?;
        let texts = match &mut self.via {
            Via::Store { store, address, rank } => {
                let set = store.set(&format!("{topic}/{}", rank.0), own);
                set.map_err(|error| self.liveness.failure_or(error))?;
                let (address, until) = (*address, Instant::now() + self.timeout);
                let (mut texts, mut missing) = (Vec::new(), Vec::new());
                for peer in 0..self.world {
                    match wait_for(store, &format!("{topic}/{peer}"), until, self.liveness)? {
                        Some(text) => texts.push(text),
                        None => missing.push(Rank(peer)),
                    }
                }
                if !missing.is_empty() {
                    return Err(Error::Missing { missing, address, waited: self.timeout });
                }
                texts
            }
            Via::Group { group, members } => {
                let all = group.all_gather_varied(own.as_bytes())?;
                members.iter().map(|member| String::from_utf8_lossy(&all[member.0]).into_owned()).collect()
            }
        };
        texts.iter().map(|text| serde_json::from_str(text).map_err(bad)).collect()
    }

    /// Connections to each of `peers`: this rank calls those below it and is called by those above.
    pub(super) fn connect(
        &self,
        rank: Rank,
        calls: &Calls<'_>,
        addresses: &[Option<SocketAddr>],
        peers: &[usize],
        streams: usize,
    ) -> Result<Vec<Vec<Channel>>, Error> {
        let own = calls.address()?;
        let mut channels: Vec<Vec<Option<Channel>>> = (0..self.world).map(|_| Vec::new()).collect();
        peers.iter().for_each(|&peer| channels[peer].resize_with(streams, || None));
        let until = Instant::now() + self.timeout;
        for &peer in peers.iter().filter(|&&peer| peer < rank.0) {
            let silent = || Error::Invalid(format!("rank {peer} does not listen for data connections"));
            let address = addresses[peer].ok_or_else(silent)?;
            for (stream, channel) in channels[peer].iter_mut().enumerate() {
                let caller = Caller { rank, stream };
                *channel = Some(calls.call(caller, Rank(peer), address, until, self.liveness)?);
            }
        }
        while let Some(&missing) = peers.iter().find(|&&peer| channels[peer].iter().any(Option::is_none)) {
            if let Some((caller, channel)) = calls.next(Duration::from_millis(50)) {
                let of_rank = channels.get_mut(caller.rank.0).filter(|_| caller.rank > rank);
                match of_rank.and_then(|streams| streams.get_mut(caller.stream)) {
                    // A rank that calls again has lost its first connection.
                    Some(place) => *place = Some(channel),
                    None => log::debug!("refused a data connection: {rank} is not called by {caller:?}"),
                }
            }
            if let Some(error) = self.liveness.failure() {
                return Err(error);
            }
            if Instant::now() > until {
                let (missing, waited) = (vec![Rank(missing)], self.timeout);
                return Err(Error::Missing { missing, address: own, waited });
            }
        }
        Ok(channels.into_iter().map(|streams| streams.into_iter().flatten().collect()).collect())
    }
}

/// Waits in short turns, because a rank may die while others wait for it.
fn wait_for(
    store: &mut Store,
    key: &str,
    until: Instant,
    liveness: &Liveness,
) -> Result<Option<String>, Error> {
    loop {
        let rest = until.saturating_duration_since(Instant::now());
        let answer = store.get(key, rest.min(Duration::from_millis(500)));
        match (answer, liveness.failure()) {
            (_, Some(error)) => return Err(error),
            (Ok(None), None) if !rest.is_zero() => {}
            (answer, None) => return answer.map_err(|error| liveness.failure_or(error)),
        }
    }
}
