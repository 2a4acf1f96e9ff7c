//! Ranks with different settings.

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check =
    Check { name: "settings", about: "a rank that was started with other settings than rank 0", find };

fn find(facts: &Facts) -> Option<Found> {
    let first = &facts.ranks.first()?.settings;
    let rank = facts.ranks.iter().position(|other| other.settings != *first)?;
    let (own, other) = difference(first, &facts.ranks[rank].settings);
    Some((
        Severity::Error,
        format!("rank 0 was started with {own}, {} with {other}", facts.name(rank)),
        "All ranks train one model by one recipe; a job whose ranks were given several is refused when they meet.".into(),
        "Give the same options on every node; a file (--config FILE) is the surest.".into(),
    ))
}

/// Returns the first line in which two texts differ, from each of them.
fn difference<'a>(one: &'a str, other: &'a str) -> (&'a str, &'a str) {
    let (mut own, mut theirs) = (one.lines(), other.lines());
    loop {
        match (own.next(), theirs.next()) {
            (None, None) => return ("other settings", "other settings"),
            (own, theirs) if own != theirs => return (own.unwrap_or("less"), theirs.unwrap_or("less")),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_first_setting_that_differs_is_named() {
        let mut facts = example::hosts(2);
        facts.ranks[1].settings = facts.ranks[1].settings.replace("seed = 0", "seed = 7");
        let (severity, what, ..) = find(&facts).unwrap();
        assert_eq!(severity, Severity::Error);
        assert_eq!(what, "rank 0 was started with seed = 0, rank 1 on b with seed = 7");
    }
}
