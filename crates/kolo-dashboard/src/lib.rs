//! A run in the terminal while it goes on: loss, throughput, where the time of a step goes, ranks, buckets.
//!
//! Two processes share the terminal. The launcher holds it: a [`Screen`] switches to the alternate screen,
//! keeps back what the job prints meanwhile, and puts everything in order when it is dropped, however the
//! job ends. Rank 0, whichever process that is, paints: a [`Painter`] draws a [`RunState`] some times a
//! second, on a thread of its own, so that a terminal that takes no bytes holds no step up.
//!
//! | module | idea |
//! |---|---|
//! | `state` | what is known of the run: pure |
//! | `series` | a curve of any length in bounded memory |
//! | `view` | from the state to cells: pure, a file a part |
//! | `painter` | the thread that draws |
//! | `screen` | the terminal, held and given back |

mod painter;
mod screen;
mod series;
mod state;
mod units;
mod view;

pub use painter::Painter;
pub use screen::{NoTerminal, SCREEN, Screen};
pub use state::{Bucket, RunState};
