//! Check that all ranks hold the same weights. Each rank sends one hash, and only if they differ one for
//! each tensor.

use kolo_comm::{Group, Rank};

use kolo_optim::{Kind, Layout};
use kolo_reduction::Error;

use crate::fingerprints;

/// Compares the fingerprints of all tensors, or of all but the statistics, of all ranks but `servers`. A
/// collective: one all-gather of 8 bytes a rank, and a second one of 8 bytes a tensor if the ranks differ.
///
/// # Errors
///
/// [`Error::Drift`], the same on all ranks, or a collective failed.
pub fn compare(
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

/// Compares parts of a state that several ranks hold: `holders` of each part, and this rank's fingerprints of
/// what is in it, in the order of the tensors; none of parts that others hold. `name` names one of them by
/// its part and its place. A collective: one all-gather of 8 bytes a part, and a second one of a part's
/// fingerprints if its holders differ.
///
/// # Errors
///
/// [`Error::Drift`], the same on all ranks, or a collective failed.
pub fn compare_parts(
    group: &Group,
    holders: &[&[Rank]],
    own: &[Vec<u64>],
    step: u64,
    name: impl Fn(usize, usize) -> String,
) -> Result<(), Error> {
    let wholes: Vec<i64> =
        own.iter().map(|prints| fingerprints::all(prints.iter().copied()) as i64).collect();
    let mut all = vec![0; group.world_size() * wholes.len()];
    group.all_gather(&wholes, &mut all)?;
    let whole = |rank: &Rank, part: usize| all[rank.0 * wholes.len() + part];
    let is_equal =
        |part: usize| holders[part].iter().all(|rank| whole(rank, part) == whole(&holders[part][0], part));
    let Some(part) = (0..holders.len()).find(|part| !is_equal(*part)) else { return Ok(()) };
    let prints: Vec<Vec<i64>> =
        group.all_gather_value(&own[part].iter().map(|print| *print as i64).collect::<Vec<_>>())?;
    let mut ranks = holders[part].to_vec();
    ranks.sort_unstable();
    let rows: Vec<&[i64]> = ranks.iter().map(|rank| &prints[rank.0][..]).collect();
    match odd_one(&rows) {
        Some(odd) => Err(Error::Drift {
            step,
            rank: ranks[odd.rank.0],
            parameter: name(part, odd.tensor),
            reference: ranks[odd.reference.0],
            agreed: odd.agreed,
            world: ranks.len(),
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
    use super::*;

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
}
