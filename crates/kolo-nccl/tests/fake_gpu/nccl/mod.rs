//! NCCL's functions, in its nonblocking mode.

mod numbers;
mod world;

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use self::numbers::size;
use self::world::{Call, Comm, Id, Target, WORLDS, What};
use crate::cuda;

const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 4;
const INVALID_USAGE: c_int = 5;
const REMOTE_ERROR: c_int = 6;
const IN_PROGRESS: c_int = 7;

thread_local! {
    /// The calls of the open group.
    static GROUP: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

unsafe fn comm(handle: *mut c_void) -> Arc<Comm> {
    let handle = handle.cast::<Comm>().cast_const();
    unsafe { Arc::increment_strong_count(handle) };
    unsafe { Arc::from_raw(handle) }
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
        // Acts as a broken connection.
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
    // NCCL runs all calls at once; here no message is awaited before a rank has sent its own.
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
