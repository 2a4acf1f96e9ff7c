//! The verdict in words: what happened first, in the first line.

use std::fmt;

use kolo_comm::Rank;
use signal_hook::consts::signal::SIGKILL;

use crate::exit::{End, Exit};
use crate::verdict::{Reason, Standing, Verdict};

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::StoodStill { noticed } => {
                let Exit { rank, pid, .. } = self.root;
                write!(f, "{rank} (pid {pid}) stood still (SIGSTOP, Ctrl-Z or a debugger); ")?;
                describe(noticed, f)?;
            }
            _ => describe(&self.root, f)?,
        }
        match &self.reason {
            Reason::Blames { culprit, standing } => match standing {
                Standing::Running => {
                    write!(f, "\n  it blames {culprit}, which was running until it was ended")?
                }
                Standing::EndedWell => write!(
                    f,
                    "\n  it blames {culprit}, which had ended without an error: do all ranks take the same steps?"
                )?,
                Standing::Elsewhere => {
                    write!(f, "\n  it blames {culprit}, which runs on another node: see there")?
                }
            },
            Reason::Mutual => write!(f, "\n  others blame it in turn; it was the first of them to fail")?,
            Reason::First | Reason::Clearest | Reason::Blamed { .. } | Reason::StoodStill { .. } => {}
        }
        for (what, ranks) in [
            ("the same happened to", &self.alike),
            ("ended because of it", &self.consequences),
            ("could not be ended, the kernel holds on to it", &self.stuck),
        ] {
            if !ranks.is_empty() {
                write!(f, "\n  {what}: {}", list(ranks))?;
            }
        }
        Ok(())
    }
}

/// `rank 1 (pid 4711) exited with code 3, 2.5 s after the start: its words`.
fn describe(exit: &Exit, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        f,
        "{} (pid {}) {}, {:.1} s after the start",
        exit.rank,
        exit.pid,
        exit.end,
        exit.after.as_secs_f64()
    )?;
    if exit.end == End::Signal(SIGKILL) {
        write!(f, " (by hand, or by the kernel because memory ran out: see `dmesg`)")?;
    }
    match &exit.failure {
        Some(failure) => write!(f, ": {}", failure.message.replace('\n', "\n    ")),
        None => Ok(()),
    }
}

/// `rank 3`, or `ranks 0, 2, 5-7`.
fn list(ranks: &[Rank]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for Rank(rank) in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let run = |(first, last): (usize, usize)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    };
    let plural = if ranks.len() == 1 { "" } else { "s" };
    format!("rank{plural} {}", runs.into_iter().map(run).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::Failure;
    use crate::verdict::verdict;

    #[test]
    fn ranks_are_listed_briefly() {
        for (ranks, text) in [
            (&[3][..], "rank 3"),
            (&[0, 1], "ranks 0, 1"),
            (&[0, 2, 3], "ranks 0, 2, 3"),
            (&[0, 2, 3, 4, 9], "ranks 0, 2-4, 9"),
        ] {
            let ranks: Vec<Rank> = ranks.iter().copied().map(Rank).collect();
            assert_eq!(list(&ranks), text);
        }
    }

    fn exit(rank: usize, millis: u64, end: End, words: Option<(&str, Option<usize>)>) -> Exit {
        let failure =
            words.map(|(message, culprit)| Failure { message: message.into(), culprit: culprit.map(Rank) });
        Exit { rank: Rank(rank), pid: 100 + rank as i32, after: Duration::from_millis(millis), end, failure }
    }

    fn say(exits: &[Exit]) -> String {
        verdict(exits).unwrap().to_string()
    }

    #[test]
    fn the_killed_one_comes_first() {
        let victim = |rank| exit(rank, 3300, End::Code(1), Some(("rank 1 died", Some(1))));
        let killed = exit(1, 3200, End::Signal(SIGKILL), None);
        assert_eq!(
            say(&[victim(0), killed, victim(2), victim(3)]),
            "rank 1 (pid 101) was killed by SIGKILL, 3.2 s after the start (by hand, or by the kernel because \
             memory ran out: see `dmesg`)\n  ended because of it: ranks 0, 2, 3"
        );
    }

    #[test]
    fn its_words_are_shown_and_equal_failures_named_together() {
        let missing = |rank| exit(rank, 10, End::Code(2), Some(("no folder `data`\nsee --data", None)));
        assert_eq!(
            say(&[missing(0), missing(1), exit(2, 2000, End::ByLauncher { stopped: false }, None)]),
            "rank 0 (pid 100) exited with code 2, 0.0 s after the start: no folder `data`\n    see --data\n  \
             the same happened to: rank 1\n  ended because of it: rank 2"
        );
    }

    #[test]
    fn who_stood_still_comes_first() {
        let waited = exit(0, 9000, End::Code(1), Some(("rank 1 did not answer", Some(1))));
        assert_eq!(
            say(&[waited, exit(1, 9800, End::ByLauncher { stopped: true }, None)]),
            "rank 1 (pid 101) stood still (SIGSTOP, Ctrl-Z or a debugger); rank 0 (pid 100) exited with code 1, \
             9.0 s after the start: rank 1 did not answer\n  ended because of it: rank 0"
        );
    }

    #[test]
    fn doubtful_blame_says_so() {
        let blames_1 = || exit(0, 10, End::Code(1), Some(("rank 1 did not answer", Some(1))));
        for (other, said) in [
            (exit(1, 900, End::ByLauncher { stopped: false }, None), "was running until it was ended"),
            (exit(1, 5, End::Code(0), None), "had ended without an error"),
            (exit(2, 900, End::ByLauncher { stopped: false }, None), "runs on another node"),
            (exit(1, 900, End::Stuck, None), "could not be ended"),
        ] {
            let text = say(&[blames_1(), other]);
            assert!(text.contains(said), "{text}");
        }
    }
}
