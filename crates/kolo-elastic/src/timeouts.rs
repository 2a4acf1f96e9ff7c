//! Timeouts between the processes of an elastic job.
//!
//! They lie at the bottom of the crate because both sides of a connection must agree on them. The time that
//! a member may take for a step is no constant: see [`kolo_comm::Pace`].

use std::sync::OnceLock;
use std::time::Duration;

use kolo_rendezvous::secure::host_timeout;

/// Allowed delay of the heartbeats of a launcher whose host is reachable but busy.
const LATE: Duration = Duration::from_secs(7);
/// Interval at which an otherwise silent launcher sends heartbeats to its leader.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// Time within which a launcher must answer a probe for its view.
pub(crate) const PROBE: Duration = Duration::from_secs(1);
/// Time that a leader stays after it gives up or ends, so that its followers receive its last messages.
pub(crate) const FAREWELL: Duration = Duration::from_millis(200);

/// Time of silence after which a launcher counts as dead: 15 s, or `KOLO_HOST_TIMEOUT` plus 7 s. The
/// connections of a killed launcher break at once. This limit catches launchers that are stopped or whose
/// host is gone, and is much longer than a busy host delays a thread.
pub(crate) fn launcher_silence() -> Duration {
    static SILENCE: OnceLock<Duration> = OnceLock::new();
    // The code that reads the options reports an invalid variable.
    *SILENCE.get_or_init(|| host_timeout().map_or(Duration::from_secs(15), |host| host + LATE))
}

/// Time within which the next leader must welcome a follower: it may notice the loss of the last one later.
pub(crate) fn takeover() -> Duration {
    2 * launcher_silence()
}
