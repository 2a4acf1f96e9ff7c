//! What a coordinator and whoever has started the members say to one another.

use serde::{Deserialize, Serialize};

/// How a member's process has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Departure {
    /// Well: its work is done, or it has left in good order.
    Well,
    /// Otherwise; the rest of a sentence that begins with who it was, such as `was killed by SIGKILL`.
    Failed(String),
}

/// What a coordinator asks of whoever has started the members, or lets them know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// A generation has begun.
    Formed {
        /// Its number, from 1.
        generation: u64,
        /// Its members, in the order of their ranks.
        members: Vec<String>,
        /// Why the last one has ended.
        reason: String,
    },
    /// A member has not come back from the last generation: it hangs, and is to be killed.
    Evict {
        /// Its name.
        member: String,
    },
    /// Too few members have waited too long for others; they have been told.
    TooFew {
        /// How many there were.
        present: usize,
    },
    /// This coordinator does not belong to the job, or not any more; its members cannot go on.
    Lost {
        /// Why, as a sentence.
        why: String,
    },
}
