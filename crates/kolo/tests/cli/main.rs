//! The program as its users meet it: real processes, real folders.

mod bad_input;
mod chaos;
mod checkpoints;
mod elastic;
mod killed;
mod program;
mod same_bits;
mod stragglers;
mod verify;
