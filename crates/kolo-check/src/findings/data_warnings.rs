//! Warnings of a data set that can be read.

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check = Check {
    name: "data warnings",
    about: "a single class, classes without validation samples, and files that are left out",
    find,
};

fn find(facts: &Facts) -> Option<Found> {
    let mut of_workers = facts.workers().filter_map(|(_, facts)| facts.data.as_ref().ok());
    let warned = of_workers.find(|data| !data.warnings.is_empty())?;
    Some((
        Severity::Warning,
        warned.warnings.join("; "),
        "The run warns of this as well, and trains on what is left.".into(),
        "Nothing, if you mean it so. Else give other data, or move or mend the files.".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_warnings_of_the_first_worker_that_has_some_are_passed_on() {
        let mut facts = example::one_host(3);
        assert_eq!(find(&facts), None);
        facts.ranks[0].data = Err("no such file".into());
        for rank in [1, 2] {
            facts.ranks[rank].data.as_mut().unwrap().warnings = vec!["one".into(), format!("of {rank}")];
        }
        assert_eq!(find(&facts).unwrap().1, "one; of 1");
    }
}
