//! A pipe from a launcher's output to its log, which can stop reading at any moment.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Nanoseconds between two looks at `closed`.
const LOOK: i64 = 20_000_000;

/// Time for which a pipe stays open after its launcher has ended.
const PATIENCE: Duration = Duration::from_secs(1);

/// The reader of a launcher's output.
pub(super) struct LogPipe {
    closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LogPipe {
    /// Starts the reader, and returns it with the end to write to.
    pub(super) fn start(log: File) -> io::Result<(LogPipe, PipeWriter)> {
        let (reader, writer) = pipe()?;
        let closed = Arc::new(AtomicBool::new(false));
        let of_thread = closed.clone();
        let thread = std::thread::Builder::new()
            .name("kolo-chaos-log".into())
            .spawn(move || pass_on(reader, log, &of_thread))?;
        Ok((LogPipe { closed, thread: Some(thread) }, writer))
    }

    /// Stops reading: writers get an error.
    pub(super) fn close(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Waits until the log has all output of a launcher that has ended. A worker that outlives it can still
    /// write for [`PATIENCE`].
    pub(super) fn finish(&mut self) {
        let until = Instant::now() + PATIENCE;
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) && Instant::now() < until {
            std::thread::sleep(crate::running::LOOK);
        }
        self.close();
    }
}

fn pass_on(mut reader: PipeReader, mut log: File, closed: &AtomicBool) {
    let mut piece = [0; 4096];
    while !closed.load(Ordering::Relaxed) {
        let wait = Timespec { tv_sec: 0, tv_nsec: LOOK };
        if !matches!(poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&wait)), Ok(1..)) {
            continue;
        }
        match reader.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(got) => drop(log.write_all(&piece[..got])),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    /// Writes until nobody reads. A process that another test starts has the reading end as well, until it
    /// runs its program.
    fn refusal(mut output: impl Write) -> io::Error {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match output.write_all(b"after") {
                Err(error) => return error,
                Ok(()) => assert!(Instant::now() < until, "somebody still reads"),
            }
            sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_is_printed_is_in_the_log_until_nobody_reads() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let (mut log, mut output) = LogPipe::start(File::create(&path).unwrap()).unwrap();
        output.write_all(b"before").unwrap();
        while std::fs::read(&path).unwrap() != b"before" {
            std::thread::yield_now();
        }
        log.close();
        assert_eq!(refusal(output).kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(std::fs::read(&path).unwrap(), b"before");
    }

    #[test]
    fn all_is_in_the_log_when_the_writers_have_ended() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let (mut log, mut output) = LogPipe::start(File::create(&path).unwrap()).unwrap();
        let text = vec![b'a'; 100_000];
        output.write_all(&text).unwrap();
        drop(output);
        log.finish();
        assert_eq!(std::fs::read(&path).unwrap(), text);
    }

    #[test]
    fn a_writer_that_does_not_end_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let (mut log, mut output) = LogPipe::start(File::create(&path).unwrap()).unwrap();
        output.write_all(b"before").unwrap();
        log.finish();
        assert_eq!(std::fs::read(&path).unwrap(), b"before");
        assert_eq!(refusal(output).kind(), io::ErrorKind::BrokenPipe);
    }
}
