//! Shows a running job in the terminal: loss, throughput, the time within a step, ranks, buckets.
//!
//! Two processes share the terminal. The launcher holds it: a [`Screen`] switches to the alternate screen,
//! keeps back the job's output, and restores everything when it is dropped, however the job ends. Rank 0, on
//! any process, paints: a [`Painter`] draws a [`RunState`] several times a second on its own thread, so that
//! a blocked terminal delays no step.
//!
//! | module | content |
//! |---|---|
//! | `state` | the state of the run: pure |
//! | `series` | a curve of any length in bounded memory |
//! | `view` | drawing of the state into cells: pure, one file per part |
//! | `painter` | the thread that draws |
//! | `screen` | holds and restores the terminal |

mod painter;
mod screen;
mod series;
mod state;
mod units;
mod view;

pub use painter::Painter;
pub use screen::{NoTerminal, SCREEN, Screen};
pub use state::{Bucket, RunState};
