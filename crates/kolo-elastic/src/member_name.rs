//! Names of members, and the environment variables that make a worker a member.

/// Environment variable with the address of the coordinator of a worker's node.
pub const COORDINATOR: &str = "KOLO_COORDINATOR";
/// Environment variable with a worker's name among the job's members, as [`member_name`] makes it.
pub const MEMBER: &str = "KOLO_MEMBER";

/// Name of a member: the rank of its node, the local number of its worker there, and the number of workers
/// that the launcher started in that place before it. A replacement has a name of its own, so late messages
/// about the dead worker are never taken for messages about it.
///
/// ```
/// assert_eq!(kolo_elastic::member_name(1, 3, 0), "node1/3.0");
/// ```
pub fn member_name(node_rank: usize, local: usize, before: usize) -> String {
    format!("node{node_rank}/{local}.{before}")
}

pub(crate) fn initial_members(node_rank: usize, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |local| member_name(node_rank, local, 0))
}

/// Rank of the node in a member's name; `None` if the name contains none.
pub fn node_rank_of(member: &str) -> Option<usize> {
    member.split('/').next()?.strip_prefix("node")?.parse().ok()
}
