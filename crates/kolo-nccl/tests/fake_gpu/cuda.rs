//! The fake CUDA driver.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Condvar, Mutex};

pub type Work = Box<dyn FnOnce() + Send>;

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const NO_DEVICE: c_int = 100;
const NOT_READY: c_int = 600;

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    submitted: u64,
    done: u64,
    closed: bool,
}

/// A stream, which runs its work in order on a thread.
#[derive(Default)]
pub struct Stream {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Stream {
    pub fn submit(&self, work: Work) {
        let mut queue = self.queue.lock().unwrap();
        queue.work.push_back(work);
        queue.submitted += 1;
        self.changed.notify_all();
    }

    fn run(&self) {
        let mut queue = self.queue.lock().unwrap();
        loop {
            if let Some(work) = queue.work.pop_front() {
                drop(queue);
                work();
                queue = self.queue.lock().unwrap();
                queue.done += 1;
                self.changed.notify_all();
            } else if queue.closed {
                return;
            } else {
                queue = self.changed.wait(queue).unwrap();
            }
        }
    }

    fn finish(&self) {
        let mut queue = self.queue.lock().unwrap();
        while queue.done < queue.submitted {
            queue = self.changed.wait(queue).unwrap();
        }
    }
}

/// Returns the stream behind a handle.
pub unsafe fn stream(handle: *mut c_void) -> Arc<Stream> {
    let handle = handle.cast::<Stream>().cast_const();
    unsafe { Arc::increment_strong_count(handle) };
    unsafe { Arc::from_raw(handle) }
}

struct Event(Mutex<Option<(Arc<Stream>, u64)>>);

/// An address that may go to another thread.
#[derive(Clone, Copy)]
pub struct Address(pub usize);

thread_local! {
    /// Device number plus one.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The device that this thread has bound.
pub fn current() -> Option<usize> {
    CURRENT.get().checked_sub(1)
}

fn count() -> c_int {
    std::env::var("FAKE_DEVICES").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(_flags: c_uint) -> c_int {
    if count() == 0 { NO_DEVICE } else { SUCCESS }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(_error: c_int, text: *mut *const c_char) -> c_int {
    unsafe { *text = c"CUDA_ERROR_FAKE".as_ptr() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int {
    let message = if error == NO_DEVICE { c"no CUDA-capable device is detected" } else { c"a fake error" };
    unsafe { *text = message.as_ptr() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(devices: *mut c_int) -> c_int {
    unsafe { *devices = count() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, number: c_int) -> c_int {
    unsafe { *device = number };
    if number < count() { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, _device: c_int) -> c_int {
    let text = c"a fake device".to_bytes_with_nul();
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len().min(len as usize)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut u8, device: c_int) -> c_int {
    unsafe { std::ptr::write_bytes(uuid, device as u8, 16) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut u8, device: c_int) -> c_int {
    unsafe { cuDeviceGetUuid(uuid, device) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, _attribute: c_int, _device: c_int) -> c_int {
    unsafe { *value = 1 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) -> c_int {
    unsafe { *context = device as usize + 1 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> c_int {
    unsafe { *context = CURRENT.get() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: usize) -> c_int {
    CURRENT.set(context);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(handle: *mut *mut c_void, _flags: c_uint) -> c_int {
    let stream = Arc::new(Stream::default());
    let thread = stream.clone();
    std::thread::spawn(move || thread.run());
    unsafe { *handle = Arc::into_raw(stream).cast_mut().cast() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(handle: *mut c_void) -> c_int {
    let stream = unsafe { Arc::from_raw(handle.cast::<Stream>().cast_const()) };
    stream.queue.lock().unwrap().closed = true;
    stream.changed.notify_all();
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(handle: *mut c_void) -> c_int {
    unsafe { stream(handle) }.finish();
    SUCCESS
}

/// Bytes before a block's memory, which hold the block's length.
const HEAD: usize = 16;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(address: *mut u64, bytes: usize, _stream: *mut c_void) -> c_int {
    if bytes == 0 || current().is_none() {
        return INVALID_VALUE;
    }
    let block = Box::leak(vec![0xaau128; bytes.div_ceil(16) + 1].into_boxed_slice());
    block[0] = block.len() as u128;
    unsafe { *address = block.as_ptr() as u64 + HEAD as u64 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync(address: u64, handle: *mut c_void) -> c_int {
    let block = Address(address as usize - HEAD);
    unsafe { stream(handle) }.submit(Box::new(move || {
        let start = { block }.0 as *mut u128;
        let block = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, *start as usize)) };
        let mut block = block;
        block.fill(u128::MAX);
    }));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(address: u64, byte: u8, bytes: usize, handle: *mut c_void) -> c_int {
    unsafe { stream(handle) }
        .submit(Box::new(move || unsafe { std::ptr::write_bytes(address as *mut u8, byte, bytes) }));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const u8,
    bytes: usize,
    handle: *mut c_void,
) -> c_int {
    let data = unsafe { std::slice::from_raw_parts(from, bytes) }.to_vec();
    unsafe { stream(handle) }.submit(Box::new(move || unsafe {
        std::ptr::copy_nonoverlapping(data.as_ptr(), to as *mut u8, data.len());
    }));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut u8,
    from: u64,
    bytes: usize,
    handle: *mut c_void,
) -> c_int {
    let stream = unsafe { stream(handle) };
    let to = to as usize;
    stream.submit(Box::new(move || unsafe {
        std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes);
    }));
    stream.finish();
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) -> c_int {
    unsafe { *event = Box::into_raw(Box::new(Event(Mutex::new(None)))).cast() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: *mut c_void, handle: *mut c_void) -> c_int {
    let stream = unsafe { stream(handle) };
    let end = stream.queue.lock().unwrap().submitted;
    *unsafe { &*event.cast::<Event>() }.0.lock().unwrap() = Some((stream, end));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: *mut c_void) -> c_int {
    let event = unsafe { &*event.cast::<Event>() }.0.lock().unwrap();
    match &*event {
        Some((stream, end)) if stream.queue.lock().unwrap().done < *end => NOT_READY,
        _ => SUCCESS,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: *mut c_void) -> c_int {
    drop(unsafe { Box::from_raw(event.cast::<Event>()) });
    SUCCESS
}
