//! Check that all ranks hold the same weights. Each rank sends one hash, and only if they differ one for
//! each tensor.

use kolo_comm::{Group, Rank};

use super::fingerprints;
use kolo_optim::{Kind, Layout};
use kolo_reduction::Error;

/// Compares the fingerprints of all tensors, or of all but the statistics, of all ranks but `servers`. A
/// collective: one all-gather of 8 bytes a rank, and a second one of 8 bytes a tensor if the ranks differ.
///
/// # Errors
///
/// [`Error::Drift`], the same on all ranks, or a collective failed.
pub(super) fn compare(
    group: &Group,
    layout: &Layout,
    prints: &[u64],
    without_statistics: bool,
    step: u64,
    servers: &[bool],
) -> Result<(), Error> {
    let world = group.world_size();
    let compared =
        |tensor: &usize| !without_statistics || layout.spans()[*tensor].spec.kind != Kind::Statistic;
    let tensors: Vec<usize> = (0..prints.len()).filter(compared).collect();
    let own: Vec<u64> = tensors.iter().map(|tensor| prints[*tensor]).collect();
    let mut wholes = vec![0; world];
    group.all_gather(&[fingerprints::all(own.iter().copied()) as i64], &mut wholes)?;
    let compared: Vec<usize> = (0..world).filter(|rank| servers.get(*rank) != Some(&true)).collect();
    if compared.iter().all(|rank| wholes[*rank] == wholes[compared[0]]) {
        return Ok(());
    }
    let own: Vec<i64> = own.into_iter().map(|print| print as i64).collect();
    let mut all = vec![0; world * own.len()];
    group.all_gather(&own, &mut all)?;
    let rows: Vec<&[i64]> = all.chunks(own.len().max(1)).collect();
    let ranks: Vec<&[i64]> = compared.iter().filter_map(|rank| rows.get(*rank).copied()).collect();
    match odd_one(&ranks) {
        Some(odd) => Err(Error::Drift {
            step,
            rank: Rank(compared[odd.rank.0]),
            parameter: layout.spans()[tensors[odd.tensor]].spec.name.clone(),
            reference: Rank(compared[odd.reference.0]),
            agreed: odd.agreed,
            world: compared.len(),
        }),
        None => Ok(()),
    }
}

/// A rank that differs, the tensor, and the rank it is compared with.
#[derive(Debug, PartialEq)]
struct Odd {
    rank: Rank,
    /// The first tensor in which it differs.
    tensor: usize,
    /// The lowest of the ranks that are assumed to be right, and their number.
    reference: Rank,
    agreed: usize,
}

/// Finds a rank that differs. The most frequent values are assumed to be right; of equally frequent ones,
/// those of the lowest rank. The lowest other rank is returned.
fn odd_one(ranks: &[&[i64]]) -> Option<Odd> {
    let alike = |rank: usize| ranks.iter().filter(|other| **other == ranks[rank]).count();
    let most = (0..ranks.len()).map(alike).max()?;
    let reference = (0..ranks.len()).find(|rank| alike(*rank) == most)?;
    let rank = ranks.iter().position(|prints| *prints != ranks[reference])?;
    let tensor = ranks[rank].iter().zip(ranks[reference]).position(|(own, right)| own != right)?;
    Some(Odd { rank: Rank(rank), tensor, reference: Rank(reference), agreed: most })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kolo_comm::threads;

    use super::*;
    use crate::{Config, ParamSpec, Replica, SpanId, Statistics};
    use kolo_optim::{self, Settings};

    #[test]
    fn most_ranks_are_right_and_rank_0_in_doubt() {
        let (a, b, c) = (&[1, 2, 3][..], &[1, 9, 8][..], &[1, 2, 7][..]);
        let odd = |ranks: &[&[i64]]| {
            odd_one(ranks).map(|odd| (odd.rank.0, odd.tensor, odd.reference.0, odd.agreed))
        };
        assert_eq!(odd(&[a, a, a]), None);
        assert_eq!(odd(&[a, a, b]), Some((2, 1, 0, 2)));
        assert_eq!(odd(&[b, a, a]), Some((0, 1, 1, 2)));
        assert_eq!(odd(&[a, c]), Some((1, 2, 0, 1)));
        assert_eq!(odd(&[c, a, b]), Some((1, 2, 0, 1)));
        assert_eq!(odd(&[]), None);
    }

    /// Trains until a value of one rank changes without the replica's knowledge; returns each rank's error
    /// and its step.
    fn train(world: usize, config: Config, culprit: usize, tensor: usize) -> Vec<Option<(u64, String)>> {
        threads::spawn(world, |group| {
            let rank = group.rank().0;
            let spec = |name: &str, kind| ParamSpec::new(name, vec![40], kind);
            let decay = Kind::Parameter { decay: true };
            let specs = vec![spec("first", decay), spec("mean", Kind::Statistic), spec("last", decay)];
            let sgd = kolo_optim::named("sgd", &Settings::default()).unwrap();
            let mut replica = Replica::new(Arc::new(group), specs, vec![1.0; 120], &config, sgd).unwrap();
            for step in 0..6 {
                for _ in replica.shards() {
                    let mut pass = replica.begin_shard(1.0, 2.0).unwrap();
                    pass.ready(SpanId(2), &[0.5; 40]);
                    pass.ready(SpanId(0), &[0.25; 40]);
                    pass.finish().unwrap();
                }
                if step == 2 && rank == culprit {
                    // The lowest bit of one value.
                    let value = &mut replica.core.weights.values[40 * tensor + 7];
                    *value = f32::from_bits(value.to_bits() ^ 1);
                }
                if let Err(error) = replica.step(0.1) {
                    return Some((step, error.to_string()));
                }
            }
            None
        })
        .unwrap()
    }

    #[test]
    fn a_flipped_bit_is_reported_by_all_ranks_with_rank_and_parameter() {
        let config = |verify_every| Config { shards: Some(3), verify_every, ..Config::default() };
        for (world, every, culprit, tensor, at) in
            [(2, 1, 1, 2, 2), (3, 2, 0, 0, 3), (4, 5, 3, 2, 4), (3, 1, 2, 1, 2)]
        {
            let name = ["first", "mean", "last"][tensor];
            for reported in train(world, config(every), culprit, tensor) {
                let (step, message) = reported.expect("the change should have been seen");
                assert_eq!(step, at, "{message}");
                let rank = format!("`{name}` on rank {culprit}");
                assert!(message.contains(&rank) && message.contains("checkpoint"), "{message}");
            }
        }
        assert!(train(2, config(0), 1, 0).iter().all(Option::is_none), "nobody looks");
        assert!(train(2, config(1), 9, 0).iter().all(Option::is_none), "nothing changes");
    }

    #[test]
    fn local_statistics_may_differ() {
        let config =
            Config { shards: Some(2), verify_every: 1, statistics: Statistics::Local, ..Config::default() };
        assert!(train(2, config.clone(), 1, 1).iter().all(Option::is_none));
        assert!(train(2, config, 1, 0).iter().all(Option::is_some));
    }
}
