//! `kolo bench`: measures a training step, or a collective.

use clap::{Args, Subcommand};
use kolo_comm::env::is_worker;

use super::elastic::Elastic;
use super::run_again;
use crate::bench::collective::{self, Operation};
use crate::bench::step;
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
                return match is_worker() {
                    true => step::measure(options).map_err(Failure::of_worker),
                    false => {
                        run_again(options.nproc, None, options.talk.environment(None), &Elastic::default())
                    }
                };
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
        options.check(operation)?;
        match is_worker() {
            true => collective::measure(operation, options).map_err(Failure::of_worker),
            false => run_again(options.nproc, None, options.talk.environment(None), &Elastic::default()),
        }
    }
}
