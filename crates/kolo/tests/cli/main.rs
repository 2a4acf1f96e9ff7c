//! The program as its users meet it: real processes, real folders.

mod bad_input;
mod bench;
mod chaos;
mod checkpoints;
mod dashboard;
mod elastic;
mod ending;
mod evaluate;
mod export;
mod fencing;
mod groups;
mod killed;
mod launchers;
mod live;
mod noise_scale;
mod own_program;
mod plan;
mod program;
mod rare_sync;
mod report;
mod same_bits;
mod servers;
mod stale;
mod stragglers;
mod trace;
mod verify;
