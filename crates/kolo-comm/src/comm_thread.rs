//! The communication thread: runs started collectives in order while the caller computes.

use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use kolo_rendezvous::Error;

pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// The thread and its queue. The first collective that needs the thread starts it.
#[derive(Default)]
pub(crate) struct CommThread {
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl CommThread {
    pub(crate) fn ensure_started(&mut self) -> Result<(), Error> {
        if self.tasks.is_some() {
            return Ok(());
        }
        let (tasks, queue) = mpsc::channel::<Task>();
        let work = move || queue.into_iter().for_each(|task| task());
        let thread = std::thread::Builder::new().name("kolo-comm".into()).spawn(work);
        self.thread =
            Some(thread.map_err(|cause| Error::system("cannot start the communication thread", cause))?);
        self.tasks = Some(tasks);
        Ok(())
    }

    /// Queues a collective; the thread must have been started.
    pub(crate) fn submit(&self, task: Task) {
        if let Some(tasks) = &self.tasks {
            // A thread that has panicked drops the task, and the task's caller gets an error.
            let _ = tasks.send(task);
        }
    }

    /// Ends the thread after the queued collectives.
    pub(crate) fn finish(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            // Joining fails only if a collective panicked, and that panic has been printed.
            let _ = thread.join();
        }
    }
}
