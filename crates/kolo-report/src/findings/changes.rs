//! Settings that were changed in the middle of the run.

use kolo_run_folder::{ChangeRow, Run};

use super::finding::{Entry, Found, Severity};
use crate::units::plural;

pub(super) const ENTRY: Entry<Run> =
    Entry { name: "changes", about: "settings that changed where the run continued", find };

fn find(run: &Run) -> Option<Found> {
    let words = |row: &ChangeRow| {
        format!("from step {} on {} = {}, before {}", row.step, row.setting, row.after, row.before)
    };
    let changes: Vec<String> = run.changes.iter().map(words).collect();
    if changes.is_empty() {
        return None;
    }
    Some((
        Severity::Notice,
        format!("The run changed {} on its way", plural(changes.len(), "setting")),
        format!("{}.", changes.join("; ")),
        "Nothing, if that was meant. `config.toml` has the last values only, so `kolo train --config` does not \
         repeat this run."
            .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn changes_are_listed_with_both_values() {
        let mut run = example::run(200);
        assert_eq!(ENTRY.find(&run), None);
        let row = |step, setting: &str| ChangeRow {
            step,
            setting: setting.into(),
            before: "0.1".into(),
            after: "0.01".into(),
        };
        run.changes = vec![row(50, "rate.lr"), row(100, "dropout")];
        let finding = ENTRY.find(&run).unwrap();
        assert_eq!(finding.what, "The run changed 2 settings on its way");
        let words =
            "from step 50 on rate.lr = 0.01, before 0.1; from step 100 on dropout = 0.01, before 0.1.";
        assert_eq!(finding.why, words);
    }
}
