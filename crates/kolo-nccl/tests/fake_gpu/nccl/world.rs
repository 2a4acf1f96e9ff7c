//! The ranks of a communicator, and the data that they exchange on their streams.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::Duration;

use super::numbers::combined;
use crate::cuda::Stream;

pub(super) type Id = [u8; 128];

/// The ranks that share an id.
#[derive(Default)]
pub(super) struct World {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) joined: usize,
    /// True after a rank has aborted.
    pub(super) broken: bool,
    /// The ranks' contributions, by number of the collective and rank.
    brought: HashMap<(usize, usize), Vec<u8>>,
    /// Messages in flight, by sender and receiver.
    messages: HashMap<(usize, usize), VecDeque<Vec<u8>>>,
}

pub(super) static WORLDS: LazyLock<Mutex<HashMap<Id, Arc<World>>>> = LazyLock::new(Default::default);

pub(super) struct Comm {
    pub(super) world: Arc<World>,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// Set by abort: running work gives up.
    pub(super) aborted: AtomicBool,
    /// Number of collectives issued so far.
    pub(super) issued: AtomicUsize,
    pub(super) running: AtomicUsize,
    /// Calls that are not yet on the stream, and the number of polls of their state until they are.
    pub(super) begun: Mutex<(Vec<Call>, usize)>,
}

#[derive(Clone, Copy)]
pub(super) enum What {
    Reduce {
        op: c_int,
        to: Target,
    },
    /// Concatenates the bytes of all ranks.
    Gather,
    Broadcast {
        root: usize,
    },
    Send {
        peer: usize,
    },
    Receive {
        peer: usize,
    },
}

/// The ranks that get the result of a reduction.
#[derive(Clone, Copy)]
pub(super) enum Target {
    All,
    Root(usize),
    Chunks,
}

pub(super) struct Call {
    pub(super) comm: Arc<Comm>,
    pub(super) stream: Arc<Stream>,
    pub(super) what: What,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) bytes: usize,
    pub(super) dtype: c_int,
}

impl Comm {
    /// Waits until `ready` returns a value; `None` after an abort.
    fn wait<R>(&self, mut ready: impl FnMut(&mut State) -> Option<R>) -> Option<R> {
        let mut state = self.world.state.lock().unwrap();
        loop {
            if self.aborted.load(Ordering::SeqCst) {
                return None;
            }
            if let Some(found) = ready(&mut state) {
                return Some(found);
            }
            // An abort is noticed at the latest after this timeout.
            state = self.world.changed.wait_timeout(state, Duration::from_millis(20)).unwrap().0;
        }
    }

    fn everybodys(&self, number: usize, own: Vec<u8>) -> Option<Vec<Vec<u8>>> {
        self.world.state.lock().unwrap().brought.insert((number, self.rank), own);
        self.world.changed.notify_all();
        self.wait(|state| (0..self.ranks).map(|rank| state.brought.get(&(number, rank)).cloned()).collect())
    }
}

impl Call {
    /// Runs the call on the stream's thread; `number` is that of the collective.
    fn run(&self, number: usize) {
        let own = || unsafe { std::slice::from_raw_parts(self.from as *const u8, self.bytes) }.to_vec();
        let comm = &self.comm;
        let (rank, ranks) = (comm.rank, comm.ranks);
        let result = match self.what {
            What::Reduce { op, to } => comm.everybodys(number, own()).and_then(|all| {
                let sum = combined(&all, self.dtype, op);
                match to {
                    Target::All => Some(sum),
                    Target::Root(root) => (root == rank).then_some(sum),
                    Target::Chunks => Some(sum[rank * sum.len() / ranks..][..sum.len() / ranks].to_vec()),
                }
            }),
            What::Gather => comm.everybodys(number, own()).map(|all| all.concat()),
            What::Broadcast { root } => comm.everybodys(number, own()).map(|all| all[root].clone()),
            What::Send { peer } => {
                let mut state = comm.world.state.lock().unwrap();
                state.messages.entry((rank, peer)).or_default().push_back(own());
                comm.world.changed.notify_all();
                None
            }
            What::Receive { peer } => {
                comm.wait(|state| state.messages.get_mut(&(peer, rank)).and_then(VecDeque::pop_front))
            }
        };
        if let Some(bytes) = result {
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.to as *mut u8, bytes.len()) };
        }
    }

    pub(super) fn put(self) {
        let collective = !matches!(self.what, What::Send { .. } | What::Receive { .. });
        let number = self.comm.issued.fetch_add(usize::from(collective), Ordering::SeqCst);
        self.comm.running.fetch_add(1, Ordering::SeqCst);
        self.stream.clone().submit(Box::new(move || {
            self.run(number);
            self.comm.running.fetch_sub(1, Ordering::SeqCst);
        }));
    }
}
