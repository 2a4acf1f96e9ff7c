//! The thread that answers other ranks' requests for this rank's values.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kolo_comm::{Error, Group, Messages, Rank, Receiving};
use parking_lot::{Condvar, Mutex};

use crate::region::Region;

/// Tag of requests; answers have the number of the request.
const REQUEST: u64 = 0;
/// Name of a request in errors.
const ASKING: &str = "a gather of values";
/// Time that the last answer may take when a rank leaves a group.
const LAST_ANSWER: Duration = Duration::from_secs(1);
/// Elements of the messages that answer a request; the last one may have fewer. So an owner copies 1 MiB at a
/// time, and so does whoever takes it.
pub const PIECE: usize = 1 << 18;
/// Time between two looks at the group while a request waits for a version.
const GLANCE: Duration = Duration::from_millis(50);

/// A request for a run of flat memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Request {
    /// Tag of the answer.
    pub(crate) number: u64,
    /// Version of the values that is needed.
    pub(crate) version: u64,
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Request {
    fn to_bytes(self) -> Vec<u8> {
        [self.number, self.version, self.start, self.len].into_iter().flat_map(u64::to_le_bytes).collect()
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: [[u8; 8]; 4] = words.try_into().ok().filter(|_| rest.is_empty())?;
        let [number, version, start, len] = words.map(u64::from_le_bytes);
        Some(Request { number, version, start, len })
    }
}

/// Values that are served, and their version.
#[derive(Default)]
struct State {
    /// `None` while they change.
    values: Option<Arc<Region>>,
    version: u64,
    /// First failure of an answer.
    failure: Option<Error>,
    closing: bool,
}

/// State that the thread shares with the rank's own threads.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// This rank's values, as other ranks see them.
pub(crate) struct Server {
    /// `None` without other ranks.
    messages: Option<Arc<Messages>>,
    rank: Rank,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the thread. A collective.
    pub(crate) fn start(group: &Arc<Group>) -> Result<Self, Error> {
        let (rank, shared) = (group.rank(), Arc::new(Shared::default()));
        if group.world_size() == 1 {
            return Ok(Server { messages: None, rank, shared, thread: None });
        }
        let messages = Arc::new(group.messages()?);
        let (for_thread, of_thread, group) = (messages.clone(), shared.clone(), group.clone());
        let thread = std::thread::Builder::new().name("kolo-values".into()).spawn(move || {
            if let Err(error) = of_thread.serve(&for_thread, &group) {
                of_thread.state.lock().failure.get_or_insert(error);
                of_thread.changed.notify_all();
            }
        });
        let failed = |cause: io::Error| Error::io("the thread that serves values cannot start", cause);
        Ok(Server { messages: Some(messages), rank, shared, thread: Some(thread.map_err(failed)?) })
    }

    /// Version of the values that were published last.
    pub(crate) fn version(&self) -> u64 {
        self.shared.state.lock().version
    }

    /// Serves values from now on, which are a new version if they are to differ from the last ones.
    pub(crate) fn publish(&self, values: Arc<Region>, is_new: bool) {
        let mut state = self.shared.state.lock();
        state.values = Some(values);
        state.version += u64::from(is_new);
        self.shared.changed.notify_all();
    }

    /// Stops serving: requests wait for the next version.
    pub(crate) fn withdraw(&self) {
        self.shared.state.lock().values = None;
    }

    /// Waits until an answer that is being sent may be over.
    pub(crate) fn wait_for_readers(&self) {
        let mut state = self.shared.state.lock();
        self.shared.changed.wait_for(&mut state, Duration::from_millis(1));
    }

    /// This rank's own values, which are published.
    pub(crate) fn values(&self) -> Option<Arc<Region>> {
        self.shared.state.lock().values.clone()
    }

    /// Returns the first failure of an answer, once.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.shared.state.lock().failure.take()
    }

    /// Sends a request. Returns its answers, which come later: `take` gets the bytes of each, and the number
    /// of the run's elements before them.
    pub(crate) fn ask(
        &self,
        owner: Rank,
        request: Request,
        take: &Arc<impl Fn(usize, &[u8]) + Send + Sync + 'static>,
    ) -> Result<Vec<Receiving>, Error> {
        let Some(messages) = &self.messages else {
            return Err(Error::Left { rank: owner, during: ASKING.into() });
        };
        let answer = |start| {
            let take = take.clone();
            messages.receive_by(Some(owner), request.number, move |bytes| take(start, bytes))
        };
        let answers = (0..request.len as usize).step_by(PIECE).map(answer).collect::<Result<_, _>>()?;
        messages.send(&request.to_bytes(), owner, REQUEST)?;
        Ok(answers)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.state.lock().closing = true;
        self.shared.changed.notify_all();
        if let Some(messages) = &self.messages {
            // An empty message wakes the thread; if the group has failed, it wakes by itself.
            let _ = messages.send(&[], self.rank, REQUEST);
        }
        if let Some(thread) = self.thread.take() {
            let until = Instant::now() + LAST_ANSWER;
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            // An answer may wait for a rank that has been stopped.
            self.messages.iter().for_each(|messages| messages.stop_sending());
            // A thread that has panicked answers no more, which other ranks report.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self, messages: &Messages, group: &Group) -> Result<(), Error> {
        let mut next = messages.receive(None, REQUEST)?;
        while !self.state.lock().closing {
            let Some((from, bytes)) = next.wait_for(GLANCE)? else { continue };
            next = messages.receive(None, REQUEST)?;
            let Some(request) = Request::of_bytes(&bytes) else { continue };
            match self.answer(request, from, messages, group) {
                // A rank that has left needs no answer.
                Err(Error::Left { .. } | Error::Unreachable { .. }) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends the values of a request. They do not change between two messages, except of requests that nobody
    /// needs any more: a step needs all ranks' passes.
    fn answer(&self, request: Request, to: Rank, messages: &Messages, group: &Group) -> Result<(), Error> {
        for start in (0..usize::try_from(request.len).unwrap_or(0)).step_by(PIECE) {
            let Some(values) = self.wait_for(request.version, group)? else { break };
            let Some(run) = run_of(&values, request) else { break };
            let bytes = bytes_of(&run[start..run.len().min(start + PIECE)]);
            drop(values);
            self.changed.notify_all();
            messages.send(&bytes, to, request.number)?;
        }
        Ok(())
    }

    /// Waits until a version is published; `None` if the rank ends first.
    fn wait_for(&self, version: u64, group: &Group) -> Result<Option<Arc<Region>>, Error> {
        let mut state = self.state.lock();
        loop {
            if state.closing {
                return Ok(None);
            }
            if let Some(values) = state.values.as_ref().filter(|_| state.version >= version) {
                return Ok(Some(values.clone()));
            }
            if let Some(error) = group.liveness().failure() {
                return Err(error);
            }
            self.changed.wait_for(&mut state, GLANCE);
        }
    }
}

/// Returns the bytes of values in little-endian order. Word by word, which the compiler turns into a copy.
fn bytes_of(values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_val(values)];
    let (words, _) = bytes.as_chunks_mut::<4>();
    words.iter_mut().zip(values).for_each(|(word, value)| *word = value.to_le_bytes());
    bytes
}

/// Returns the values of a request, or `None` if it is for elements that do not exist.
fn run_of(values: &[f32], Request { start, len, .. }: Request) -> Option<&[f32]> {
    let start = usize::try_from(start).ok()?;
    values.get(start..start.checked_add(usize::try_from(len).ok()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_requests_for_what_exists_are_answered() {
        let request = Request { number: 7, version: 1 << 40, start: 2, len: 3 };
        let bytes = request.to_bytes();
        assert_eq!(Request::of_bytes(&bytes), Some(request));
        assert!([&bytes[1..], &[], &[0; 33]].into_iter().all(|bytes| Request::of_bytes(bytes).is_none()));
        let values = [0.0, 1.0, 2.0, 3.0, 4.0];
        assert_eq!(bytes_of(&[-2.0, 0.5]), [0, 0, 0, 192, 0, 0, 0, 63]);
        assert_eq!(run_of(&values, request), Some(&values[2..]));
        for (start, len) in [(3, 3), (u64::MAX, 1), (1, u64::MAX), (6, 0)] {
            assert_eq!(run_of(&values, Request { start, len, ..request }), None);
        }
    }
}
