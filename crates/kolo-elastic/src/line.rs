//! A launcher's line to the one that leads: two connections to its store, a thread for each, so that whoever speaks or listens
//! never blocks.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::talk::{self, Down, Up};
use kolo_rendezvous::Error;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Store;

/// A launcher that has not been heard of for so long counts as dead. Connections of a killed one break at once; this is for one
/// that stands still, or whose host is gone. Much longer than a busy host lets a thread wait.
pub(super) const SILENCE: Duration = Duration::from_secs(15);
/// How often a launcher says that it is there.
const BEAT: Duration = Duration::from_secs(1);
/// How long the end of a line waits until its last words are said.
const GOODBYE: Duration = Duration::from_secs(2);

/// See the module's text.
pub(super) struct Line {
    up: Option<Sender<Up>>,
    down: Receiver<Result<Down, Error>>,
    speaking: JoinHandle<()>,
    closing: Arc<AtomicBool>,
    /// This host's address on it.
    pub(super) local: IpAddr,
}

impl Line {
    /// Connects launcher `id` to the one that leads, at `address`.
    pub(super) fn open(
        address: SocketAddr,
        id: u64,
        access: &Access,
        timeout: Duration,
    ) -> Result<Line, Error> {
        let mut speaks = Store::connect(address, access, timeout)?;
        let mut hears = Store::connect(address, access, timeout)?;
        speaks.set_timeout(SILENCE)?;
        hears.set_timeout(SILENCE)?;
        hears.will(&talk::end(id), text(&Up::Lost)?)?;
        let local = speaks.local_ip()?;
        let (up, words) = mpsc::channel();
        let (news, down) = mpsc::channel();
        let closing = Arc::new(AtomicBool::new(false));
        let failed = news.clone();
        let speaking = thread("kolo-line-up", move || {
            if let Err(error) = speak(&mut speaks, id, &words) {
                // Nobody wants to know any more when the line has been closed.
                let _ = failed.send(Err(error));
            }
        })?;
        let over = closing.clone();
        thread("kolo-line-down", move || {
            if let Err(error) = hear(&mut hears, id, &news, &over) {
                let _ = news.send(Err(error));
            }
        })?;
        Ok(Line { up: Some(up), down, speaking, closing, local })
    }

    /// Says something as soon as all before is said. Whether it has arrived shows in [`Line::heard`].
    pub(super) fn say(&self, word: Up) {
        if let Some(up) = &self.up {
            let _ = up.send(word);
        }
    }

    /// What has been heard since the last call; an error when the line is dead.
    pub(super) fn heard(&self) -> Option<Result<Down, Error>> {
        match self.down.try_recv() {
            Ok(heard) => Some(heard),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Error::Invalid("the line has ended".into()))),
        }
    }

    /// The next that is heard, within `wait`.
    pub(super) fn wait(&self, wait: Duration) -> Option<Result<Down, Error>> {
        self.down.recv_timeout(wait).ok()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        // Then the thread ends when all is said.
        self.up = None;
        let until = Instant::now() + GOODBYE;
        while !self.speaking.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map_err(|cause| Error::system("cannot start a thread", cause))
}

fn text(word: &Up) -> Result<String, Error> {
    serde_json::to_string(word).map_err(|cause| Error::system("cannot be said", cause))
}

fn speak(store: &mut Store, id: u64, words: &Receiver<Up>) -> Result<(), Error> {
    for number in 0.. {
        let word = match words.recv_timeout(BEAT) {
            Ok(word) => word,
            Err(RecvTimeoutError::Timeout) => Up::Beat,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        store.set(&talk::up(id, number), text(&word)?)?;
    }
    Ok(())
}

fn hear(
    store: &mut Store,
    id: u64,
    news: &Sender<Result<Down, Error>>,
    closing: &AtomicBool,
) -> Result<(), Error> {
    let mut number = 0;
    while !closing.load(Ordering::Acquire) {
        let Some(text) = store.get(&talk::down(id, number), BEAT)? else { continue };
        number += 1;
        let word = serde_json::from_str(&text)
            .map_err(|cause| Error::system("the launcher that leads is not understood", cause))?;
        if news.send(Ok(word)).is_err() {
            break;
        }
    }
    Ok(())
}
