//! `kolo bench`: measures a training step, or a collective.

use clap::{Args, Subcommand};
use kolo_comm::env::is_worker;

use super::run_again;
use crate::bench::{all_reduce, step};
use crate::fail::Failure;

/// Measure a training step, or a collective.
#[derive(Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Step(step::Options),
    AllReduce(all_reduce::Options),
}

impl Bench {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let (nproc, check) = match &self.what {
            What::Step(options) => (options.nproc, options.check()),
            What::AllReduce(options) => (options.nproc, options.check()),
        };
        check?;
        if !is_worker() {
            return run_again(nproc, None, Vec::new());
        }
        let measured = match &self.what {
            What::Step(options) => step::measure(options),
            What::AllReduce(options) => all_reduce::measure(options),
        };
        measured.map_err(Failure::of_worker)
    }
}
