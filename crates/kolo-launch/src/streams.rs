//! The workers' streams, the launcher's own, and the thread's work between them.

use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};

use crate::job::Messages;
use crate::last_lines::LastLines;
use crate::prefixed_lines::{Prefix, PrefixedLines};

/// Maximum number of bytes per read; then it is another stream's turn.
const PIECE: usize = 64 << 10;
/// Maximum capacity of a pipe (`/proc/sys/fs/pipe-max-size`, unless an administrator raised it). After the
/// workers have ended, a pipe holds at most this much of their output; more comes from another process that
/// kept it open.
const PIPE_CAPACITY: usize = 1 << 20;
/// Pause between two reads of all pipes while the kernel cannot report which are ready.
const BLIND: Duration = Duration::from_millis(20);

#[derive(Clone, Copy)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// The launcher's end of one worker's pipe.
pub(crate) struct Source {
    pub pipe: File,
    pub lines: PrefixedLines,
    pub stream: Stream,
    pub last_lines: Option<Arc<Mutex<LastLines>>>,
}

impl Source {
    pub fn new(pipe: OwnedFd, prefix: Prefix, stream: Stream) -> io::Result<Source> {
        // Affects only this end of the pipe: workers write as usual.
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Source { pipe: pipe.into(), lines: PrefixedLines::new(prefix), stream, last_lines: None })
    }

    /// Reads one piece. `None` if nothing is there yet; `Some(0)` at the end of the stream, or on an error.
    fn read(&mut self, piece: &mut [u8], out: &mut Vec<u8>) -> Option<usize> {
        let got = loop {
            match self.pipe.read(piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                got => break got.unwrap_or(0),
            }
        };
        match got {
            0 => self.lines.finish(out),
            _ => self.lines.push(&piece[..got], out),
        }
        if let Some(last) = &self.last_lines {
            last.lock().push(&piece[..got]);
        }
        Some(got)
    }
}

/// One of the launcher's own streams.
pub(crate) struct Destination {
    file: File,
    name: &'static str,
    messages: Messages,
    /// True if a write has failed, and the user has been warned.
    has_failed: bool,
}

impl Destination {
    pub fn new(file: File, name: &'static str, messages: Messages) -> Destination {
        Destination { file, name, messages, has_failed: false }
    }

    /// Writes all bytes, or drops those that cannot be written, so that the workers continue: neither a
    /// `head` that has ended nor a full disk should end a training. A disk may have room again later.
    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return self.lost(&ErrorKind::WriteZero.into()),
                Ok(taken) => bytes = &bytes[taken..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Other users of the terminal may have made it non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let _ = poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], None);
                }
                Err(error) => return self.lost(&error),
            }
        }
    }

    /// Warns about the first failure only.
    fn lost(&mut self, error: &io::Error) {
        let is_known = std::mem::replace(&mut self.has_failed, true);
        // A reader that closes a pipe has read enough.
        if !is_known && error.kind() != ErrorKind::BrokenPipe {
            self.messages.print(&format!(
                "{} cannot be written: {error}; what workers print there is lost, and the job continues",
                self.name
            ));
        }
    }
}

/// Forwards output until `ended` is closed, then the rest of the pipes.
pub(crate) fn forward(
    new: &Receiver<Source>,
    mut ended: PipeReader,
    mut out: Destination,
    mut err: Destination,
) {
    let (mut sources, mut piece, mut lines) = (Vec::new(), vec![0; PIECE], Vec::new());
    let mut pass_on = |stream: Stream, lines: &mut Vec<u8>| {
        match stream {
            Stream::Out => out.write(lines),
            Stream::Err => err.write(lines),
        }
        lines.clear();
    };
    loop {
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&ended, PollFlags::IN)];
        fds.extend(sources.iter().map(|source: &Source| PollFd::new(&source.pipe, PollFlags::IN)));
        let is_blind = poll(&mut fds, None).is_err_and(|error| error != rustix::io::Errno::INTR);
        if is_blind {
            // The kernel lacks memory for the moment: reading shows which pipes are ready.
            std::thread::sleep(BLIND);
        }
        let news = !fds[0].revents().is_empty();
        let is_ready = |fd: &PollFd<'_>| is_blind || !fd.revents().is_empty();
        let mut ready = fds[1..].iter().map(is_ready).collect::<Vec<_>>().into_iter();
        sources.retain_mut(|source| {
            let over = ready.next() == Some(true) && source.read(&mut piece, &mut lines) == Some(0);
            pass_on(source.stream, &mut lines);
            !over
        });
        if news {
            let closed = matches!(ended.read(&mut [0; 64]), Ok(0));
            sources.extend(new.try_iter());
            if closed {
                break;
            }
        }
    }
    for mut source in sources {
        let mut left = PIPE_CAPACITY;
        while let Some(got @ 1..) = source.read(&mut piece, &mut lines) {
            pass_on(source.stream, &mut lines);
            left = left.saturating_sub(got);
            if left == 0 {
                break;
            }
        }
        source.lines.finish(&mut lines);
        pass_on(source.stream, &mut lines);
    }
}

#[cfg(test)]
mod tests {
    use std::io::PipeWriter;
    use std::sync::mpsc::channel;

    use super::*;

    fn destination(file: File) -> Destination {
        Destination::new(file, "a file", Messages::Text)
    }

    /// Forwards pipes that the function fills; returns the output at the two destinations.
    fn forwarded(fill: impl FnOnce(Vec<PipeWriter>, PipeWriter)) -> (String, String) {
        let (ended, running) = io::pipe().unwrap();
        let mut writers = Vec::new();
        let (new, arriving) = channel();
        for (rank, stream) in [(0, Stream::Out), (0, Stream::Err), (1, Stream::Out)] {
            let (reader, writer) = io::pipe().unwrap();
            let prefix = Box::new(move || format!("[{rank}] "));
            new.send(Source::new(reader.into(), prefix, stream).unwrap()).unwrap();
            writers.push(writer);
        }
        let (out, err) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let reopened = |file: &tempfile::NamedTempFile| destination(file.reopen().unwrap());
        let (out_file, err_file) = (reopened(&out), reopened(&err));
        (&running).write_all(b"+++").unwrap();
        let thread = std::thread::spawn(move || forward(&arriving, ended, out_file, err_file));
        fill(writers, running);
        thread.join().unwrap();
        let read = |file: &tempfile::NamedTempFile| std::fs::read_to_string(file.path()).unwrap();
        (read(&out), read(&err))
    }

    #[test]
    fn streams_keep_apart_and_last_lines_count() {
        let (out, err) = forwarded(|writers, _running| {
            for (mut writer, text) in writers.into_iter().zip(["a\nb", "error\n", "c"]) {
                writer.write_all(text.as_bytes()).unwrap();
            }
        });
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        assert_eq!((lines, err.as_str()), (vec!["[0] a", "[0] b", "[1] c"], "[0] error\n"));
    }

    #[test]
    fn a_pipe_kept_open_does_not_hold_the_thread() {
        let mut kept = Vec::new();
        let (out, _) = forwarded(|mut writers, running| {
            writers[0].write_all(b"before\npartial").unwrap();
            drop(running);
            kept = writers;
        });
        assert_eq!(out, "[0] before\n[0] partial\n");
        drop(kept);
    }

    #[test]
    fn a_stranger_who_writes_on_does_not_hold_the_thread() {
        let mut strangers = Vec::new();
        let (out, _) = forwarded(|writers, running| {
            for mut writer in writers {
                strangers.push(std::thread::spawn(move || while writer.write_all(b"noise\n").is_ok() {}));
            }
            drop(running);
        });
        assert!(out.len() < 8 * PIPE_CAPACITY);
        strangers.into_iter().for_each(|stranger| stranger.join().unwrap());
    }

    #[test]
    fn a_broken_destination_drains_nonetheless() {
        let (ended, mut running) = io::pipe().unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        let (new, arriving) = channel();
        new.send(Source::new(reader.into(), Box::new(String::new), Stream::Out).unwrap()).unwrap();
        running.write_all(b"+").unwrap();
        let (nobody, broken) = io::pipe().unwrap();
        drop(nobody);
        let (out, err) =
            (destination(OwnedFd::from(broken).into()), destination(tempfile::tempfile().unwrap()));
        let thread = std::thread::spawn(move || forward(&arriving, ended, out, err));
        // This is far more than a pipe holds, so it would block without a reader.
        writer.write_all(&b"line\n".repeat(PIPE_CAPACITY / 4)).unwrap();
        drop((writer, running));
        thread.join().unwrap();
    }
}
