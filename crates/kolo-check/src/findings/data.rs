//! Data that cannot be read.

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check = Check { name: "data", about: "a rank that cannot read the data", find };

fn find(facts: &Facts) -> Option<Found> {
    let failed = |rank: &usize| facts.ranks[*rank].data.is_err();
    let ranks: Vec<usize> = (0..facts.ranks.len()).filter(failed).collect();
    let rank = *ranks.first()?;
    let error = facts.ranks[rank].data.as_ref().err()?;
    let others = match ranks.len() {
        1 => String::new(),
        count if count == facts.ranks.len() => ", nor can any other".into(),
        count => format!(", nor can {} more", count - 1),
    };
    Some((
        Severity::Error,
        format!("{} cannot read the data{others}: {error}", facts.name(rank)),
        "Every worker reads the samples of its own shards, and whoever takes a dead one's place those as well.".into(),
        match ranks.len() == facts.ranks.len() {
            true => "Mend what the error names. On several nodes, every one needs the same files at the same place.".into(),
            false => "Make the same files readable at the same place on every node.".into(),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn who_cannot_read_is_named_with_the_reason() {
        let mut facts = example::hosts(3);
        facts.ranks[1].data = Err("no folder /data".into());
        assert_eq!(find(&facts).unwrap().1, "rank 1 on b cannot read the data: no folder /data");
        facts.ranks[2].data = Err("no folder /data".into());
        let (_, what, _, advice) = find(&facts).unwrap();
        assert!(what.starts_with("rank 1 on b cannot read the data, nor can 1 more"), "{what}");
        assert!(advice.starts_with("Make the same files readable"), "{advice}");
        facts.ranks[0].data = Err("a broken file".into());
        let (_, what, _, advice) = find(&facts).unwrap();
        assert!(what.ends_with("nor can any other: a broken file"), "{what}");
        assert!(advice.starts_with("Mend what the error names."), "{advice}");
    }
}
