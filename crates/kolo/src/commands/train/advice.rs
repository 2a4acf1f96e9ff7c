//! Advice for the user after a run that has failed or was interrupted.

use std::error::Error;

use kolo::Failure;
use kolo_burn_train::CHECKPOINT_LOST;
use kolo_launch::{FailureKind, LaunchError};
use kolo_recipe::{RunFolder, shell_quoted};

/// Adds the command that resumes the run to a failure, if there is a checkpoint, that command helps, and no
/// other process has taken the run over. Without a checkpoint, says so, and what there is.
pub(super) fn advise(failure: Failure, folder: &RunFolder) -> Failure {
    let is_lost = failure.kind() == Some(FailureKind::StateLost);
    let may_go_on = is_lost || matches!(failure.kind(), None | Some(FailureKind::Diverged));
    // A folder without a step has been removed, unless the run has diverged.
    let is_kept = folder.is_run();
    match folder.newest_checkpoint() {
        _ if folder.is_complete() || folder.is_written() => failure,
        Ok(found) if may_go_on => {
            let (path, step) = (shell_quoted(folder.path()), found.step);
            failure.advise(format!("`kolo train --resume {path}` continues after step {step}"))
        }
        Err(_) if (is_lost || is_kept && may_go_on) && !folder.has_checkpoints() => {
            // More checkpoints find no more room, and lines may have found none either.
            let is_lost = failure.to_string().contains(CHECKPOINT_LOST);
            let what = match folder.has_steps() {
                true if is_lost => "those metrics of its steps that found room",
                true => "the metrics of its steps",
                false => "its configuration",
            };
            let kept = || format!(" ({} keeps {what})", folder.path().display());
            let kept = is_kept.then(kept).unwrap_or_default();
            let writes_some = folder.config().is_ok_and(|config| config.checkpoint_steps.is_some());
            let way = if is_lost || writes_some { "" } else { "; --checkpoint-steps writes some on the way" };
            failure.advise(format!("there is no checkpoint, so the run can only begin anew{way}{kept}"))
        }
        Err(_) if is_interruption(&failure) && !is_kept => {
            failure.advise("nothing was done that could be saved; the same command begins the run")
        }
        _ => failure,
    }
}

/// Returns true if a signal has ended the job.
pub(super) fn is_interruption(failure: &Failure) -> bool {
    failure
        .source()
        .is_some_and(|cause| matches!(cause.downcast_ref(), Some(LaunchError::Interrupted { .. })))
}

/// Returns true if a worker has ended because the whole job ends.
pub(super) fn ends_job(failure: &Failure) -> bool {
    let cause = failure.source().and_then(|cause| cause.downcast_ref());
    let is_early =
        matches!(cause, Some(kolo_models::Error::Train(kolo_burn_train::Error::EndedEarly { .. })));
    is_early || failure.kind() == Some(FailureKind::StateLost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_had_not_begun_begins_by_the_same_command() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path().join("run"));
        let interrupted = LaunchError::Interrupted { signal: 2, reports: Vec::new(), kind: None };
        let words = advise(interrupted.into(), &folder).to_string();
        assert!(words.starts_with("ended by SIGINT\n") && words.ends_with("the same command begins the run"));
        let other = advise(Failure::work("no route"), &folder).to_string();
        assert_eq!(other, "no route");
    }
}
