//! Forwards the workers' output, line by line, on its own thread.
//!
//! One thread reads all pipes and does all writing, so lines do not interleave. A line's prefix is its
//! worker's rank at the time of reading, which changes in an elastic job after a recovery; a worker without
//! a rank has its name there. If the reader of the launcher's output is slow, the workers' writes eventually
//! block, as they would without a launcher.

use std::convert::Infallible;
use std::io::{self, PipeWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use kolo_elastic::MemberRanks;
use parking_lot::Mutex;

use crate::error::LaunchError;
use crate::error_file::WorkerError;
use crate::job::Messages;
use crate::last_lines::LastLines;
use crate::prefixed_lines::Prefix;
use crate::streams::{Destination, Source, Stream, forward};
use crate::worker_exit::worker_name;
use crate::worker_process::WorkerProcess;
use crate::workers::Workers;

/// Time for a slow reader to take the last lines of a job that failed.
const LAST_LINES: Duration = Duration::from_millis(500);

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
