//! Asynchronous SGD through servers, with bounded staleness (stale synchronous parallel; Ho et al. 2013,
//! "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", section 3).
//!
//! Each server holds a part of the weights and its optimizer's state for them ([`part_state`]). When a
//! worker has finished the passes of a step, it pushes its own gradient of each part to that part's server,
//! and pulls the part's values ([`worker`], [`message`]). A server answers from one thread per worker
//! ([`server`]), as soon as the slowest worker has pushed all steps but the last K ([`clocks`]). The pulled
//! values always include the worker's own push.
//!
//! A *round* ends at the step that `Replica::end_round` chooses: then all pushes have arrived, all workers
//! hold the same values, and all ranks act together again, for an evaluation or a checkpoint ([`saved`]).
//! Within a round the only collectives are messages between a worker and a server, over a group for each such
//! pair ([`forming`]). Hence only the values depend on which worker is faster.

mod clocks;
mod forming;
mod message;
mod pairs;
mod part_state;
mod saved;
mod server;
mod stale_mode;
mod worker;

pub(super) use self::forming::STALE;
