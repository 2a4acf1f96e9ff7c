//! How long the processes of an elastic job wait for each other.
//!
//! These times lie at the bottom of the crate because the two sides of a connection must agree on them. How
//! long a member may take for a step is no constant: see [`kolo_comm::Pace`].

use std::time::Duration;

/// A launcher that has not been heard of for so long counts as dead. The connections of a killed launcher
/// break at once; this limit is for one that is stopped or whose host is gone, and is much longer than a busy
/// host lets a thread wait.
pub(crate) const LAUNCHER_SILENCE: Duration = Duration::from_secs(15);
/// A launcher that has nothing to say sends a heartbeat to its leader so often.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// A launcher may take so long to answer a probe for its view.
pub(crate) const PROBE: Duration = Duration::from_secs(1);
/// The next leader may take so long to welcome a follower: it may learn later than the follower that the last
/// leader is lost.
pub(crate) const TAKEOVER: Duration = LAUNCHER_SILENCE.saturating_mul(2);
/// A leader that gives up or ends stays so long, until its followers have heard it.
pub(crate) const FAREWELL: Duration = Duration::from_millis(200);
