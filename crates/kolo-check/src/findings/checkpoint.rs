//! A checkpoint that not all ranks can resume from.

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check = Check {
    name: "checkpoint",
    about: "a run to resume without a good checkpoint, with settings or data that do not fit it, or with another one on some rank",
    find,
};

fn find(facts: &Facts) -> Option<Found> {
    let first = facts.ranks.first()?.checkpoint.as_ref()?;
    let differs = facts.ranks.iter().position(|rank| rank.checkpoint.as_ref() != Some(first));
    let describe = |found: &Result<u64, String>| match found {
        Ok(step) => format!("the checkpoint of step {step}"),
        Err(error) => format!("none ({error})"),
    };
    let (what, why) = match (first, differs) {
        (Err(error), None) => {
            (format!("the run cannot continue: {error}"), "`kolo train --resume` would refuse it.")
        }
        (_, Some(rank)) => {
            let other = facts.ranks[rank].checkpoint.as_ref().map_or("none".into(), describe);
            (
                format!("rank 0 would continue from {}, {} from {other}", describe(first), facts.name(rank)),
                "All ranks continue from one state, and each reads it itself.",
            )
        }
        (Ok(_), None) => return None,
    };
    Some((
        Severity::Error,
        what,
        why.into(),
        "Look at what is there with `kolo checkpoint` on the nodes named; the run folder has to be the same for all of them.".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn all_ranks_need_the_same_one() {
        let mut facts = example::hosts(2);
        facts.ranks.iter_mut().for_each(|rank| rank.checkpoint = Some(Ok(40)));
        assert_eq!(find(&facts), None);
        facts.ranks[1].checkpoint = Some(Ok(20));
        let (_, what, ..) = find(&facts).unwrap();
        assert_eq!(
            what,
            "rank 0 would continue from the checkpoint of step 40, rank 1 on b from the checkpoint of step 20"
        );
        facts.ranks.iter_mut().for_each(|rank| rank.checkpoint = Some(Err("it is empty".into())));
        assert_eq!(find(&facts).unwrap().1, "the run cannot continue: it is empty");
    }
}
