//! The failure report of a job: the root cause in the first line, as in torchrun's, then its consequences.

use std::fmt;

use kolo_comm::Rank;
use kolo_comm::schedule::words;
use signal_hook::consts::signal::SIGKILL;

use crate::error_file::FailureKind;
use crate::worker_exit::{ExitStatus, SHELL_SIGNAL_BASE, WorkerExit, shell_code};

/// The worker that failed first, the reason for this diagnosis, and the exits of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureReport {
    /// The root cause: the worker to name first.
    pub root: WorkerExit,
    /// Reason for this diagnosis.
    pub reason: Reason,
    /// Workers that had died before, if the job's state is lost with them.
    pub lost: Vec<WorkerExit>,
    /// Workers that failed in the same way by themselves: they blame nobody.
    pub alike: Vec<Rank>,
    /// Workers that failed in another way and blame nobody, in the order of their exits. The root cause may
    /// or may not have made them fail.
    pub apart: Vec<WorkerExit>,
    /// Workers that ended with an error that blames another worker, or by the launcher.
    pub consequences: Vec<Rank>,
    /// Workers that could not be ended.
    pub stuck: Vec<Rank>,
    /// Exit code for the launcher, 1 … 255.
    pub exit_code: u8,
}

/// Reason for the diagnosis of the root cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It failed before all others.
    First,
    /// It failed at the same time as others, with the clearest exit. Fatal signals are clearest, then errors
    /// of its own, exits without a message, and errors that blame another worker.
    Clearest,
    /// It failed, and the error of another failed worker blames it.
    Blamed {
        /// The worker that blames it.
        by: Option<Rank>,
    },
    /// It was stopped, and a failed worker waited for it in vain.
    Stopped {
        /// The worker that waited, with its error.
        noticed: Box<WorkerExit>,
    },
    /// It was running until the launcher ended it, and a failed worker blames it.
    Running {
        /// The worker that blames it, with its error.
        noticed: Box<WorkerExit>,
    },
    /// It failed, and blames a worker that did not fail.
    Blames {
        /// The worker that it blames.
        culprit: Rank,
        /// State of the blamed worker.
        state: BlamedState,
    },
    /// It failed first of several that blame each other.
    Mutual,
}

/// State of a blamed worker that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlamedState {
    /// It had ended well.
    EndedWell,
    /// It is not, or no longer, among the workers of this node.
    Elsewhere,
}

/// Maximum number of workers of [`FailureReport::lost`] and [`FailureReport::apart`] that are shown.
const SHOWN: usize = 8;

impl fmt::Display for FailureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, pid) = (self.root.name(), self.root.pid);
        match &self.reason {
            Reason::Stopped { noticed } => {
                write!(
                    f,
                    "{name} (pid {pid}) stood still (SIGSTOP, Ctrl-Z or a debugger); {}",
                    ExitLine(noticed)
                )?;
            }
            Reason::Running { noticed } => {
                let by = noticed.name();
                write!(
                    f,
                    "{name} (pid {pid}) is blamed by {by}, and ran until Kolo ended it; {}",
                    ExitLine(noticed)
                )?;
            }
            _ if self.alike.is_empty() => write!(f, "{}", ExitLine(&self.root))?,
            _ => self.write_alike(f)?,
        }
        match &self.reason {
            Reason::Blames { culprit, state } => match state {
                BlamedState::EndedWell => write!(
                    f,
                    "\n  it blames {culprit}, which had ended without an error: do all ranks take the same steps?"
                )?,
                BlamedState::Elsewhere => write!(
                    f,
                    "\n  it blames {culprit}, which is not here: it runs on another node, or has died before"
                )?,
            },
            Reason::Mutual => write!(f, "\n  others blame it in turn; it was the first of them to fail")?,
            _ => {}
        }
        for (exits, what, more_did) in [
            (&self.lost, "died before", "died before"),
            (&self.apart, "also failed, perhaps because of it", "also failed"),
        ] {
            for exit in exits.iter().take(SHOWN) {
                write!(f, "\n  {what}: {}", ExitLine(exit))?;
            }
            if let Some(more) = exits.len().checked_sub(SHOWN).filter(|more| *more > 0) {
                write!(f, "\n  and {more} more {more_did}")?;
            }
        }
        for (what, ranks) in [
            ("ended because of it", &self.consequences),
            ("could not be ended, the kernel holds on to it", &self.stuck),
        ] {
            // That the others end after wrong input helps nobody to mend it.
            let is_news = ranks == &self.stuck || !self.root.has_wrong_input();
            if is_news && !ranks.is_empty() {
                write!(f, "\n  {what}: {}", words::ranks(ranks))?;
            }
        }
        Ok(())
    }
}

impl FailureReport {
    /// Returns the report with the deaths before it, if the job's state is lost with them.
    pub(crate) fn after(self, earlier: Vec<WorkerExit>) -> Self {
        let is_lost = self.kind() == Some(FailureKind::StateLost);
        let lost = if is_lost { earlier } else { Vec::new() };
        // The death that took the state along is the cause, and not what the others noticed.
        let code = lost.iter().min_by_key(|exit| exit.after).and_then(|exit| match exit.status {
            ExitStatus::Signal(signal) => Some(shell_code(SHELL_SIGNAL_BASE + signal)),
            _ => None,
        });
        FailureReport { lost, exit_code: code.unwrap_or(self.exit_code), ..self }
    }

    /// Returns the kind of the failure, as the workers that are shown have reported it.
    pub fn kind(&self) -> Option<FailureKind> {
        let noticed = match &self.reason {
            Reason::Stopped { noticed } | Reason::Running { noticed } => Some(&**noticed),
            _ => None,
        };
        let mut shown = std::iter::once(&self.root).chain(noticed).chain(&self.apart);
        shown.find_map(|exit| exit.error.as_ref()?.kind)
    }

    /// Writes the root and the workers that failed in the same way; the text calls none of them the first.
    fn write_alike(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranks: Vec<Rank> = self.alike.iter().copied().chain(self.root.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let status = self.root.status.to_string();
        let status = status.strip_prefix("was ").map_or(status.clone(), |how| format!("were {how}"));
        write!(f, "{} {status}, {}", words::ranks(&ranks), Circumstances(&self.root))
    }
}

/// Displays `rank 1 (pid 4711) exited with code 3, 2.5 s after the start: its error`.
struct ExitLine<'a>(&'a WorkerExit);

impl fmt::Display for ExitLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkerExit { pid, status, .. } = self.0;
        write!(f, "{} (pid {pid}) {status}, {}", self.0.name(), Circumstances(self.0))
    }
}

/// Displays `2.5 s after the start: its error`.
struct Circumstances<'a>(&'a WorkerExit);

impl fmt::Display for Circumstances<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkerExit { after, status, evicted, error, .. } = self.0;
        write!(f, "{:.1} s after the start", after.as_secs_f64())?;
        match evicted {
            _ if *status != ExitStatus::Signal(SIGKILL) => {}
            Some(reason) => write!(f, " (by Kolo, because it {reason})")?,
            None => write!(f, " (by hand, or by the kernel because memory ran out: see `dmesg`)")?,
        }
        let Some(error) = error else { return Ok(()) };
        let label = if error.reported { "" } else { "; its last words" };
        write!(f, "{label}: {}", error.message.replace('\n', "\n    "))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::diagnose::diagnose;
    use crate::error_file::WorkerError;

    fn exit(
        rank: usize,
        millis: u64,
        status: ExitStatus,
        error: Option<(&str, Option<usize>)>,
    ) -> WorkerExit {
        let error = error.map(|(message, culprit)| WorkerError {
            message: message.into(),
            culprit: culprit.map(Rank),
            kind: None,
            reported: true,
        });
        WorkerExit {
            rank: Some(Rank(rank)),
            member: format!("node0/{rank}.0"),
            pid: 100 + rank as i32,
            after: Duration::from_millis(millis),
            status,
            evicted: None,
            error,
        }
    }

    fn report(exits: &[WorkerExit]) -> String {
        diagnose(exits).unwrap().to_string()
    }

    #[test]
    fn the_kind_is_that_of_any_worker_that_is_shown() {
        let failed = |rank, kind| {
            let mut exit = exit(rank, 10 + rank as u64, ExitStatus::Code(1), Some(("no", None)));
            exit.error.iter_mut().for_each(|error| error.kind = kind);
            exit
        };
        let taken = Some(FailureKind::OtherWriter);
        assert_eq!(diagnose(&[failed(0, None), failed(1, None)]).unwrap().kind(), None);
        assert_eq!(diagnose(&[failed(0, None), failed(1, taken)]).unwrap().kind(), taken);
    }

    #[test]
    fn the_killed_one_comes_first() {
        let victim = |rank| exit(rank, 3300, ExitStatus::Code(1), Some(("rank 1 died", Some(1))));
        let killed = exit(1, 3200, ExitStatus::Signal(SIGKILL), None);
        assert_eq!(
            report(&[victim(0), killed, victim(2), victim(3)]),
            "rank 1 (pid 101) was killed by SIGKILL, 3.2 s after the start (by hand, or by the kernel because \
             memory ran out: see `dmesg`)\n  ended because of it: ranks 0, 2, 3"
        );
    }

    #[test]
    fn errors_are_shown_and_equal_failures_named_together() {
        let missing =
            |rank| exit(rank, 10, ExitStatus::Code(2), Some(("no folder `data`\nsee --data", None)));
        assert_eq!(
            report(&[missing(0), missing(1), exit(2, 2000, ExitStatus::ByLauncher { stopped: false }, None)]),
            "ranks 0, 1 exited with code 2, 0.0 s after the start: no folder `data`\n    see --data\n  \
             ended because of it: rank 2"
        );
    }

    /// The others save their work and end for the same reason; a worker with a trouble of its own is shown.
    #[test]
    fn wrong_input_is_one_line() {
        let at = |millis: u64, rank: usize, words, kind| {
            let code = if rank == 1 { 2 } else { 1 };
            let mut exit = exit(rank, millis, ExitStatus::Code(code), Some((words, None)));
            exit.error.iter_mut().for_each(|error| error.kind = kind);
            exit
        };
        let failed = |rank: usize, words, kind| at(100 + 900 * rank.abs_diff(1) as u64, rank, words, kind);
        let input = Some(FailureKind::WrongInput);
        let ended = |kind| failed(0, "step 0 has ended a worker", kind);
        let line = "rank 1 (pid 101) exited with code 2, 0.1 s after the start: a.png is no image";
        assert_eq!(report(&[failed(1, "a.png is no image", input), ended(input)]), line);
        // The launcher may notice both at once, in any order.
        for millis in [60, 100, 140] {
            let other = at(millis, 0, "step 0 has ended a worker", input);
            assert_eq!(report(&[other, failed(1, "a.png is no image", input)]), line);
        }
        let text = report(&[failed(1, "a.png is no image", input), ended(None)]);
        assert!(text.starts_with(line) && text.contains("also failed"), "{text}");
    }

    /// The deaths that lost the job's state are shown, and those of other failures are not.
    #[test]
    fn those_who_took_the_state_along_are_shown() {
        let mut newcomer =
            exit(0, 5000, ExitStatus::Code(1), Some(("ranks 1 and 2, which held `w`, are gone", None)));
        let killed = || (1..3).map(|rank| exit(rank, 3200, ExitStatus::Signal(SIGKILL), None)).collect();
        let text =
            |root: &WorkerExit| diagnose(std::slice::from_ref(root)).unwrap().after(killed()).to_string();
        assert!(!text(&newcomer).contains("died before"), "{}", text(&newcomer));
        newcomer.error.iter_mut().for_each(|error| error.kind = Some(FailureKind::StateLost));
        let all = text(&newcomer);
        let lines: Vec<&str> = all.lines().collect();
        assert!(lines[0].ends_with("after the start: ranks 1 and 2, which held `w`, are gone"), "{all}");
        assert!(
            lines[1].starts_with("  died before: rank 1 (pid 101) was killed by SIGKILL, 3.2 s"),
            "{all}"
        );
        assert!(lines[2].starts_with("  died before: rank 2 (pid 102)") && lines.len() == 3, "{all}");
    }

    #[test]
    fn a_stopped_one_comes_first() {
        let waited = exit(0, 9000, ExitStatus::Code(1), Some(("rank 1 did not answer", Some(1))));
        assert_eq!(
            report(&[waited, exit(1, 9800, ExitStatus::ByLauncher { stopped: true }, None)]),
            "rank 1 (pid 101) stood still (SIGSTOP, Ctrl-Z or a debugger); rank 0 (pid 100) exited with code 1, \
             9.0 s after the start: rank 1 did not answer\n  ended because of it: rank 0"
        );
    }

    #[test]
    fn one_that_hangs_comes_first() {
        let waited = exit(0, 9000, ExitStatus::Code(1), Some(("rank 1 did not answer", Some(1))));
        assert_eq!(
            report(&[waited, exit(1, 9800, ExitStatus::ByLauncher { stopped: false }, None)]),
            "rank 1 (pid 101) is blamed by rank 0, and ran until Kolo ended it; rank 0 (pid 100) exited \
             with code 1, 9.0 s after the start: rank 1 did not answer\n  ended because of it: rank 0"
        );
    }

    #[test]
    fn what_is_not_known_is_not_claimed() {
        let ended = |rank| exit(rank, 900, ExitStatus::ByLauncher { stopped: false }, None);
        let mut silent = exit(1, 400, ExitStatus::Code(1), None);
        let first = || exit(0, 10, ExitStatus::Code(1), Some(("bad label", None)));
        assert_eq!(
            report(&[first(), silent.clone(), ended(2)]),
            "rank 0 (pid 100) exited with code 1, 0.0 s after the start: bad label\n  also failed, perhaps because of \
             it: rank 1 (pid 101) exited with code 1, 0.4 s after the start\n  ended because of it: rank 2"
        );
        silent.error =
            Some(WorkerError { message: "step 3".into(), culprit: None, kind: None, reported: false });
        let text = report(&[first(), silent.clone()]);
        assert!(
            text.ends_with(
                "rank 1 (pid 101) exited with code 1, 0.4 s after the start; its last words: step 3"
            )
        );
        silent.rank = None;
        assert!(report(&[first(), silent]).contains("because of it: worker node0/1.0 (pid 101)"));
    }

    #[test]
    fn several_killed_at_once_are_named_together() {
        let killed = |rank| exit(rank, 3200, ExitStatus::Signal(SIGKILL), None);
        assert!(
            report(&[killed(2), killed(1)]).starts_with("ranks 1, 2 were killed by SIGKILL, 3.2 s after")
        );
    }

    #[test]
    fn doubtful_blame_says_so() {
        let blames_1 = || exit(0, 10, ExitStatus::Code(1), Some(("rank 1 did not answer", Some(1))));
        for (other, expected) in [
            (exit(1, 5, ExitStatus::Code(0), None), "had ended without an error"),
            (exit(2, 900, ExitStatus::ByLauncher { stopped: false }, None), "runs on another node"),
            (exit(1, 900, ExitStatus::Stuck, None), "could not be ended"),
        ] {
            let text = report(&[blames_1(), other]);
            assert!(text.contains(expected), "{text}");
        }
    }
}
