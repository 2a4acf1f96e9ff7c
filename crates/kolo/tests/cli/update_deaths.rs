//! Workers with one copy of the state that are killed in the middle of an update: the others complete it.

use std::path::Path;

use kolo_ddp::verify::aim::{self, Aim, Moment};
use kolo_testing::jobs::Logged;
use kolo_testing::{alive, is_thorough, wait_until};

use super::elastic::{RUN, result};
use super::program::{kolo, succeed, workers};

/// Options of all runs. The optimizer has two arrays of state.
const ADAMW: [&str; 6] = ["--optimizer", "adamw", "--lr", "0.001", "--slow", "0:compute:20"];

/// Makes a worker die at a moment of its next update.
fn aim_at(aims: &Path, pid: u32, aim: Aim) {
    let unfinished = aims.join("unfinished");
    std::fs::write(&unfinished, aim.to_string()).unwrap();
    std::fs::rename(unfinished, aims.join(pid.to_string())).unwrap();
}

/// Runs a job of so many workers, one of which dies at each of these moments. At the last one another worker,
/// if there is a third, dies at the moment `second` of completing that update. Returns the result.
fn killed(nproc: usize, moments: &[Moment], second: Moment) -> String {
    let folder = tempfile::tempdir().unwrap();
    let aims = folder.path().join("aims");
    std::fs::create_dir(&aims).unwrap();
    let count = nproc.to_string();
    let args = ["--nproc", &count, "--shard", "host", "--max-restarts", "9", "--out", "run"];
    let mut command = kolo(folder.path(), &[&RUN[..], &ADAMW, &args].concat());
    let mut job = Logged::start(command.env(aim::FOLDER, &aims), folder.path().join("words"));
    let is_whole = format!(" of {nproc} workers: ");
    assert!(job.has_said(&format!("{nproc} workers over")));
    for (number, moment) in moments.iter().enumerate() {
        let living: Vec<u32> = workers(&job.process).into_iter().filter(|pid| alive(*pid)).collect();
        assert_eq!(living.len(), nproc);
        // The one that made the memory, or the last newcomer; before its first block or a later one.
        let mut victims = vec![living[number % 2 * (nproc - 1)]];
        if nproc > 2 && number + 1 == moments.len() {
            victims.push(living[1]);
            aim_at(&aims, living[1], Aim { moment: second, blocks: 0, completes: true });
        }
        aim_at(&aims, victims[0], Aim { moment: *moment, blocks: number % 2, completes: false });
        for pid in victims {
            wait_until("it has not died", || !alive(pid));
            assert!(!aims.join(pid.to_string()).exists(), "{moment:?}: it died elsewhere");
        }
        if number + 1 < moments.len() {
            assert!(job.wait("no new group", |said| said.matches(&is_whole).count() > number), "{moment:?}");
        }
    }
    let (status, words) = job.end();
    assert!(status.success(), "{words}");
    result(folder.path())
}

#[test]
fn a_worker_killed_in_an_update_does_not_change_the_weights() {
    use Moment::{AfterBlock, AfterBlocks, AfterJournal, BeforeJournal, BeforeSwitch, InBlock};
    let cases = [
        (2, [AfterJournal, InBlock, BeforeSwitch], InBlock),
        (3, [AfterBlock, AfterBlocks, BeforeJournal], BeforeSwitch),
        (3, [InBlock, BeforeSwitch, AfterJournal], InBlock),
        (2, [BeforeJournal, AfterBlocks, AfterBlock], InBlock),
        (3, [BeforeJournal, AfterJournal, InBlock], AfterBlocks),
        (3, [AfterBlock, BeforeJournal, AfterBlock], AfterJournal),
    ];
    let cases = &cases[..if is_thorough() { cases.len() } else { 2 }];
    // The jobs sleep most of the time.
    let ends: Vec<String> = std::thread::scope(|scope| {
        let jobs: Vec<_> = cases
            .iter()
            .map(|(nproc, moments, second)| scope.spawn(|| killed(*nproc, moments, *second)))
            .collect();
        jobs.into_iter().map(|job| job.join().unwrap()).collect()
    });
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &[&RUN[..], &ADAMW[..4], &["--nproc", "1", "--out", "run"]].concat());
    let expected = result(folder.path());
    assert!(ends.iter().all(|end| *end == expected), "{ends:?}, not {expected}");
}
