//! Deaths at moments of an update: the worker finds the moment in a file, removes the file, and kills itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use kolo_ddp::verify::aim::Aim;

use super::workers::is_there;

/// Longest time that an aim waits for an update of the worker.
const NEXT_UPDATE: Duration = Duration::from_secs(20);
/// Longest time that the aim at another worker waits for it to complete that update, which may have no block
/// left for it.
const COMPLETED: Duration = Duration::from_secs(3);

/// Makes a worker die at a moment of its next update, and with `second` another one when it completes that
/// update. Returns when they are dead, or do not come there.
pub(super) fn aim_at(
    folder: &Path,
    (pid, aim): (i32, Aim),
    second: Option<(i32, Aim)>,
    until: Instant,
) -> io::Result<()> {
    let second = second.map(|(pid, aim)| Ok((write(folder, pid, aim)?, pid))).transpose();
    let second: Option<(PathBuf, i32)> = second.map_err(|error: io::Error| error)?;
    let first = write(folder, pid, aim)?;
    let has_died = wait(&first, pid, until.min(Instant::now() + NEXT_UPDATE))?;
    if let Some((file, pid)) = second {
        wait(&file, pid, if has_died { until.min(Instant::now() + COMPLETED) } else { Instant::now() })?;
    }
    if has_died { Ok(()) } else { Err(io::Error::other("it began no other update")) }
}

/// Writes an aim, which the worker sees whole.
fn write(folder: &Path, pid: i32, aim: Aim) -> io::Result<PathBuf> {
    let (file, unfinished) = (folder.join(pid.to_string()), folder.join("unfinished"));
    fs::write(&unfinished, aim.to_string())?;
    fs::rename(unfinished, &file)?;
    Ok(file)
}

/// Waits until a worker has taken its aim. Returns false if it ends otherwise, or does not come to that; then
/// nobody aims at it any more.
fn wait(file: &Path, pid: i32, until: Instant) -> io::Result<bool> {
    while is_there(pid) && Instant::now() < until {
        if !file.exists() {
            return Ok(true);
        }
        sleep(Duration::from_millis(1));
    }
    match fs::remove_file(file) {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use kolo_ddp::verify::aim::Moment;

    use super::*;

    #[test]
    fn an_aim_at_a_process_that_ends_otherwise_has_missed() {
        let folder = tempfile::tempdir().unwrap();
        let aim = Aim { moment: Moment::InBlock, blocks: 1, completes: false };
        let until = Instant::now() + Duration::from_secs(60);
        let other = Some((i32::MAX - 1, Aim { completes: true, ..aim }));
        let error = aim_at(folder.path(), (i32::MAX, aim), other, until).unwrap_err();
        assert!(error.to_string().contains("no other update"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // This process is there, and takes its aim.
        let own = std::process::id() as i32;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let file = folder.path().join(own.to_string());
                while fs::read_to_string(&file).map_or(true, |text| text != "in-block 1") {
                    sleep(Duration::from_millis(1));
                }
                fs::remove_file(file).unwrap();
            });
            aim_at(folder.path(), (own, aim), None, until).unwrap();
        });
    }
}
