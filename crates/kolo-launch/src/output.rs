//! Forwards the workers' output, line by line, on its own thread.
//!
//! One thread reads all pipes and does all writing, so lines do not interleave. A line's prefix is its
//! worker's rank at the time of reading, which changes in an elastic job after a recovery; a worker without
//! a rank has its name there. If the reader of the launcher's output is slow, the workers' writes eventually
//! block, as they would without a launcher.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use kolo_elastic::MemberRanks;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};

use crate::error::LaunchError;
use crate::error_file::WorkerError;
use crate::job::Messages;
use crate::last_lines::LastLines;
use crate::prefixed_lines::{Prefix, PrefixedLines};
use crate::worker_exit::worker_name;
use crate::workers::{WorkerProcess, Workers};

/// Maximum number of bytes per read; then it is another stream's turn.
const PIECE: usize = 64 << 10;
/// Maximum capacity of a pipe (`/proc/sys/fs/pipe-max-size`, unless an administrator raised it). After the
/// workers have ended, a pipe holds at most this much of their output; more comes from another process that
/// kept it open.
const PIPE_CAPACITY: usize = 1 << 20;
/// Time for a slow reader to take the last lines of a job that failed.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Pause between two reads of all pipes while the kernel cannot report which are ready.
const BLIND: Duration = Duration::from_millis(20);

pub(crate) struct OutputForwarder {
    thread: JoinHandle<()>,
    /// Pipe to the thread: a byte announces new streams, closing it announces the workers' end.
    running: PipeWriter,
    /// Streams that the thread has not taken over yet.
    new: Sender<Source>,
    /// Disconnects when the thread has ended.
    done: Receiver<Infallible>,
    ranks: MemberRanks,
    messages: Messages,
    last_lines: MemberLines,
}

/// Last lines of the workers' standard error, by worker name.
#[derive(Default)]
pub(crate) struct MemberLines(Vec<(String, Arc<Mutex<LastLines>>)>);

impl MemberLines {
    /// Returns the last message of a failed worker.
    pub fn of(&self, member: &str) -> Option<WorkerError> {
        let (_, lines) = self.0.iter().find(|(name, _)| name == member)?;
        lines.lock().error()
    }
}

impl OutputForwarder {
    /// Takes over the workers' pipes. Workers without pipes write to the launcher's streams themselves.
    pub fn start(
        workers: &mut Workers,
        ranks: MemberRanks,
        messages: Messages,
    ) -> Result<OutputForwarder, LaunchError> {
        let system = |cause: io::Error| LaunchError::system("cannot pass on the workers' output", cause);
        let mut streams = Self::pass_on(ranks, messages).map_err(system)?;
        workers.list.iter_mut().try_for_each(|worker| streams.add(worker))?;
        Ok(streams)
    }

    /// Takes over one worker's pipes.
    pub fn add(&mut self, worker: &mut WorkerProcess) -> Result<(), LaunchError> {
        let mut add = || -> io::Result<()> {
            for source in self.sources(worker)? {
                // The thread ends only after `running` is closed.
                let _ = self.new.send(source);
                self.running.write_all(b"+")?;
            }
            Ok(())
        };
        add().map_err(|cause| LaunchError::system("cannot pass on a worker's output", cause))
    }

    /// Drops the last lines of these members, which are no longer needed.
    pub fn forget(&mut self, members: &[String]) {
        self.last_lines.0.retain(|(member, _)| !members.contains(member));
    }

    fn pass_on(ranks: MemberRanks, messages: Messages) -> io::Result<OutputForwarder> {
        let out = io::stdout().as_fd().try_clone_to_owned()?;
        let out = Destination::new(out.into(), "standard output", messages);
        let err = io::stderr().as_fd().try_clone_to_owned()?;
        let err = Destination::new(err.into(), "standard error", messages);
        let (ended, running) = io::pipe()?;
        let (working, done) = channel();
        let (new, arriving) = channel();
        let thread = std::thread::Builder::new().name("kolo-output".into()).spawn(move || {
            let _working = working;
            forward(&arriving, ended, out, err)
        })?;
        let last_lines = MemberLines::default();
        Ok(OutputForwarder { thread, running, new, done, ranks, messages, last_lines })
    }

    /// Forwards the rest of the pipes after the workers' end. Waits for a slow reader without limit.
    pub fn finish(self) {
        drop(self.running);
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }

    /// Like [`finish`](Self::finish), for a job that has failed: a slow reader must not delay the error
    /// report. Returns the last lines of the workers.
    pub fn abandon(self) -> MemberLines {
        drop(self.running);
        let _ = self.done.recv_timeout(LAST_LINES);
        self.last_lines
    }

    fn sources(&mut self, worker: &mut WorkerProcess) -> io::Result<Vec<Source>> {
        let mut sources = Vec::new();
        if let Some(pipe) = worker.child.stdout.take() {
            sources.push(self.source(pipe.into(), worker, Stream::Out)?);
        }
        if let Some(pipe) = worker.child.stderr.take() {
            let last_lines = Arc::new(Mutex::new(LastLines::default()));
            self.last_lines.0.push((worker.member.clone(), last_lines.clone()));
            let source = self.source(pipe.into(), worker, Stream::Err)?;
            sources.push(Source { last_lines: Some(last_lines), ..source });
        }
        Ok(sources)
    }

    fn source(&self, pipe: OwnedFd, worker: &WorkerProcess, stream: Stream) -> io::Result<Source> {
        let mut source = Source::new(pipe, self.prefix(worker), stream)?;
        source.lines.keeps_objects = self.messages == Messages::Json;
        Ok(source)
    }

    /// Returns `[rank 1] `, with the worker's rank at the time of the call.
    fn prefix(&self, worker: &WorkerProcess) -> Prefix {
        let (ranks, member, started) = (self.ranks.clone(), worker.member.clone(), worker.rank);
        Box::new(move || {
            let rank = if ranks.are_known() { ranks.last(&member) } else { Some(started) };
            format!("[{}] ", worker_name(rank, &member))
        })
    }
}

#[derive(Clone, Copy)]
enum Stream {
    Out,
    Err,
}

/// The launcher's end of one worker's pipe.
struct Source {
    pipe: File,
    lines: PrefixedLines,
    stream: Stream,
    last_lines: Option<Arc<Mutex<LastLines>>>,
}

impl Source {
    fn new(pipe: OwnedFd, prefix: Prefix, stream: Stream) -> io::Result<Source> {
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
struct Destination {
    file: File,
    name: &'static str,
    messages: Messages,
    /// True if a write has failed, and the user has been warned.
    has_failed: bool,
}

impl Destination {
    fn new(file: File, name: &'static str, messages: Messages) -> Destination {
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
fn forward(new: &Receiver<Source>, mut ended: PipeReader, mut out: Destination, mut err: Destination) {
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
