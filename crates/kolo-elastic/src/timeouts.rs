//! How long the processes of an elastic job wait for each other.
//!
//! These times lie at the bottom of the crate because the two sides of a connection must agree on them. How
//! long a member may take for a step is no constant: see [`kolo_comm::Pace`].

use std::sync::OnceLock;
use std::time::Duration;

use kolo_rendezvous::secure::host_timeout;

/// A launcher sends a heartbeat every second; one whose host is there and busy may be late by so much.
const LATE: Duration = Duration::from_secs(7);
/// A launcher that has nothing to say sends a heartbeat to its leader so often.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// A launcher may take so long to answer a probe for its view.
pub(crate) const PROBE: Duration = Duration::from_secs(1);
/// A leader that gives up or ends stays so long, until its followers have heard it.
pub(crate) const FAREWELL: Duration = Duration::from_millis(200);

/// A launcher that has not been heard of for so long counts as dead: 15 s, or 7 s more than
/// `KOLO_HOST_TIMEOUT` says that a host may be unreachable. The connections of a killed launcher break at
/// once; this limit is for one that is stopped or whose host is gone, and is much longer than a busy host lets
/// a thread wait.
pub(crate) fn launcher_silence() -> Duration {
    static SILENCE: OnceLock<Duration> = OnceLock::new();
    // What is wrong with the variable is told by whoever reads the options.
    *SILENCE.get_or_init(|| host_timeout().map_or(Duration::from_secs(15), |host| host + LATE))
}

/// The next leader may take so long to welcome a follower: it may learn later than the follower that the last
/// leader is lost.
pub(crate) fn takeover() -> Duration {
    2 * launcher_silence()
}
