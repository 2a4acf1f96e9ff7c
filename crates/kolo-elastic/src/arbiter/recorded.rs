//! The rule of arbiters that record the granted generations, one after another: the next one goes to the
//! first leader that asks and has a member that has been in the last one.
//!
//! It is not enough that a member of the last generation waits at this leader. It may have gone to another
//! leader since, unnoticed by this one, and be in that generation now. Only a generation that it has left is
//! over for certain.

use super::claim::{Claim, Record, Verdict};
use kolo_schedule::words::counted;

/// Number of times that others may overtake a claim before its leader must try again later.
const TRIES: usize = 16;

/// Storage of records. Calls may block, for a bounded time. Errors are texts that name the place and the
/// problem.
pub(crate) trait Records: Send + Sync {
    /// Returns the place, as written on the command line.
    fn place(&self) -> String;

    fn begin(&self, job: u64) -> Result<(), String>;

    /// Checks that the job began at this very place. The inner error describes why it seems not so, the
    /// outer one why the place cannot be asked.
    fn knows(&self, job: u64) -> Result<Result<(), String>, String>;

    /// Returns the record of the highest number; `None` before the first.
    fn last(&self, job: u64) -> Result<Option<Record>, String>;

    /// Adds a record after the last one, `after`, unless another record has been added: of concurrent calls
    /// exactly one succeeds. Returns true if the record was added.
    fn add(&self, job: u64, after: Option<&Record>, record: &Record) -> Result<bool, String>;
}

/// Claims the generation after the last recorded one.
pub(crate) fn claim(records: &dyn Records, claim: &Claim) -> Result<Verdict, String> {
    for _ in 0..TRIES {
        let last = records.last(claim.job)?;
        if let Some(last) = last.as_ref().filter(|last| !claim.is_over(last)) {
            return Ok(not_over(last, claim));
        }
        // Concurrent claims must try the same number, or each of them would get its own.
        let generation = last.as_ref().map_or(0, |last| last.generation) + 1;
        let Claim { leader, place, members, .. } = claim.clone();
        if records.add(claim.job, last.as_ref(), &Record { generation, leader, place, members })? {
            return Ok(Verdict::Granted(generation));
        }
    }
    Ok(Verdict::NotYet(format!("others claim generations at {} all the time", records.place())))
}

/// Explains the refusal: no waiting member has been in the last generation, so it may go on.
fn not_over(last: &Record, claim: &Claim) -> Verdict {
    let Record { generation, place, members, .. } = last;
    let who = format!("generation {generation} of {}", counted(members.len(), "worker"));
    if members.iter().any(|member| claim.members.contains(member)) {
        // Either the member moved to another leader after its arrival here, or it never entered.
        return Verdict::NotYet(format!(
            "{who} has been granted to the launcher at {place}, and no worker that has been in it is here"
        ));
    }
    Verdict::Superseded(format!("{who}, none of them here, has been granted to the launcher at {place}"))
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::generation::GenerationId;

    /// Records in memory. Another launcher adds `overtaken` right before the next record.
    #[derive(Default)]
    struct Memory {
        records: Mutex<Vec<Record>>,
        overtaken: Mutex<Option<Record>>,
    }

    impl Records for Memory {
        fn place(&self) -> String {
            "memory".into()
        }

        fn begin(&self, _job: u64) -> Result<(), String> {
            Ok(())
        }

        fn knows(&self, _job: u64) -> Result<Result<(), String>, String> {
            Ok(Ok(()))
        }

        fn last(&self, _job: u64) -> Result<Option<Record>, String> {
            Ok(self.records.lock().last().cloned())
        }

        fn add(&self, _job: u64, after: Option<&Record>, record: &Record) -> Result<bool, String> {
            let mut records = self.records.lock();
            records.extend(self.overtaken.lock().take());
            let free = records.last() == after;
            if free {
                records.push(record.clone());
            }
            Ok(free)
        }
    }

    /// The claim of a leader whose members have been in generations with these numbers, all of leader 1.
    fn claim_of(leader: u64, members: &[&str], left: &[u64]) -> Claim {
        Claim {
            job: 1,
            leader,
            place: format!("host{leader}"),
            newest: 0,
            members: members.iter().map(|member| member.to_string()).collect(),
            left: left.iter().map(|number| GenerationId { number: *number, leader: 1 }).collect(),
            abandoned: Default::default(),
            announced: [1, 2].map(|number| GenerationId { number, leader: 1 }).into(),
            predecessors: Vec::new(),
        }
    }

    #[test]
    fn one_side_goes_on_and_the_other_learns_which() {
        let memory = Memory::default();
        assert_eq!(claim(&memory, &claim_of(1, &["a", "b", "c"], &[])), Ok(Verdict::Granted(1)));
        assert_eq!(claim(&memory, &claim_of(2, &["c"], &[1])), Ok(Verdict::Granted(2)), "any member may");
        let Ok(Verdict::Superseded(by)) = claim(&memory, &claim_of(1, &["a", "b"], &[1])) else {
            panic!("both sides go on")
        };
        assert!(by.contains("generation 2") && by.contains("host2"), "{by}");
        // The same if the other side claims between the question and the answer.
        let memory = Memory::default();
        assert_eq!(claim(&memory, &claim_of(1, &["a", "b"], &[])), Ok(Verdict::Granted(1)));
        let Claim { leader, place, members, .. } = claim_of(2, &["b"], &[1]);
        *memory.overtaken.lock() = Some(Record { generation: 2, leader, place, members });
        assert!(matches!(claim(&memory, &claim_of(1, &["a"], &[1])), Ok(Verdict::Superseded(_))));
    }

    #[test]
    fn a_generation_that_was_never_announced_blocks_no_later_one() {
        let memory = Memory::default();
        assert_eq!(claim(&memory, &claim_of(2, &["a", "b"], &[])), Ok(Verdict::Granted(1)));
        // The answer is lost, or other members wait by then.
        assert_eq!(claim(&memory, &claim_of(2, &["a"], &[])), Ok(Verdict::Granted(2)));
        let other = claim(&memory, &claim_of(1, &["a"], &[]));
        assert!(matches!(other, Ok(Verdict::NotYet(_))), "another leader cannot know: {other:?}");
    }

    #[test]
    fn a_member_that_only_seems_to_wait_ends_no_generation() {
        let memory = Memory::default();
        assert_eq!(claim(&memory, &claim_of(1, &["a", "b"], &[])), Ok(Verdict::Granted(1)));
        assert_eq!(claim(&memory, &claim_of(1, &["b"], &[1])), Ok(Verdict::Granted(2)));
        // Another leader still counts on b, and on a, from before generation 2.
        let seems = claim(&memory, &claim_of(2, &["a", "b"], &[1]));
        assert!(matches!(seems, Ok(Verdict::NotYet(_))), "{seems:?}");
        assert_eq!(claim(&memory, &claim_of(2, &["a", "b"], &[1, 2])), Ok(Verdict::Granted(3)));
    }
}
