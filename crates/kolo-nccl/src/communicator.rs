//! One rank's communicator. Calls do not block: each begins an operation, whose state the caller polls.

use std::ffi::{c_int, c_void};
use std::sync::mpsc;
use std::time::Duration;

use super::codes;
use super::library::{Code, Config, Handle, Library, Stream, UniqueId};
use super::plan::Step;
use kolo_rendezvous::Error;
use kolo_schedule::{DType, Range, Rank};

/// A communicator. It must be ended by [`Communicator::destroy`] or [`Communicator::abort`].
pub(super) struct Communicator {
    library: &'static Library,
    handle: Handle,
    rank: Rank,
}

// SAFETY: any thread may use NCCL's communicators, one at a time; `&mut` and ownership ensure that.
unsafe impl Send for Communicator {}

/// The memory that steps work on: this rank's buffer.
pub(super) struct Target {
    pub(super) start: u64,
    pub(super) dtype: DType,
    pub(super) stream: Stream,
}

impl Communicator {
    /// Begins to connect with the other ranks, on this thread's device.
    pub(super) fn begin(
        library: &'static Library,
        id: &UniqueId,
        rank: Rank,
        world: usize,
    ) -> Result<Self, Error> {
        let (mut handle, mut config) = (std::ptr::null_mut(), Config::nonblocking());
        // SAFETY: both pointers live through the call, which copies what it keeps.
        let code =
            unsafe { (library.comm_init)(&mut handle, world as c_int, *id, rank.0 as c_int, &mut config) };
        let begun = Communicator { library, handle, rank };
        match begun.begun("NCCL cannot make a communicator", code) {
            Ok(()) => Ok(begun),
            Err(error) => {
                begun.abort();
                Err(error)
            }
        }
    }

    /// Returns true if the operation begun last has settled.
    pub(super) fn settled(&mut self) -> Result<bool, Error> {
        let mut state = Code::SUCCESS;
        // SAFETY: the communicator lives, and the call writes to the state before it returns.
        let polled = unsafe { (self.library.comm_async_error)(self.handle, &mut state) };
        match (polled, state) {
            (Code::SUCCESS, Code::SUCCESS) => Ok(true),
            (Code::SUCCESS, Code::IN_PROGRESS) => Ok(false),
            (Code::SUCCESS, code) | (code, _) => Err(self.library.error("NCCL failed", code)),
        }
    }

    /// Begins to put a collective on the stream. It is there once [`Communicator::settled`] returns true.
    ///
    /// # Safety
    ///
    /// All ranges of the steps must lie within the target's memory, which must outlive them on the stream.
    pub(super) unsafe fn issue(&mut self, steps: &[Step], target: &Target) -> Result<(), Error> {
        // One call needs no group around it; an empty group would do nothing.
        if let [step] = steps {
            // SAFETY: the caller's promise.
            let code = unsafe { self.step(*step, target) };
            return self.begun("NCCL refused a collective", code);
        }
        // SAFETY: the call takes no argument; the group is this thread's, and ends below.
        let opened = unsafe { (self.library.group_start)() };
        self.begun("NCCL cannot begin a group", opened)?;
        let mut first = Ok(());
        for step in steps {
            // SAFETY: the caller's promise.
            let code = unsafe { self.step(*step, target) };
            first = first.and(self.begun("NCCL refused a part of a collective", code));
        }
        // SAFETY: the group was begun above. It must end even if a part has failed.
        let closed = unsafe { (self.library.group_end)() };
        first.and(self.begun("NCCL refused a collective", closed))
    }

    /// # Safety
    ///
    /// Same as [`Communicator::issue`].
    unsafe fn step(&self, step: Step, target: &Target) -> Code {
        let Library { all_reduce, reduce_scatter, all_gather, broadcast, reduce, send, receive, .. } =
            self.library;
        let (dtype, size) = (codes::dtype(target.dtype), target.dtype.size());
        let (comm, stream) = (self.handle, target.stream);
        // Addresses of the device; the host never follows them.
        let at = |element: usize| (target.start as usize + element * size) as *mut c_void;
        let own = |each: usize| at(self.rank.0 * each);
        let number = |rank: Rank| rank.0 as c_int;
        // SAFETY: the caller promises ranges within the target's memory; handle and stream live.
        unsafe {
            match step {
                Step::AllReduce { op, range: Range { start, len } } => {
                    all_reduce(at(start), at(start), len, dtype, codes::op(op), comm, stream)
                }
                Step::ReduceScatter { op, each } => {
                    reduce_scatter(at(0), own(each), each, dtype, codes::op(op), comm, stream)
                }
                Step::AllGather { each } => all_gather(own(each), at(0), each, dtype, comm, stream),
                Step::Broadcast { root, range: Range { start, len } } => {
                    broadcast(at(start), at(start), len, dtype, number(root), comm, stream)
                }
                Step::Reduce { op, root, range: Range { start, len } } => {
                    reduce(at(start), at(start), len, dtype, codes::op(op), number(root), comm, stream)
                }
                Step::Send { peer, range: Range { start, len } } => {
                    send(at(start), len, dtype, number(peer), comm, stream)
                }
                Step::Receive { peer, range: Range { start, len } } => {
                    receive(at(start), len, dtype, number(peer), comm, stream)
                }
            }
        }
    }

    /// Begins the end in good order, which is over once [`Communicator::settled`] returns true.
    pub(super) fn finalize(&mut self) -> Result<(), Error> {
        // SAFETY: the communicator lives, and this is called once, before it is destroyed.
        let code = unsafe { (self.library.comm_finalize)(self.handle) };
        self.begun("NCCL cannot end a communicator", code)
    }

    /// Frees the communicator, after [`Communicator::finalize`].
    pub(super) fn destroy(self) {
        // SAFETY: the communicator lives, and is not used again.
        let code = unsafe { (self.library.comm_destroy)(self.handle) };
        if let Err(error) = self.begun("NCCL cannot free a communicator", code) {
            log::warn!("{error}");
        }
    }

    /// Ends the communicator and all of its work on the device.
    pub(super) fn abort(self) {
        if self.handle.is_null() {
            return;
        }
        // SAFETY: the communicator lives, and is not used again.
        let code = unsafe { (self.library.comm_abort)(self.handle) };
        if let Err(error) = self.begun("NCCL cannot abort a communicator", code) {
            log::warn!("{error}");
        }
    }

    fn begun(&self, what: &str, code: Code) -> Result<(), Error> {
        match code {
            Code::SUCCESS | Code::IN_PROGRESS => Ok(()),
            code => Err(self.library.error(what, code)),
        }
    }
}

/// Runs NCCL calls that may hang on their own thread; returns false if they do not end in time.
pub(super) fn bounded(limit: Duration, work: impl FnOnce() + Send + 'static) -> bool {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::Builder::new().name("kolo-nccl".into()).spawn(move || {
        work();
        // Sending fails if the caller no longer waits, which is harmless.
        let _ = done.send(());
    });
    // Without a thread there is no end, so the result is the same as after a hang.
    thread.is_ok() && ended.recv_timeout(limit).is_ok()
}
