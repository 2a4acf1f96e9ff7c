//! The store's asking side, on every rank.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::wire::{self, Reply, Request};
use crate::error::Error;
use crate::liveness::{Liveness, lock};
use crate::secure::{Access, Link, Purpose, introduce};
use kolo_schedule::Rank;

/// A connection for questions.
pub struct Store {
    stream: Link,
    address: SocketAddr,
}

impl Store {
    /// Connects, waiting for rank 0 to serve until the deadline.
    pub fn connect(address: SocketAddr, access: &Access, timeout: Duration) -> Result<Store, Error> {
        Ok(Store { stream: connect(address, access, timeout)?, address })
    }

    /// The address of this host as the store sees it: peers can reach us there.
    pub fn local_ip(&self) -> Result<IpAddr, Error> {
        self.stream.local_addr().map(|address| address.ip()).map_err(|cause| lost(self.address, &cause))
    }

    pub fn set(&mut self, key: &str, value: String) -> Result<(), Error> {
        match self.ask(&Request::Set { key: key.into(), value })? {
            Reply::Kept => Ok(()),
            Reply::Refused { why } => Err(Error::system("rank 0's store refuses a value", why)),
            _ => Err(lost(self.address, &io::ErrorKind::InvalidData.into())),
        }
    }

    /// Has a value kept once this connection has ended, however it does.
    pub fn will(&mut self, key: &str, value: String) -> Result<(), Error> {
        match self.ask(&Request::Will { key: key.into(), value })? {
            Reply::Kept => Ok(()),
            _ => Err(lost(self.address, &io::ErrorKind::InvalidData.into())),
        }
    }

    /// From now on every answer must come within `silence`, which should be longer than any wait that is asked for.
    pub fn hurry(&mut self, silence: Duration) -> Result<(), Error> {
        self.stream.hurry(silence).map_err(|cause| lost(self.address, &cause))
    }

    /// The value of a key, as soon as somebody has set it; `None` after `wait`.
    pub fn get(&mut self, key: &str, wait: Duration) -> Result<Option<String>, Error> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        match self.ask(&Request::Get { key: key.into(), wait_ms })? {
            Reply::Value(value) => Ok(value),
            _ => Err(lost(self.address, &io::ErrorKind::InvalidData.into())),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, Error> {
        let answer = wire::write(&mut self.stream, request).and_then(|()| wire::read(&mut self.stream));
        answer.map_err(|cause| lost(self.address, &cause))
    }
}

fn lost(address: SocketAddr, cause: &io::Error) -> Error {
    Error::system(format!("lost the store of rank 0 at {address}"), cause)
}

fn connect(address: SocketAddr, access: &Access, timeout: Duration) -> Result<Link, Error> {
    // Otherwise this rank would wait for a rank 0 that refuses to start.
    access.may_listen(address.ip())?;
    let until = Instant::now() + timeout;
    let mut met = None;
    loop {
        let rest = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        if let Ok(stream) = TcpStream::connect_timeout(&address, rest.min(Duration::from_secs(5))) {
            // Without it small questions wait for acknowledgements; losing it costs time only.
            let _ = stream.set_nodelay(true);
            match introduce(&stream, access, Purpose::Store, &[], until) {
                Ok(session) => return Ok(Link::new(stream, session)),
                Err(error) => met = Some(error),
            }
        }
        match met {
            Some(error) if !error.passes() || Instant::now() >= until => {
                return Err(Error::system(format!("cannot join the job at {address}"), error));
            }
            None if Instant::now() >= until => {
                return Err(Error::Missing { missing: vec![Rank(0)], address, waited: timeout });
            }
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The connection that stands for this rank's life, and the thread that hears of the others'.
pub struct Watch {
    stream: Arc<Mutex<Link>>,
    listening: Option<JoinHandle<()>>,
}

impl Watch {
    pub fn start(
        address: SocketAddr,
        rank: Rank,
        liveness: Arc<Liveness>,
        access: &Access,
        timeout: Duration,
    ) -> Result<Watch, Error> {
        let mut stream = connect(address, access, timeout)?;
        let greeting =
            wire::write(&mut stream, &Request::Watch { rank }).and_then(|()| wire::read(&mut stream));
        match greeting.map_err(|cause| lost(address, &cause))? {
            Reply::Watched => {}
            Reply::Failed { error } => return Err(error),
            _ => return Err(lost(address, &io::ErrorKind::InvalidData.into())),
        }
        let mouth = Arc::new(Mutex::new(stream.mouth().map_err(|cause| lost(address, &cause))?));
        let answers = mouth.clone();
        let listening = std::thread::Builder::new()
            .name("kolo-watch".into())
            .spawn(move || listen(stream, &answers, rank, &liveness))
            .map_err(|cause| Error::system("cannot start a thread", cause))?;
        Ok(Watch { stream: mouth, listening: Some(listening) })
    }

    /// Tells everybody what went wrong. Returns what the store makes of it, which differs where a rank has been
    /// waited for too long: the one to blame may be one that it waits for in turn.
    pub fn tell(&self, error: Error, liveness: &Liveness) -> Error {
        let stalled = matches!(error, Error::Timeout { .. });
        let own = error.clone();
        let request = if stalled { Request::Stalled { error } } else { Request::Failed { error } };
        // If rank 0 is gone there is nobody to tell, and everybody has noticed.
        let _ = wire::write(&mut *lock(&self.stream), &request);
        let until = Instant::now() + Duration::from_secs(3);
        while stalled && Instant::now() < until {
            if let Some(verdict) = liveness.failure() {
                return verdict;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        own
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        {
            let mut stream = lock(&self.stream);
            // The same: nobody left to say goodbye to.
            let _ = wire::write(&mut *stream, &Request::Bye);
            let _ = stream.shutdown();
        }
        if let Some(thread) = self.listening.take() {
            // It ends with an error only by a bug, which has been printed as a panic.
            let _ = thread.join();
        }
    }
}

fn listen(mut stream: Link, answers: &Mutex<Link>, rank: Rank, liveness: &Liveness) {
    let mut master_left = false;
    loop {
        match wire::read(&mut stream) {
            Ok(Reply::Failed { error }) => {
                liveness.fail(error);
            }
            Ok(Reply::Left { rank }) => {
                master_left |= rank == Rank(0);
                liveness.leave(rank);
            }
            Ok(Reply::Probe) => {
                let answer = Request::Waiting { on: liveness.waiting_for(rank) };
                // A lost connection shows at the next read.
                let _ = wire::write(&mut *lock(answers), &answer);
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    // The store has gone. Either rank 0 said goodbye before, or this rank itself has left (then nobody waits any
    // more), or rank 0 has died.
    if !master_left {
        liveness.fail(Error::Died { rank: Rank(0) });
    }
}
