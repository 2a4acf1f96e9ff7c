//! Islands: parts of a job that synchronize every step among themselves, and rarely with each other (local
//! SGD, DiLoCo).
//!
//! A job with islands consists of cores: one for each island, over the ranks that hold its shards, and one
//! for the outer step, over all ranks. The outer core is the job's: it counts the steps, and its values are
//! those with which a round begins. Its shards are the islands. The gradient of each is the island's change
//! in the round ([`round`]), so sum, compression and momentum are those of any other step. A rank with
//! several islands trains them one after another in each step; [`Islands::here`](islands_mode::Islands) is
//! the island whose pass is under way or comes next.
//!
//! Between two outer steps, ranks communicate only within islands that several ranks hold. The losses of all
//! islands are known after the outer step.
//!
//! In an elastic job, members join and leave after an outer step. A death takes all ranks back to the end of
//! an earlier round, of which there are copies (`replica/backup`); the islands are formed anew from these.

mod counted;
mod division;
mod forming;
mod islands_mode;
mod loss;
mod round;
mod saved;
mod step_numbers;
mod table;

pub(super) use self::table::{DILOCO, LOCAL, POST_LOCAL};
