//! What every rank shows the others before NCCL is called: with one rank missing it would wait, and it explains little.

use serde::{Deserialize, Serialize};

use kolo_comm::Group;
use kolo_rendezvous::Error;
use kolo_schedule::Rank;

/// One rank's part.
#[derive(Serialize, Deserialize)]
pub(super) struct Card {
    /// Why it cannot take part.
    pub(super) obstacle: Option<String>,
    /// Its device, told apart from all others.
    pub(super) device: String,
    /// Its version of NCCL.
    pub(super) version: String,
}

/// Whether all ranks can go on; the same answer on all of them. A collective.
pub(super) fn agree(group: &Group, own: &Card) -> Result<(), Error> {
    let cards: Vec<Card> = group.all_gather_value(own)?;
    match problem(&cards, group.members()) {
        None => Ok(()),
        Some(problem) => Err(Error::Invalid(problem)),
    }
}

fn problem(cards: &[Card], members: &[Rank]) -> Option<String> {
    let obstacle =
        cards.iter().zip(members).find_map(|(card, rank)| card.obstacle.as_ref().map(|why| (rank, why)));
    if let Some((rank, why)) = obstacle {
        return Some(format!("{rank} cannot take part in NCCL: {why}"));
    }
    if let Some(other) = cards.iter().position(|card| card.version != cards[0].version) {
        let (first, second) = (&cards[0].version, &cards[other].version);
        let (zero, other) = (members[0], members[other]);
        return Some(format!(
            "{zero} has NCCL {first}, but {other} has {second}; install one version everywhere"
        ));
    }
    let pairs = (0..cards.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
    let (a, b) = pairs.into_iter().find(|(a, b)| cards[*a].device == cards[*b].device)?;
    Some(format!("{} and {} use the same device; NCCL needs one for each rank", members[a], members[b]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(device: &str, version: &str, obstacle: Option<&str>) -> Card {
        Card { obstacle: obstacle.map(Into::into), device: device.into(), version: version.into() }
    }

    #[test]
    fn all_must_be_able_and_alike() {
        let members = [Rank(4), Rank(5), Rank(6)];
        let problem = |cards: [Card; 3]| problem(&cards, &members).unwrap_or_default();
        let good = || card("a", "2.27.3", None);
        assert_eq!(problem([good(), card("b", "2.27.3", None), card("c", "2.27.3", None)]), "");
        let blocked = problem([good(), card("", "", Some("no driver")), good()]);
        assert_eq!(blocked, "rank 5 cannot take part in NCCL: no driver");
        let versions = problem([good(), card("b", "2.27.3", None), card("c", "2.20.5", None)]);
        assert!(versions.contains("rank 4 has NCCL 2.27.3, but rank 6 has 2.20.5"), "{versions}");
        let doubled = problem([good(), card("b", "2.27.3", None), card("b", "2.27.3", None)]);
        assert!(doubled.contains("rank 5 and rank 6 use the same device"), "{doubled}");
    }
}
