//! Descriptions of missing nodes and members, for the user.

use super::context::Context;
use kolo_schedule::words::counted;

/// States how many nodes have joined and, if users number the nodes, which ones are missing.
pub(super) fn nodes_missing(context: &Context, came: &[usize]) -> String {
    let needed = context.limits.min;
    let verb = if came.len() == 1 { "has" } else { "have" };
    let mut text = format!("{} of {} {verb} come", came.len(), counted(needed, "node"));
    if context.ranks_given {
        let missing = (0..needed).filter(|rank| !came.contains(rank)).map(|rank| format!("node {rank}"));
        text += &format!(", without {}", list(missing));
    }
    text
}

/// Joins names by commas; of many names only the first.
pub(super) fn list(names: impl Iterator<Item = String>) -> String {
    const SHOWN: usize = 8;
    let mut names: Vec<String> = names.collect();
    let more = names.len().saturating_sub(SHOWN);
    names.truncate(SHOWN);
    let text = names.join(", ");
    if more > 0 { format!("{text} and {}", counted(more, "other")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_of_many_names_are_shown() {
        let names = |count: usize| list((0..count).map(|n| format!("node {n}")));
        assert_eq!(names(2), "node 0, node 1");
        assert!(names(20).ends_with("node 7 and 12 others"), "{}", names(20));
        assert!(names(9).ends_with("node 7 and 1 other"), "{}", names(9));
    }
}
