//! A group as Python's side sees it: raw addresses in, the GIL released while it waits.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use kolo_comm::backend::WaitMode;
use kolo_comm::env::WorkerEnv;
use kolo_comm::{Error, Group, Messages, Options, Rank, Receiving, Token};
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Server;
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::call::{Call, OPERATIONS};
use crate::elements::{ELEMENTS, REDUCTIONS};
use crate::failure::{Failure, guarded};
use crate::queue::{Handle, Queue};
use crate::region::Region;
use crate::waiting::{TURN, interruptible, limit, wait_in_turns};

/// A store by which the ranks of one group meet, served by this process.
#[pyclass(frozen, module = "kolo._native")]
pub struct StoreServer {
    server: Mutex<Option<Server>>,
    /// A process that this one forks shares the connections, and must not end them.
    process: u32,
    address: String,
}

#[pymethods]
impl StoreServer {
    #[new]
    fn new(py: Python<'_>, host: &str, world: usize, token: &str) -> PyResult<Self> {
        let start = || -> Result<_, Failure> {
            let access = Access::new(Some(Token::new(token)?), Options::from_env()?.encrypt)?;
            let server = Server::start(resolve(&format!("{host}:0"))?, world, &access)?;
            let address = server.address().map_err(|cause| Error::system("cannot read an address", cause))?;
            Ok((server, address.to_string()))
        };
        let (server, address) = start().map_err(|failure| failure.exception(py, "forming a group", None))?;
        Ok(StoreServer { server: Mutex::new(Some(server)), process: std::process::id(), address })
    }

    /// Where it listens.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// Serves until the ranks have left, at most `seconds`, and ends.
    fn close(&self, py: Python<'_>, seconds: f64) {
        if self.process != std::process::id() {
            return;
        }
        let patience = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO);
        if let Some(server) = self.server.lock().take() {
            py.detach(|| server.linger(patience));
        }
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.server.get_mut().take());
        }
    }
}

struct Open {
    queue: Arc<Queue>,
    messages: Arc<Messages>,
}

impl Open {
    /// Leaves the group when what was started is over, or `patience` later.
    fn close(self, patience: Duration) {
        let Open { queue, messages } = self;
        queue.close(patience);
        drop(messages);
        drop(queue);
    }
}

/// A group with its messages and its queue.
#[pyclass(frozen, module = "kolo._native")]
pub struct NativeGroup {
    open: Mutex<Option<Open>>,
    /// A process that this one forks has no threads for the group, and must not leave it in this one's name.
    process: u32,
    rank: usize,
    world: usize,
    transport: &'static str,
    members: Vec<usize>,
}

#[pymethods]
impl NativeGroup {
    /// Forms the group of the launcher's environment; a group of one without a launcher.
    #[staticmethod]
    #[pyo3(signature = (timeout=None))]
    fn from_env(py: Python<'_>, timeout: Option<f64>) -> PyResult<Self> {
        Self::form(py, None, move || {
            let options = Options {
                timeout: seconds(timeout)?.or(Options::from_env()?.timeout),
                ..Options::from_env()?
            };
            Ok(Group::of_job(&options)?)
        })
    }

    /// Forms a group by a store at `address`, which rank 0 serves, or another process does if `served`.
    #[staticmethod]
    #[pyo3(signature = (rank, world, address, token=None, timeout=None, served=false))]
    fn join(
        py: Python<'_>,
        rank: usize,
        world: usize,
        address: String,
        token: Option<String>,
        timeout: Option<f64>,
        served: bool,
    ) -> PyResult<Self> {
        Self::form(py, Some(rank), move || {
            if rank >= world {
                return Err(Failure::Refused(format!("there is no rank {rank} among {world}")));
            }
            let mut options = Options::from_env()?;
            options.timeout = seconds(timeout)?.or(options.timeout);
            if let Some(token) = token {
                options.token = Some(Token::new(&token)?);
            }
            if world == 1 {
                return Ok(Group::alone());
            }
            let endpoint = resolve(&address)?.into();
            let place = WorkerEnv { rank: Rank(rank), world_size: world, endpoint };
            match served {
                true => Ok(Group::join_served(&place, &options, &|| false)?),
                false => Ok(Group::join(&place, &options)?),
            }
        })
    }

    /// Splits the group by color, ordered by key; None for a rank without a color.
    #[pyo3(signature = (color, key))]
    fn split(&self, py: Python<'_>, color: Option<u32>, key: i64) -> PyResult<Option<NativeGroup>> {
        let queue = self.queue(py, "split")?;
        let split = interruptible(py, || {
            guarded(|| {
                let Some(group) = queue.group.split(color, key)? else { return Ok(None) };
                let messages = Arc::new(group.messages()?);
                Ok(Some(Open { queue: Queue::new(group), messages }))
            })
        })?;
        let split = split.map_err(|failure| failure.exception(py, "split", Some(self.rank)))?;
        Ok(split.map(NativeGroup::of))
    }

    #[getter]
    fn rank(&self) -> usize {
        self.rank
    }

    #[getter]
    fn size(&self) -> usize {
        self.world
    }

    #[getter]
    fn transport(&self) -> &'static str {
        self.transport
    }

    /// The job's rank of each rank.
    #[getter]
    fn members(&self) -> Vec<usize> {
        self.members.clone()
    }

    /// Runs an operation, given by codes and addresses. Returns None if it is over, else its handle: in the
    /// background, or because others have been started and are not over.
    #[pyo3(signature = (operation, element, reduction, root, input, input_len, output, output_len, background=false, keep=None, send=None, receive=None))]
    #[allow(clippy::too_many_arguments)]
    fn run(
        &self,
        py: Python<'_>,
        operation: usize,
        element: usize,
        reduction: usize,
        root: usize,
        input: usize,
        input_len: usize,
        output: usize,
        output_len: usize,
        background: bool,
        keep: Option<Py<PyAny>>,
        send: Option<Vec<usize>>,
        receive: Option<Vec<usize>>,
    ) -> PyResult<Option<Handle>> {
        let (name, operation) = OPERATIONS[operation.min(OPERATIONS.len() - 1)];
        let call = Call {
            operation,
            element: ELEMENTS[element.min(ELEMENTS.len() - 1)].1,
            reduction: REDUCTIONS[reduction.min(REDUCTIONS.len() - 1)].1,
            root: Rank(root),
            input: Region::new(input, input_len),
            output: Region::new(output, output_len),
            send: send.unwrap_or_default(),
            receive: receive.unwrap_or_default(),
        };
        let queue = self.queue(py, name)?;
        let raise = |failure: Failure| failure.exception(py, name, Some(self.rank));
        let directly = queue.is_calling() || !background && queue.is_idle();
        if !directly {
            return queue.start(call, keep).map(Some).map_err(raise);
        }
        interruptible(py, || call.run(&queue.group, WaitMode::Blocking))?.map(|()| None).map_err(raise)
    }

    /// Sends bytes to a rank. Returns when they may change.
    fn send(&self, py: Python<'_>, address: usize, len: usize, to: usize, tag: u64) -> PyResult<()> {
        let messages = self.messages(py, "send")?;
        let send = || {
            // SAFETY: Python keeps the array alive during this call.
            let data = unsafe { Region::new(address, len).read::<u8>() };
            guarded(|| Ok(messages.send(data, Rank(to), tag)?))
        };
        interruptible(py, send)?.map_err(|failure| failure.exception(py, "send", Some(self.rank)))
    }

    /// Asks for a message of a rank, or of any.
    #[pyo3(signature = (source, tag))]
    fn receive(&self, py: Python<'_>, source: Option<usize>, tag: u64) -> PyResult<Message> {
        let receiving = self.messages(py, "receive")?.receive(source.map(Rank), tag);
        let receiving =
            receiving.map_err(|error| Failure::from(error).exception(py, "receive", Some(self.rank)))?;
        Ok(Message { receiving: Mutex::new(receiving), arrived: Mutex::default(), rank: self.rank })
    }

    /// Ends the group for all ranks: their waits end with this reason.
    fn abandon(&self, py: Python<'_>, reason: &str) {
        if self.is_forked() {
            return;
        }
        let queue = self.open.lock().as_ref().map(|open| open.queue.clone());
        py.detach(|| queue.into_iter().for_each(|queue| queue.group.abandon(reason)));
    }

    /// Leaves the group when what was started is over, or `patience` seconds later.
    fn close(&self, py: Python<'_>, patience: f64) {
        let patience = Duration::try_from_secs_f64(patience).unwrap_or(Duration::ZERO);
        let open = self.take();
        py.detach(|| open.into_iter().for_each(|open| open.close(patience)));
    }
}

impl NativeGroup {
    /// Forms a group on a thread of its own, so that a signal ends the wait.
    fn form(
        py: Python<'_>,
        rank: Option<usize>,
        form: impl FnOnce() -> Result<Group, Failure> + Send + 'static,
    ) -> PyResult<Self> {
        let (sender, formed) = mpsc::channel();
        let work = move || {
            let open = guarded(|| {
                let group = form()?;
                let messages = Arc::new(group.messages()?);
                Ok(Open { queue: Queue::new(group), messages })
            });
            // A caller that was interrupted has left; the group is dropped and so leaves, too.
            let _ = sender.send(open);
        };
        std::thread::Builder::new().name("kolo-forming".into()).spawn(work)?;
        let formed = Mutex::new(formed);
        let poll = |turn: Duration| match formed.lock().recv_timeout(turn.max(TURN)) {
            Ok(open) => Some(open),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            Err(mpsc::RecvTimeoutError::Disconnected) => Some(Err(Failure::Panicked("it ended".into()))),
        };
        let open = wait_in_turns(py, None, poll)?.unwrap_or(Err(Failure::Closed));
        open.map(NativeGroup::of).map_err(|failure| failure.exception(py, "forming a group", rank))
    }

    fn of(open: Open) -> NativeGroup {
        let group = &open.queue.group;
        let (rank, world, transport) = (group.rank().0, group.world_size(), group.transport());
        let members = group.members().iter().map(|rank| rank.0).collect();
        let process = std::process::id();
        NativeGroup { open: Mutex::new(Some(open)), process, rank, world, transport, members }
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Takes the group out to close it. A forked process leaves it alone, and its lock, which a thread may
    /// have held at the fork.
    fn take(&self) -> Option<Open> {
        if self.is_forked() { None } else { self.open.lock().take() }
    }

    fn with_open<R>(&self, py: Python<'_>, operation: &str, get: impl FnOnce(&Open) -> R) -> PyResult<R> {
        let raise = |failure: Failure| failure.exception(py, operation, Some(self.rank));
        if self.is_forked() {
            let problem = "the group belongs to the process that formed it, not to one that it forks";
            return Err(raise(Failure::Refused(problem.into())));
        }
        self.open.lock().as_ref().map(get).ok_or_else(|| raise(Failure::Closed))
    }

    fn queue(&self, py: Python<'_>, operation: &str) -> PyResult<Arc<Queue>> {
        self.with_open(py, operation, |open| open.queue.clone())
    }

    fn messages(&self, py: Python<'_>, operation: &str) -> PyResult<Arc<Messages>> {
        self.with_open(py, operation, |open| open.messages.clone())
    }
}

impl Drop for NativeGroup {
    fn drop(&mut self) {
        if self.is_forked() {
            return std::mem::forget(self.open.get_mut().take());
        }
        if let Some(open) = self.take() {
            // Leaving may take a while, and this thread holds the GIL. Without a thread it stays until the end.
            let leave = move || open.close(Duration::ZERO);
            let _ = std::thread::Builder::new().name("kolo-leaving".into()).spawn(leave);
        }
    }
}

/// A message that was asked for.
#[pyclass(frozen, module = "kolo._native")]
pub struct Message {
    receiving: Mutex<Receiving>,
    arrived: Mutex<Option<(usize, Vec<u8>)>>,
    rank: usize,
}

#[pymethods]
impl Message {
    /// Waits at most `timeout` seconds; returns the sender, or None.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<usize>> {
        let raise = |failure: Failure| failure.exception(py, "receive", Some(self.rank));
        let timeout = limit(timeout).map_err(raise)?;
        let poll = |turn: Duration| {
            let mut arrived = self.arrived.lock();
            if let Some((from, _)) = &*arrived {
                return Some(Ok(*from));
            }
            match self.receiving.lock().wait_for(turn) {
                Ok(Some((from, data))) => {
                    *arrived = Some((from.0, data));
                    Some(Ok(from.0))
                }
                Ok(None) => None,
                Err(error) => Some(Err(error)),
            }
        };
        let result = wait_in_turns(py, timeout, poll)?;
        result.transpose().map_err(|error| raise(error.into()))
    }

    /// Number of bytes of the message that has arrived.
    fn len(&self) -> usize {
        self.arrived.lock().as_ref().map_or(0, |(_, data)| data.len())
    }

    /// Copies the message that has arrived to an array of its length.
    fn copy_to(&self, py: Python<'_>, address: usize, len: usize) -> PyResult<()> {
        let arrived = self.arrived.lock();
        let data = arrived.as_ref().map_or(&[][..], |(_, data)| data);
        if data.len() != len {
            let problem = format!("a message of {} bytes has arrived for an array of {len}", data.len());
            return Err(Failure::Refused(problem).exception(py, "receive", Some(self.rank)));
        }
        // SAFETY: Python keeps the array alive during this call.
        unsafe { Region::new(address, len).write::<u8>() }.copy_from_slice(data);
        Ok(())
    }

    /// The bytes of the message that has arrived.
    fn bytes(&self) -> Vec<u8> {
        self.arrived.lock().as_ref().map_or(Vec::new(), |(_, data)| data.clone())
    }
}

fn seconds(timeout: Option<f64>) -> Result<Option<Duration>, Failure> {
    let Some(seconds) = timeout else { return Ok(None) };
    let valid = (seconds > 0.0 && seconds < 1e9).then(|| Duration::from_secs_f64(seconds));
    let problem =
        format!("the timeout is {seconds}; it must be a number of seconds greater than 0 and below 1e9");
    valid.map(Some).ok_or(Failure::Refused(problem))
}

fn resolve(address: &str) -> Result<SocketAddr, Failure> {
    let problem =
        |cause: &str| Failure::Refused(format!("`{address}` is no address as node0:29500 ({cause})"));
    let mut found = address.to_socket_addrs().map_err(|cause| problem(&cause.to_string()))?;
    found.next().ok_or_else(|| problem("it leads nowhere"))
}
