//! A member's second connection to its coordinator: while the member works, a thread hears whether its
//! generation should end, and tells how much CPU time the process takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use kolo_rendezvous::Error;

use crate::coordinator_connection::CoordinatorConnection;
use crate::worker_protocol;
use crate::working::time_at_work;

/// The listener tells the CPU time so often.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two questions when the answer is known to be yes.
const KNOWN_ANSWER: Duration = Duration::from_millis(100);

/// The running thread. It ends after the listener is dropped, within [`REPORT_INTERVAL`].
pub(crate) struct RegroupListener {
    heard: Arc<Heard>,
}

#[derive(Default)]
struct Heard {
    /// The generation that the member is in; 0 before the first.
    generation: AtomicU64,
    /// The last generation that was asked to end.
    regroup: AtomicU64,
    closing: AtomicBool,
}

impl RegroupListener {
    /// Starts the thread, on a connection of its own.
    pub(crate) fn start(
        mut coordinator: CoordinatorConnection,
        member: &str,
    ) -> Result<RegroupListener, Error> {
        let heard = Arc::new(Heard::default());
        let (for_thread, key) = (heard.clone(), worker_protocol::cpu_time_key(member));
        std::thread::Builder::new()
            .name("kolo-member".into())
            // A failure means that the coordinator is gone; the member's own connection tells whoever needs
            // it.
            .spawn(
                move || {
                    while for_thread.report_and_listen(&mut coordinator, &key).is_ok_and(|goes_on| goes_on) {}
                },
            )
            .map_err(|cause| Error::system("cannot start a thread", cause))?;
        Ok(RegroupListener { heard })
    }

    /// The member is in this generation from now on.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.heard.generation.store(generation, Ordering::Release);
    }

    /// The generation that the member is in; 0 before the first.
    pub(crate) fn generation(&self) -> u64 {
        self.heard.generation.load(Ordering::Acquire)
    }

    /// Whether the member's generation should end with a step.
    pub(crate) fn is_regroup_requested(&self) -> bool {
        let generation = self.generation();
        generation > 0 && self.heard.regroup.load(Ordering::Acquire) == generation
    }
}

impl Drop for RegroupListener {
    fn drop(&mut self) {
        self.heard.closing.store(true, Ordering::Release);
    }
}

impl Heard {
    /// Tells the CPU time, and listens for a while. Gives whether to go on.
    fn report_and_listen(
        &self,
        coordinator: &mut CoordinatorConnection,
        cpu_time_key: &str,
    ) -> Result<bool, Error> {
        // The CPU time decides how long others wait for a member that says nothing itself; with it counts what
        // the member has said of its work.
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu_ms = u128::try_from(1000 * cpu.tv_sec + cpu.tv_nsec / 1_000_000).unwrap_or(0);
        let ms = cpu_ms + time_at_work().as_millis();
        coordinator.request(|store| store.set(cpu_time_key, ms.to_string()))?;
        let generation = self.generation.load(Ordering::Acquire);
        let key = worker_protocol::regroup_key(generation);
        if coordinator.request(|store| store.get(&key, REPORT_INTERVAL))?.is_some() {
            self.regroup.store(generation, Ordering::Release);
            std::thread::sleep(KNOWN_ANSWER);
        }
        Ok(!self.closing.load(Ordering::Acquire))
    }
}
