//! Checks before NCCL is called: it would wait for a missing rank, and its errors explain little.

use serde::{Deserialize, Serialize};

use kolo_comm::Group;
use kolo_rendezvous::{BackendError, Error};
use kolo_schedule::Rank;

/// The facts that one rank sends to the others.
#[derive(Serialize, Deserialize)]
pub(super) struct PeerInfo {
    /// Reason why the rank cannot take part.
    pub(super) obstacle: Option<String>,
    /// Identifier of its device: NCCL does not take two ranks with the same one.
    pub(super) device: String,
    /// Its version of NCCL.
    pub(super) version: String,
}

/// Checks that all ranks can go on, with the same result on all of them. A collective.
pub(super) fn agree(group: &Group, own: &PeerInfo) -> Result<(), Error> {
    let infos: Vec<PeerInfo> = group.all_gather_value(own)?;
    check(&infos, group.members()).map_err(Error::from)
}

/// Checks that the ranks can use NCCL together. `members` are the job's ranks of those that sent `infos`.
fn check(infos: &[PeerInfo], members: &[Rank]) -> Result<(), BackendError> {
    let backend = || "NCCL".to_string();
    for (info, rank) in infos.iter().zip(members) {
        if let Some(cause) = &info.obstacle {
            return Err(BackendError::Absent { rank: *rank, backend: backend(), cause: cause.clone() });
        }
    }
    if let Some(other) = infos.iter().position(|info| info.version != infos[0].version) {
        return Err(BackendError::Versions {
            backend: backend(),
            first: members[0],
            first_version: infos[0].version.clone(),
            second: members[other],
            second_version: infos[other].version.clone(),
        });
    }
    let mut pairs = (0..infos.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
    match pairs.find(|(a, b)| infos[*a].device == infos[*b].device) {
        Some((a, b)) => {
            Err(BackendError::SameDevice { backend: backend(), first: members[a], second: members[b] })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(device: &str, version: &str, obstacle: Option<&str>) -> PeerInfo {
        PeerInfo { obstacle: obstacle.map(Into::into), device: device.into(), version: version.into() }
    }

    #[test]
    fn all_must_be_able_and_alike() {
        let members = [Rank(4), Rank(5), Rank(6)];
        let problem =
            |infos: [PeerInfo; 3]| check(&infos, &members).err().map_or(String::new(), |e| e.to_string());
        let good = || info("a", "2.27.3", None);
        assert_eq!(problem([good(), info("b", "2.27.3", None), info("c", "2.27.3", None)]), "");
        let blocked = problem([good(), info("", "", Some("no driver")), good()]);
        assert_eq!(blocked, "rank 5 cannot take part in NCCL: no driver");
        let versions = problem([good(), info("b", "2.27.3", None), info("c", "2.20.5", None)]);
        assert!(versions.contains("rank 4 has NCCL 2.27.3, but rank 6 has 2.20.5"), "{versions}");
        let doubled = problem([good(), info("b", "2.27.3", None), info("b", "2.27.3", None)]);
        assert!(doubled.contains("rank 5 and rank 6 use the same device"), "{doubled}");
    }
}
