//! `kolo bench`: measures a training step, or a collective.

use clap::{Args, Subcommand};
use kolo_comm::env::is_worker;

use crate::bench::collective::{self, MeasureCollective};
use crate::bench::{exact, step};
use crate::options::{Communication, Elastic};
use crate::start_workers::start_workers;
use kolo::Failure;

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
    #[command(flatten)]
    Collective(MeasureCollective),
}

impl Bench {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match &self.what {
            What::Step(options) => {
                options.check()?;
                as_worker(options.nproc, &options.communication, || step::measure(options))
            }
            What::Exact(options) => {
                options.check()?;
                as_worker(options.nproc, &options.communication, || exact::measure(options))
            }
            What::Collective(MeasureCollective { operation, options }) => {
                options.check()?;
                as_worker(options.nproc, &options.communication, || collective::measure(*operation, options))
            }
        }
    }
}

/// Measures if this process is a worker; else starts `nproc` workers.
fn as_worker(
    nproc: usize,
    communication: &Communication,
    measure: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    match is_worker() {
        true => measure(),
        false => start_workers(nproc, None, communication.environment(None), &Elastic::default()),
    }
}
