//! The failure detector: a connection to the store that shows that this rank lives, and a thread that
//! receives the state of the other ranks.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::client::{lost, open};
use super::wire::{self, Reply, Request};
use crate::error::Error;
use crate::liveness::Liveness;
use crate::secure::{Access, SecureStream};
use kolo_schedule::Rank;

/// Time for which a rank that reports a timeout waits until the store names the culprit.
const BLAME_TIMEOUT: Duration = Duration::from_secs(3);

/// Shows the store that this rank lives, by an open connection, and reports failures and departures of other
/// ranks to a group's [`Liveness`]. Dropping it means that this rank leaves in good order.
pub struct FailureDetector {
    stream: Arc<Mutex<SecureStream>>,
    listening: Option<JoinHandle<()>>,
}

kolo_schedule::opaque_debug!(FailureDetector);

impl FailureDetector {
    /// Starts detection for `rank` with the store at `address`, to which this rank has connected before: a
    /// store that is not served any more is lost. `liveness` receives the state of the other ranks.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::connect_served`](super::Store::connect_served); the group's earlier failure;
    /// [`Error::DuplicateRank`] if another worker has the rank, [`Error::UnknownRank`] if the job does not.
    pub fn start(
        address: SocketAddr,
        rank: Rank,
        liveness: Arc<Liveness>,
        access: &Access,
        timeout: Duration,
    ) -> Result<FailureDetector, Error> {
        let mut stream = open(address, access, timeout, true)?;
        let greeting = stream
            .set_timeout(Some(timeout))
            .and_then(|()| wire::write(&mut stream, &Request::Monitor { rank }))
            .and_then(|()| wire::read(&mut stream));
        match greeting.map_err(|cause| lost(address, cause))? {
            Reply::Monitored => {}
            Reply::Failed { error } => return Err(error),
            _ => return Err(lost(address, io::ErrorKind::InvalidData.into())),
        }
        // The other ranks may send nothing for as long as the job trains.
        stream.set_timeout(None).map_err(|cause| lost(address, cause))?;
        let sending = Arc::new(Mutex::new(stream.write_half().map_err(|cause| lost(address, cause))?));
        let answers = sending.clone();
        let listening = std::thread::Builder::new()
            .name("kolo-failures".into())
            .spawn(move || listen(stream, &answers, rank, &liveness))
            .map_err(|cause| Error::system("cannot start a thread", cause))?;
        Ok(FailureDetector { stream: sending, listening: Some(listening) })
    }

    /// Reports an error to all ranks. Returns the store's verdict, which may differ for a timeout: the late
    /// rank may itself wait for the culprit.
    pub fn report(&self, error: Error, liveness: &Liveness) -> Error {
        let stalled = matches!(error, Error::Timeout { .. });
        let own = error.clone();
        let request = if stalled { Request::Stalled { error } } else { Request::Failed { error } };
        // If rank 0 is gone, all ranks have noticed.
        let _ = wire::write(&mut *self.stream.lock(), &request);
        let blamed = if stalled { liveness.wait_for_failure(BLAME_TIMEOUT) } else { None };
        blamed.unwrap_or(own)
    }
}

impl Drop for FailureDetector {
    fn drop(&mut self) {
        {
            let mut stream = self.stream.lock();
            // If rank 0 is gone, no rank needs the message.
            let _ = wire::write(&mut *stream, &Request::Leave);
            let _ = stream.shutdown();
        }
        if let Some(thread) = self.listening.take() {
            // The thread panics only because of a bug, and the panic has been printed.
            let _ = thread.join();
        }
    }
}

fn listen(mut stream: SecureStream, answers: &Mutex<SecureStream>, rank: Rank, liveness: &Liveness) {
    let mut rank_0_left = false;
    loop {
        match wire::read(&mut stream) {
            Ok(Reply::Failed { error }) => {
                liveness.fail(error);
            }
            Ok(Reply::Left { rank }) => {
                rank_0_left |= rank == Rank(0);
                liveness.leave(rank);
            }
            Ok(Reply::Probe) => {
                let answer = Request::Waiting { on: liveness.waiting_for(rank) };
                // The next read detects a lost connection.
                let _ = wire::write(&mut *answers.lock(), &answer);
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    // The store is gone. Rank 0 left earlier, or this rank itself did (then nothing waits), or rank 0 died.
    if !rank_0_left {
        liveness.fail(Error::Died { rank: Rank(0) });
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::secure::{Protocol, handshake};
    use crate::store::Store;

    /// Simulates a stopped process: its host accepts messages, but the process sends nothing.
    fn stopped() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let access = Access::new(None, false).unwrap();
            let greeted = listener.incoming().map(|stream| {
                let mut stream = stream.unwrap();
                let caller = handshake::respond(&mut stream, &access, Protocol::Store).ok();
                caller.map(|caller| caller.accept(&mut stream).ok());
                stream
            });
            // The connections stay open.
            greeted.collect::<Vec<_>>()
        });
        address
    }

    #[test]
    fn a_store_that_is_stopped_is_not_waited_for_without_end() {
        let (address, wait) = (stopped(), Duration::from_millis(200));
        let access = Access::new(None, false).unwrap();
        let liveness = Arc::new(Liveness::new(2));
        let started = FailureDetector::start(address, Rank(1), liveness, &access, wait);
        let mut store = Store::connect(address, &access, wait).unwrap();
        store.set_timeout(wait).unwrap();
        for error in [started.err(), store.get("key", Duration::ZERO).err()] {
            let message = error.unwrap().to_string();
            assert!(message.contains("does not answer; it may be stopped"), "{message}");
        }
    }
}
