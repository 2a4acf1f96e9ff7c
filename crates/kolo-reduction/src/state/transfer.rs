//! Transfers of state between ranks.

use kolo_comm::{Error, Group, Rank};

use super::copy::StateCopy;
use super::redistribute::Transfer;

/// Runs transfers, which are the same on all ranks: `state` has what this rank sends, and takes what it
/// receives. All ranks of `group` call it.
///
/// Arrays for all others are broadcast. Other messages go in turns, in each of which a rank sends at most one
/// array and receives at most one.
///
/// # Errors
///
/// A rank died, left or did not take part in time (naming it).
pub fn transfer(group: &Group, transfers: &[Transfer], state: &mut StateCopy) -> Result<(), Error> {
    let (rank, world) = (group.rank(), group.world_size());
    let to_all = |transfer: &&Transfer| transfer.to.len() > 1 && transfer.to.len() + 1 == world;
    for Transfer { name, place, from, .. } in transfers.iter().filter(to_all) {
        group.broadcast(state.run_mut(name, place.clone()), *from)?;
    }
    for turn in turns(transfers.iter().filter(|transfer| !to_all(transfer))) {
        let sent = turn.iter().find(|(transfer, _)| transfer.from == rank);
        let received = turn.iter().find(|(_, to)| *to == rank);
        let data = sent.map(|(sent, to)| (state.run_mut(&sent.name, sent.place.clone()).to_vec(), *to));
        let into = received.map(|(new, _)| (state.run_mut(&new.name, new.place.clone()), new.from));
        match (data, into) {
            (Some((data, to)), Some((into, from))) => group.send_receive(&data, to, into, from)?,
            (Some((data, to)), None) => group.send(&data, to)?,
            (None, Some((into, from))) => group.receive(into, from)?,
            (None, None) => {}
        }
    }
    Ok(())
}

/// Returns the messages of transfers in turns.
fn turns<'a>(transfers: impl Iterator<Item = &'a Transfer>) -> Vec<Vec<(&'a Transfer, Rank)>> {
    let mut turns: Vec<Vec<(&Transfer, Rank)>> = Vec::new();
    for (transfer, to) in transfers.flat_map(|transfer| transfer.to.iter().map(move |to| (transfer, *to))) {
        let is_free = |turn: &&mut Vec<(&Transfer, Rank)>| {
            turn.iter().all(|(other, taker)| other.from != transfer.from && *taker != to)
        };
        match turns.iter_mut().find(is_free) {
            Some(turn) => turn.push((transfer, to)),
            None => turns.push(vec![(transfer, to)]),
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Holdings, StateKind, StateName, redistribute};
    use kolo_comm::threads;

    #[test]
    fn a_ring_takes_one_turn() {
        let ring = |(from, to): (usize, usize)| Transfer {
            name: StateName::of_shard(StateKind::Reduction, "e", from),
            place: 0..3,
            from: Rank(from),
            to: vec![Rank(to)],
        };
        let transfers: Vec<Transfer> = [(0, 1), (1, 2), (2, 0), (0, 2)].map(ring).into();
        let turns = turns(transfers.iter());
        assert_eq!(turns.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);
    }

    /// Rank 0 wants all shards, everyone the weights of rank 1, and the last rank its predecessor's shard.
    #[test]
    fn every_rank_has_what_it_wants_afterwards() {
        const LEN: usize = 5;
        let weights = StateName::of_job(StateKind::Weights, "");
        let shard = |shard| StateName::of_shard(StateKind::Reduction, "e", shard);
        for world in 1..5 {
            let giver = world.min(2) - 1;
            let of = |names: Vec<StateName>| Holdings(names.into_iter().map(|name| (name, 0..LEN)).collect());
            let have: Vec<Holdings> = (0..world)
                .map(|rank| {
                    of((rank == giver).then(|| weights.clone()).into_iter().chain([shard(rank)]).collect())
                })
                .collect();
            let wanted = |rank: usize| match rank {
                0 => [weights.clone()].into_iter().chain((0..world).map(shard)).collect(),
                _ if rank + 1 == world => vec![weights.clone(), shard(rank - 1)],
                _ => vec![weights.clone()],
            };
            let want: Vec<Holdings> = (0..world).map(|rank| of(wanted(rank))).collect();
            let transfers = redistribute(&have, &want).unwrap();
            let value = |name: &StateName| name.shard.map_or(100.0, |shard| shard as f32);
            threads::spawn(world, |group| {
                let rank = group.rank().0;
                let mut state = StateCopy::new(LEN);
                for (name, place) in &have[rank].0 {
                    state.run_mut(name, place.clone()).fill(value(name));
                }
                transfer(&group, &transfers, &mut state).unwrap();
                for (name, _) in &want[rank].0 {
                    assert_eq!(state.array(name).unwrap(), [value(name); LEN], "{world} ranks, rank {rank}");
                }
            })
            .unwrap();
        }
    }
}
