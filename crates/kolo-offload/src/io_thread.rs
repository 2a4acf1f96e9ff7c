//! The thread that reads and writes records, in the order of the requests: a record that is written and then
//! read again comes back as it was written.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use kolo_optim::StoreFailure;

use crate::state_file::StateFile;

/// A read into a buffer, or a write of one.
pub(crate) struct Request {
    /// Number by which the caller knows its answer.
    pub(crate) ticket: u64,
    pub(crate) is_write: bool,
    /// Place in the file, in bytes.
    pub(crate) place: u64,
    pub(crate) buffer: Vec<f32>,
}

/// Answer to a request, with its buffer.
pub(crate) struct Answer {
    pub(crate) ticket: u64,
    pub(crate) is_write: bool,
    pub(crate) buffer: Vec<f32>,
    pub(crate) result: Result<(), StoreFailure>,
}

/// The thread. Dropping it waits for its requests.
#[derive(Debug)]
pub(crate) struct IoThread {
    requests: Option<Sender<Request>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl IoThread {
    /// Starts the thread.
    pub(crate) fn start(file: Arc<StateFile>) -> io::Result<Self> {
        let (requests, asked) = channel::<Request>();
        let (answer, answers) = channel();
        let work = move || {
            for Request { ticket, is_write, place, mut buffer } in asked {
                let result = match is_write {
                    true => file.write(place, &buffer),
                    false => file.read(place, &mut buffer),
                };
                if answer.send(Answer { ticket, is_write, buffer, result }).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("kolo-offload".into()).spawn(work)?;
        Ok(IoThread { requests: Some(requests), answers, thread: Some(thread) })
    }

    /// Hands a request to the thread.
    pub(crate) fn ask(&self, request: Request) {
        // A thread that has ended shows in `next`.
        let _ = self.requests.as_ref().map(|requests| requests.send(request));
    }

    /// Waits for the next answer; `None` if the thread has ended.
    pub(crate) fn next(&self) -> Option<Answer> {
        self.answers.recv().ok()
    }

    /// Returns the next answer, if there is one yet.
    pub(crate) fn poll(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
