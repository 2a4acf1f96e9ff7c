//! Questions whose answers take time: each has a thread of its own.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use kolo_rendezvous::Error;
use kolo_rendezvous::store::Server;

use super::discovery::Discovered;
use super::leader_connection::LeaderConnection;
use crate::arbiter::{Claim, Verdict};
use crate::launcher_view::LauncherView;

pub(super) enum Answer {
    /// Result of the search for the job.
    Found(Result<Box<Discovered>, Error>),
    /// Result of connecting to a leader.
    Connected(Result<LeaderConnection, Error>),
    /// The view of a probed launcher; `None` if it does not answer.
    Probed { launcher: u64, connection: u64, view: Option<LauncherView> },
    /// The arbiter's verdict on a claim; an error describes why it cannot be asked now.
    Claimed { claim: Claim, verdict: Result<Verdict, String> },
}

/// The open questions, and the answers that have arrived.
pub(super) struct Questions {
    answer: Sender<Answer>,
    answers: Receiver<Answer>,
    /// The store whose waiting thread an answer wakes.
    wake: Arc<Server>,
}

impl Questions {
    pub(super) fn new(wake: Arc<Server>) -> Questions {
        let (answer, answers) = mpsc::channel();
        Questions { answer, answers, wake }
    }

    /// Asks in a thread of this name. If the thread cannot be started, or panics, the answer is `unknown`.
    pub(super) fn ask(&self, name: &str, unknown: Answer, ask: impl FnOnce() -> Answer + Send + 'static) {
        let (to, wake) = (self.answer.clone(), self.wake.clone());
        let mut pending = Pending { to, wake, answer: Some(unknown) };
        let work = move || pending.set(ask());
        // A thread that is not started drops `work`, which sends the answer.
        drop(std::thread::Builder::new().name(name.into()).spawn(work));
    }

    pub(super) fn next(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

/// An answer that is sent on drop.
struct Pending {
    to: Sender<Answer>,
    wake: Arc<Server>,
    answer: Option<Answer>,
}

impl Pending {
    fn set(&mut self, answer: Answer) {
        self.answer = Some(answer);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            // The receiver is gone when the coordinator has ended.
            let _ = self.to.send(answer);
            self.wake.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use kolo_rendezvous::secure::Access;

    use super::*;

    #[test]
    fn a_question_is_answered_also_by_a_thread_that_panics() {
        let access = Access::new(None, false).unwrap();
        let store = Server::start((Ipv4Addr::LOCALHOST, 0).into(), 1, &access).unwrap();
        let questions = Questions::new(Arc::new(store));
        let unknown = |launcher| Answer::Probed { launcher, connection: 0, view: None };
        questions.ask("answers", unknown(0), move || unknown(1));
        let answer = questions.answers.recv_timeout(Duration::from_secs(60));
        assert!(matches!(answer, Ok(Answer::Probed { launcher: 1, .. })));
        questions.ask("panics", unknown(2), || panic!("on purpose"));
        let answer = questions.answers.recv_timeout(Duration::from_secs(60));
        assert!(matches!(answer, Ok(Answer::Probed { launcher: 2, .. })));
        assert!(questions.next().is_none());
    }
}
