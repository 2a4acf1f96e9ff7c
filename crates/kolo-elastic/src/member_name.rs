//! How members are named, and the environment variables by which a launcher tells a worker that it is one.

/// The environment variable that holds the address of the coordinator of a worker's node.
pub const COORDINATOR: &str = "KOLO_COORDINATOR";
/// The environment variable that holds a worker's name among the job's members, as [`member_name`] makes it.
pub const MEMBER: &str = "KOLO_MEMBER";

/// The name of a member: the rank of its node, the local number of its worker there, and how many workers
/// have been started in that place before it. A replacement has a name of its own, so that nothing said of
/// the dead worker is taken for its own.
///
/// ```
/// assert_eq!(kolo_elastic::member_name(1, 3, 0), "node1/3.0");
/// ```
pub fn member_name(node_rank: usize, local: usize, before: usize) -> String {
    format!("node{node_rank}/{local}.{before}")
}

/// The names of the first `count` members of a node.
pub(crate) fn initial_members(node_rank: usize, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |local| member_name(node_rank, local, 0))
}

/// The rank of the node in a member's name; `None` where the name tells none.
pub(crate) fn node_rank_of(member: &str) -> Option<usize> {
    node_of(member).strip_prefix("node")?.parse().ok()
}

/// The part of a member's name that all members of its node share.
pub(crate) fn node_of(member: &str) -> &str {
    member.split('/').next().unwrap_or(member)
}
