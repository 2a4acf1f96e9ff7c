//! The arbiter that needs no other service: a strict majority of the last generation's members goes on, or
//! half of them with the lowest rank.
//!
//! Members vote by arriving. A member waits at one leader at a time. If two leaders both have a quorum of a
//! generation, some member has therefore arrived first at one and then at the other, and reports to the
//! second what it has entered meanwhile (compare the ballots of Lamport, "The Part-Time Parliament", 1998).
//! Other members may have formed a generation that this member has entered and not seen formed, so a quorum
//! of that generation is needed as well (Lamport, Malkhi and Zhou, "Vertical Paxos and Primary-Backup
//! Replication", 2009).
//!
//! Members whose own launcher has reported their end do not count. Of two leaders, each leaves out dead
//! members, and none that the other one has, so they cannot both have half.

use super::claim::{Claim, Predecessor, Verdict};
use super::rule::Rule;
use kolo_rendezvous::Error;

pub(super) fn read(rest: &str) -> Result<Rule, Error> {
    match rest {
        "" => Ok(Rule::Majority),
        _ => Err(Error::system(format!("no arbiter is called `majority{rest}`"), "leave the end out")),
    }
}

/// Grants a generation whose members are a quorum of every generation that it may follow.
pub(super) fn decide(claim: &Claim) -> Verdict {
    for Predecessor { id, members } in &claim.predecessors {
        let number = id.number;
        let Some(members) = members else {
            return Verdict::NotYet(format!("who belongs to generation {number} is not known here"));
        };
        let here = members.iter().filter(|member| claim.members.contains(member)).count();
        if !is_quorum(members, &claim.members) {
            return Verdict::NotYet(format!(
                "{here} of the {} workers of generation {number} that may be alive are here, and without more \
                 than half of them, or half and the lowest rank, the others may have continued",
                members.len()
            ));
        }
    }
    Verdict::Granted(claim.newest + 1)
}

fn is_quorum(members: &[String], present: &[String]) -> bool {
    let here = |member: &String| present.contains(member);
    let count = members.iter().filter(|member| here(member)).count();
    2 * count > members.len() || 2 * count == members.len() && members.first().is_none_or(here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::GenerationId;

    fn names(names: &str) -> Vec<String> {
        names.chars().map(String::from).collect()
    }

    fn claim(members: &str, predecessors: &[(u64, Option<&str>)]) -> Claim {
        let predecessor = |(number, members): &(u64, Option<&str>)| Predecessor {
            id: GenerationId { number: *number, leader: 1 },
            members: members.map(names),
        };
        Claim {
            job: 1,
            leader: 1,
            place: "here".into(),
            newest: 4,
            members: names(members),
            left: Default::default(),
            abandoned: Default::default(),
            announced: Default::default(),
            predecessors: predecessors.iter().map(predecessor).collect(),
        }
    }

    #[test]
    fn exactly_one_of_two_sides_has_a_quorum() {
        for all in ["a", "ab", "abc", "abcd", "abcde"] {
            let all = names(all);
            for side in 0..1_usize << all.len() {
                let of = |wanted: usize| {
                    let has = |n: &usize| (side >> n & 1) == wanted;
                    (0..all.len()).filter(has).map(|n| all[n].clone()).collect::<Vec<_>>()
                };
                let (one, other) = (is_quorum(&all, &of(1)), is_quorum(&all, &of(0)));
                assert!(one != other, "{all:?} {:?}: one of the sides, and one only", of(1));
            }
        }
    }

    #[test]
    fn generations_that_may_have_been_formed_need_a_quorum() {
        assert_eq!(decide(&claim("ab", &[])), Verdict::Granted(5), "the first generation follows none");
        assert_eq!(
            decide(&claim("xb", &[(3, Some("ab"))])),
            Verdict::NotYet(text(1, 2, 3)),
            "without rank 0"
        );
        assert_eq!(decide(&claim("ax", &[(3, Some("ab"))])), Verdict::Granted(5));
        // c and d have been in generation 4, which a, c and d may have formed, so b and c must not go on.
        let entered = [(3, Some("abc")), (4, Some("acd"))];
        assert_eq!(decide(&claim("bc", &entered)), Verdict::NotYet(text(1, 3, 4)));
        assert_eq!(decide(&claim("bcd", &entered)), Verdict::Granted(5));
        assert!(matches!(decide(&claim("abc", &[(3, None)])), Verdict::NotYet(_)));
    }

    fn text(here: usize, of: usize, number: u64) -> String {
        format!(
            "{here} of the {of} workers of generation {number} that may be alive are here, and without more than \
             half of them, or half and the lowest rank, the others may have continued"
        )
    }
}
