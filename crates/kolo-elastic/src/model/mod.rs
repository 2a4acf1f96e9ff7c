//! Two models that Stateright explores (stateright.rs), with code of the crate inside:
//!
//! | | what runs | around it |
//! |---|---|---|
//! | `rules` | histories, lineages, arbiters' decisions | anything at any time, whoever believes what |
//! | `job` | launchers and workers, whole: all of `protocol` | hosts, connections, an arbiter and time |
//!
//! The first has few words, and so all orders of its events are tried. The second has what goes wrong in
//! between, and is asked in every state whether the job goes on, or ends with a reason, once faults end.

mod job;
mod rules;
