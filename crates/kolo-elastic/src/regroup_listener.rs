//! A member's second connection to its coordinator. While the member works, a thread asks whether its
//! generation should end, and reports how much CPU time the process uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use kolo_rendezvous::Error;

use crate::coordinator_connection::CoordinatorConnection;
use crate::worker_protocol;
use crate::working::time_at_work;

const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two requests once the coordinator has asked for the end of the generation.
const KNOWN_ANSWER: Duration = Duration::from_millis(100);

/// The running thread. It ends within [`REPORT_INTERVAL`] after the listener is dropped.
pub(crate) struct RegroupListener {
    state: Arc<ListenerState>,
}

#[derive(Default)]
struct ListenerState {
    /// The generation that the member is in; 0 before the first.
    generation: AtomicU64,
    /// The last generation that the coordinator asked to end.
    regroup: AtomicU64,
    closing: AtomicBool,
}

impl RegroupListener {
    /// Starts the thread, on a connection of its own.
    pub(crate) fn start(
        mut coordinator: CoordinatorConnection,
        member: &str,
    ) -> Result<RegroupListener, Error> {
        let state = Arc::new(ListenerState::default());
        let (for_thread, key) = (state.clone(), worker_protocol::cpu_time_key(member));
        std::thread::Builder::new()
            .name("kolo-member".into())
            // A failure means that the coordinator is gone; the member's own connection reports it.
            .spawn(
                move || {
                    while for_thread.report_and_listen(&mut coordinator, &key).is_ok_and(|goes_on| goes_on) {}
                },
            )
            .map_err(|cause| Error::system("cannot start a thread", cause))?;
        Ok(RegroupListener { state })
    }

    pub(crate) fn set_generation(&self, generation: u64) {
        self.state.generation.store(generation, Ordering::Release);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.state.generation.load(Ordering::Acquire)
    }

    /// Returns true if the member's generation should end after a step.
    pub(crate) fn is_regroup_requested(&self) -> bool {
        let generation = self.generation();
        generation > 0 && self.state.regroup.load(Ordering::Acquire) == generation
    }
}

impl Drop for RegroupListener {
    fn drop(&mut self) {
        self.state.closing.store(true, Ordering::Release);
    }
}

impl ListenerState {
    /// Reports the CPU time, and waits for a regroup request for a while. Returns true to go on.
    fn report_and_listen(
        &self,
        coordinator: &mut CoordinatorConnection,
        cpu_time_key: &str,
    ) -> Result<bool, Error> {
        // The CPU time decides how long others wait for a silent member. Time that the member has declared
        // as work (`working()`) counts as CPU time.
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
