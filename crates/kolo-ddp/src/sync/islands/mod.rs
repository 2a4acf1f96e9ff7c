//! Islands: the parts of a job that synchronise every step among themselves, and rarely with each other
//! (local SGD, DiLoCo).
//!
//! A job with islands is made of cores: each island has one, over those ranks that hold its shards, and so
//! has the outer step, over all ranks. The outer core is the job's: it counts the steps, and its values are
//! those with which a round begins. Its shards are the islands: the
//! gradient of each is what that has come to in the round ([`round`]), so sum, compression and momentum are
//! those of any other step. A rank with several islands trains them one after another in each step; the one
//! whose pass is under way, or comes next, is [`Islands::here`](islands_mode::Islands).
//!
//! Between two outer steps ranks talk only within islands that several of them hold. Losses of all islands
//! are known after the outer step.
//!
//! In an elastic job members come and go after an outer step. A death takes all back to the end of an earlier
//! round, of which there are copies ([`copied`]): islands are formed anew from these.

mod copied;
mod counted;
mod division;
mod forming;
mod islands_mode;
mod loss;
mod round;
mod saved;
mod state;
mod step_numbers;
mod table;

pub(super) use self::table::{DILOCO, LOCAL, POST_LOCAL};
