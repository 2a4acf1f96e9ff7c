//! `kolo bench`: measures a training step, or a collective.

use clap::{Args, Subcommand};
use kolo_comm::env::is_worker;

use crate::bench::collective::{self, Operation};
use crate::bench::{exact, step};
use crate::fail::Failure;
use crate::options::{Communication, Elastic};
use crate::start_workers::start_workers;

/// Measure a training step, or a collective.
#[derive(Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Step(step::Options),
    Exact(exact::Options),
    /// Every rank ends with the sum over all
    AllReduce(collective::Options),
    /// Rank r ends with part r of the sum over all
    ReduceScatter(collective::Options),
    /// Every rank ends with the parts of all
    AllGather(collective::Options),
    /// Every rank ends with the root's buffer
    Broadcast(collective::Options),
    /// The root ends with the sum over all
    Reduce(collective::Options),
    /// The root ends with the parts of all
    Gather(collective::Options),
    /// Every rank ends with its part of the root's buffer
    Scatter(collective::Options),
    /// Every rank ends with its part of everybody's buffer
    AllToAll(collective::Options),
    /// Every rank sends to the next one and receives from the one before
    SendReceive(collective::Options),
}

impl Bench {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let (operation, options) = match &self.what {
            What::Step(options) => {
                options.check()?;
                return as_worker(options.nproc, &options.communication, || step::measure(options));
            }
            What::Exact(options) => {
                options.check()?;
                return as_worker(options.nproc, &options.communication, || exact::measure(options));
            }
            What::AllReduce(options) => (Operation::AllReduce, options),
            What::ReduceScatter(options) => (Operation::ReduceScatter, options),
            What::AllGather(options) => (Operation::AllGather, options),
            What::Broadcast(options) => (Operation::Broadcast, options),
            What::Reduce(options) => (Operation::Reduce, options),
            What::Gather(options) => (Operation::Gather, options),
            What::Scatter(options) => (Operation::Scatter, options),
            What::AllToAll(options) => (Operation::AllToAll, options),
            What::SendReceive(options) => (Operation::SendReceive, options),
        };
        options.check()?;
        as_worker(options.nproc, &options.communication, || collective::measure(operation, options))
    }
}

/// Measures if this process is a worker; else starts `nproc` workers.
fn as_worker(
    nproc: usize,
    communication: &Communication,
    measure: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    match is_worker() {
        true => measure().map_err(Failure::of_worker),
        false => start_workers(nproc, None, communication.environment(None), &Elastic::default()),
    }
}
