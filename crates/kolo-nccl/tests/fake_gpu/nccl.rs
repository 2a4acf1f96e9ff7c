//! NCCL, in its mode that does not block.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::Duration;

use half::{bf16, f16};

use crate::cuda::{self, Stream};

const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 4;
const INVALID_USAGE: c_int = 5;
const REMOTE_ERROR: c_int = 6;
const IN_PROGRESS: c_int = 7;

type Id = [u8; 128];

/// The ranks that share an id.
#[derive(Default)]
struct World {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    joined: usize,
    /// Somebody has aborted.
    broken: bool,
    /// What the ranks bring to collective number so many.
    brought: HashMap<(usize, usize), Vec<u8>>,
    /// Messages under way, by sender and receiver.
    messages: HashMap<(usize, usize), VecDeque<Vec<u8>>>,
}

static WORLDS: LazyLock<Mutex<HashMap<Id, Arc<World>>>> = LazyLock::new(Default::default);

struct Comm {
    world: Arc<World>,
    rank: usize,
    ranks: usize,
    /// Set by abort: whatever runs gives up.
    aborted: AtomicBool,
    /// Collectives issued so far.
    issued: AtomicUsize,
    running: AtomicUsize,
    /// Not yet on the stream, and how often its state is still asked for before it is.
    begun: Mutex<(Vec<Call>, usize)>,
}

#[derive(Clone, Copy)]
enum What {
    Reduce {
        op: c_int,
        to: Target,
    },
    /// Everybody's bytes, one after another.
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

/// Who gets the result of a reduction.
#[derive(Clone, Copy)]
enum Target {
    All,
    Root(usize),
    Chunks,
}

struct Call {
    comm: Arc<Comm>,
    stream: Arc<Stream>,
    what: What,
    from: usize,
    to: usize,
    bytes: usize,
    dtype: c_int,
}

thread_local! {
    /// The open group's calls.
    static GROUP: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

unsafe fn comm(handle: *mut c_void) -> Arc<Comm> {
    let handle = handle.cast::<Comm>().cast_const();
    unsafe { Arc::increment_strong_count(handle) };
    unsafe { Arc::from_raw(handle) }
}

impl Comm {
    /// Waits for what `ready` finds; nothing after an abort.
    fn wait<R>(&self, mut ready: impl FnMut(&mut State) -> Option<R>) -> Option<R> {
        let mut state = self.world.state.lock().unwrap();
        loop {
            if self.aborted.load(Ordering::SeqCst) {
                return None;
            }
            if let Some(found) = ready(&mut state) {
                return Some(found);
            }
            // An abort is noticed at the latest then.
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
    /// On the stream's thread; `number` is that of the collective.
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

    fn put(self) {
        let collective = !matches!(self.what, What::Send { .. } | What::Receive { .. });
        let number = self.comm.issued.fetch_add(usize::from(collective), Ordering::SeqCst);
        self.comm.running.fetch_add(1, Ordering::SeqCst);
        self.stream.clone().submit(Box::new(move || {
            self.run(number);
            self.comm.running.fetch_sub(1, Ordering::SeqCst);
        }));
    }
}

fn combined(all: &[Vec<u8>], dtype: c_int, op: c_int) -> Vec<u8> {
    macro_rules! of {
        ($t:ty, $from:expr, $to:expr) => {{
            let size = size_of::<$t>();
            let value = |bytes: &[u8], index: usize| -> f64 {
                $from(<$t>::from_ne_bytes(bytes[index * size..][..size].try_into().unwrap()))
            };
            let mut result = Vec::new();
            for index in 0..all[0].len() / size {
                let values = all.iter().map(|bytes| value(bytes, index));
                let combined = values.reduce(|a, b| match op {
                    0 | 4 => a + b,
                    1 => a * b,
                    2 => a.max(b),
                    _ => a.min(b),
                });
                let divided = combined.unwrap() / if op == 4 { all.len() as f64 } else { 1.0 };
                result.extend_from_slice(&<$t>::to_ne_bytes($to(divided)));
            }
            result
        }};
    }
    match dtype {
        1 => of!(u8, |x| x as f64, |x| x as u8),
        2 => of!(i32, |x| x as f64, |x| x as i32),
        4 => of!(i64, |x| x as f64, |x| x as i64),
        6 => of!(f16, f64::from, f16::from_f64),
        7 => of!(f32, |x| x as f64, |x| x as f32),
        8 => of!(f64, |x| x, |x| x),
        _ => of!(bf16, f64::from, bf16::from_f64),
    }
}

fn size(dtype: c_int) -> usize {
    [1, 1, 4, 4, 8, 8, 2, 4, 8, 2][dtype as usize]
}

fn begin(calls: Vec<Call>) -> c_int {
    let Some(first) = calls.first() else { return SUCCESS };
    let comm = first.comm.clone();
    *comm.begun.lock().unwrap() = (calls, 3);
    IN_PROGRESS
}

#[allow(clippy::too_many_arguments)]
unsafe fn call(
    what: What,
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    handle: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    let (comm, stream) = unsafe { (comm(handle), cuda::stream(stream)) };
    if !comm.begun.lock().unwrap().0.is_empty() || cuda::current().is_none() {
        return INVALID_USAGE;
    }
    let (from, to, bytes) = (from as usize, to as usize, count * size(dtype));
    let call = Call { comm, stream, what, from, to, bytes, dtype };
    GROUP.with_borrow_mut(|group| match group {
        Some(calls) => {
            calls.push(call);
            SUCCESS
        }
        None => begin(vec![call]),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    unsafe { *version = 22_703 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut Id) -> c_int {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let mut bytes = [7; 128];
    bytes[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::SeqCst).to_ne_bytes());
    unsafe { *id = bytes };
    SUCCESS
}

#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

#[repr(C)]
pub struct UniqueId(Id);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    handle: *mut *mut c_void,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *mut Config,
) -> c_int {
    let Config { size, magic, version, blocking } = unsafe { config.read() };
    let known = (size, magic, version, blocking) == (24, 0xcafe_beef, 21_400, 0);
    if !known || cuda::current().is_none() || rank >= ranks {
        return INVALID_ARGUMENT;
    }
    let world = WORLDS.lock().unwrap().entry(id.0).or_default().clone();
    world.state.lock().unwrap().joined += 1;
    let comm = Comm {
        world,
        rank: rank as usize,
        ranks: ranks as usize,
        aborted: AtomicBool::new(false),
        issued: AtomicUsize::new(0),
        running: AtomicUsize::new(0),
        begun: Mutex::new((Vec::new(), 3)),
    };
    unsafe { *handle = Arc::into_raw(Arc::new(comm)).cast_mut().cast() };
    IN_PROGRESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(handle: *mut c_void, result: *mut c_int) -> c_int {
    let comm = unsafe { comm(handle) };
    let state = comm.world.state.lock().unwrap();
    let (joined, broken) = (state.joined, state.broken);
    drop(state);
    let mut begun = comm.begun.lock().unwrap();
    begun.1 = begun.1.saturating_sub(1);
    let settled = begun.1 == 0 && joined == comm.ranks;
    if settled {
        std::mem::take(&mut begun.0).into_iter().for_each(Call::put);
    }
    let code = match settled {
        _ if broken => REMOTE_ERROR,
        true => SUCCESS,
        false => IN_PROGRESS,
    };
    unsafe { *result = code };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommFinalize(handle: *mut c_void) -> c_int {
    unsafe { comm(handle) }.begun.lock().unwrap().1 = 3;
    IN_PROGRESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDestroy(handle: *mut c_void) -> c_int {
    let comm = unsafe { Arc::from_raw(handle.cast::<Comm>().cast_const()) };
    while comm.running.load(Ordering::SeqCst) > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommAbort(handle: *mut c_void) -> c_int {
    {
        let comm = unsafe { comm(handle) };
        comm.aborted.store(true, Ordering::SeqCst);
        // As a connection that breaks.
        comm.world.state.lock().unwrap().broken = true;
        comm.world.changed.notify_all();
    }
    unsafe { ncclCommDestroy(handle) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    if code == REMOTE_ERROR {
        c"remote process exited or there was a network error".as_ptr()
    } else {
        c"fake".as_ptr()
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetLastError(_handle: *mut c_void) -> *const c_char {
    c"".as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupStart() -> c_int {
    GROUP.set(Some(Vec::new()));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupEnd() -> c_int {
    let mut calls = GROUP.take().unwrap_or_default();
    // All at once in earnest; here nobody waits for a message before it has sent its own.
    calls.sort_by_key(|call| matches!(call.what, What::Receive { .. }));
    begin(calls)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    op: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    unsafe { call(What::Reduce { op, to: Target::All }, from, to, count, dtype, comm, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduceScatter(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    op: c_int,
    handle: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    let all = count * unsafe { comm(handle) }.ranks;
    unsafe { call(What::Reduce { op, to: Target::Chunks }, from, to, all, dtype, handle, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllGather(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    unsafe { call(What::Gather, from, to, count, dtype, comm, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBroadcast(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    root: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    unsafe { call(What::Broadcast { root: root as usize }, from, to, count, dtype, comm, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    op: c_int,
    root: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    let to_root = Target::Root(root as usize);
    unsafe { call(What::Reduce { op, to: to_root }, from, to, count, dtype, comm, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclSend(
    from: *const c_void,
    count: usize,
    dtype: c_int,
    peer: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    let what = What::Send { peer: peer as usize };
    unsafe { call(what, from, std::ptr::null_mut(), count, dtype, comm, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRecv(
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    peer: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    let what = What::Receive { peer: peer as usize };
    unsafe { call(what, std::ptr::null(), to, count, dtype, comm, stream) }
}
