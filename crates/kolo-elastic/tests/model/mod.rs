//! Two models that Stateright explores (stateright.rs). They run code of this crate:
//!
//! | | code under test | surroundings |
//! |---|---|---|
//! | `rules` | histories, lineages, arbiters' decisions | any event at any time, whatever launchers believe |
//! | `job` | whole launchers and workers: all of `protocol` | hosts, connections, an arbiter and time |
//!
//! The first has few kinds of events, so it tries all orders of them. The second has everything that can
//! fail in between. It checks in every state that the job goes on, or ends with a reason, once faults end.

mod exploring;
mod job;
mod rules;
