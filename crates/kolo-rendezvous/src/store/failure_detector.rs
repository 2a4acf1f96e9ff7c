//! The failure detector: a connection to the store that stands for this rank's life, and a thread that hears
//! of the others'.

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

/// How long a rank that reports a timeout waits for the store to say who is to blame.
const BLAME_TIMEOUT: Duration = Duration::from_secs(3);

/// Tells the store that this rank lives, by a connection that stays open, and a group's [`Liveness`] which
/// ranks have failed or left. Dropping it says that this rank leaves in good order.
pub struct FailureDetector {
    stream: Arc<Mutex<SecureStream>>,
    listening: Option<JoinHandle<()>>,
}

impl FailureDetector {
    /// Begins for `rank`, with the store at `address`, to which this rank has connected before: one that
    /// nobody serves is lost and is not waited for. `liveness` hears of the others from now on.
    ///
    /// # Errors
    ///
    /// As [`Store::connect_served`](super::Store::connect_served); the group has failed already; the rank is
    /// another worker's ([`Error::DuplicateRank`]) or none of the job's ([`Error::UnknownRank`]).
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
        // Of the others there may be no news for as long as the job trains.
        stream.set_timeout(None).map_err(|cause| lost(address, cause))?;
        let sending = Arc::new(Mutex::new(stream.write_half().map_err(|cause| lost(address, cause))?));
        let answers = sending.clone();
        let listening = std::thread::Builder::new()
            .name("kolo-failures".into())
            .spawn(move || listen(stream, &answers, rank, &liveness))
            .map_err(|cause| Error::system("cannot start a thread", cause))?;
        Ok(FailureDetector { stream: sending, listening: Some(listening) })
    }

    /// Reports to all ranks what went wrong. Gives what the store makes of it, which differs where a rank has
    /// been waited for too long: the one to blame may be one that it waits for in turn.
    pub fn report(&self, error: Error, liveness: &Liveness) -> Error {
        let stalled = matches!(error, Error::Timeout { .. });
        let own = error.clone();
        let request = if stalled { Request::Stalled { error } } else { Request::Failed { error } };
        // If rank 0 is gone there is nobody to tell, and all ranks have noticed.
        let _ = wire::write(&mut *self.stream.lock(), &request);
        let blamed = if stalled { liveness.wait_for_failure(BLAME_TIMEOUT) } else { None };
        blamed.unwrap_or(own)
    }
}

impl Drop for FailureDetector {
    fn drop(&mut self) {
        {
            let mut stream = self.stream.lock();
            // If rank 0 is gone there is nobody to tell.
            let _ = wire::write(&mut *stream, &Request::Leave);
            let _ = stream.shutdown();
        }
        if let Some(thread) = self.listening.take() {
            // It ends with an error only by a bug, which has been printed as a panic.
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
                // A lost connection shows at the next read.
                let _ = wire::write(&mut *answers.lock(), &answer);
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    // The store has gone. Either rank 0 has left before, or this rank itself has (then nobody waits any
    // more), or rank 0 has died.
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

    /// A process that is stopped: its host accepts what is sent to it, and it says nothing.
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
            let told = error.unwrap().to_string();
            assert!(told.contains("does not answer; it may be stopped"), "{told}");
        }
    }
}
