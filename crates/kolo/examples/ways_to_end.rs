//! Ways in which a worker ends, as its launcher shows them:
//! `kolo launch --nproc 2 -- target/debug/examples/ways_to_end model`.
//!
//! The first argument selects the fault on rank 1: `model` (it has another one), `panic`, `hang`, `input` (an
//! invalid option), `sum` (another number of elements than the other ranks), `warn` (none; all ranks log a
//! warning). With `plain` as the second argument `main` itself returns the error, and nothing reports it.

use std::error::Error;
use std::process::ExitCode;

use kolo::comm::{Group, Op, Rank};

fn main() -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    match std::env::args().nth(2).as_deref() {
        Some("plain") => run().map(|()| ExitCode::SUCCESS),
        _ => Ok(kolo::main(run)),
    }
}

#[derive(Debug)]
struct EpochFailed(kolo::comm::Error);

impl std::fmt::Display for EpochFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("epoch 0 failed")
    }
}

impl Error for EpochFailed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

fn run() -> Result<(), Box<dyn Error + Send + Sync>> {
    let way = std::env::args().nth(1).unwrap_or_default();
    let group = Group::from_env()?;
    group.barrier()?;
    log::warn!("the barrier is passed");
    let is_odd = group.rank() == Rank(1);
    match way.as_str() {
        "model" if is_odd => return Err("its model has 3 layers instead of 2".into()),
        "panic" if is_odd => panic!("no pixel is left"),
        "hang" if is_odd => loop {
            std::thread::park();
        },
        "input" => return Err(kolo::Failure::input("--lr -1: it must be greater than 0").into()),
        "warn" => return Ok(()),
        _ => {}
    }
    let elements = if way == "sum" && is_odd { 3 } else { 4 };
    group.all_reduce(&mut vec![1.0f32; elements], Op::Sum).map_err(EpochFailed)?;
    Ok(())
}
