//! `kolo bench`: measures a training step, or a collective.

use clap::{Args, Subcommand};
use kolo::Failure;
use kolo_comm::env::is_worker;
use kolo_launch::Messages;

use crate::bench::collective::{self, MeasureCollective};
use crate::bench::{exact, profile, step};
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
    Profile(profile::Options),
    Exact(exact::Options),
    #[command(flatten)]
    Collective(MeasureCollective),
}

impl Bench {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match &self.what {
            What::Step(options) => {
                options.check()?;
                as_worker(options.nproc, 0, &options.communication, || step::measure(options))
            }
            What::Profile(options) => {
                options.check()?;
                as_worker(options.nproc(), 0, &options.communication, || profile::measure(options))
            }
            What::Exact(options) => {
                options.check()?;
                as_worker(options.nproc, 0, &options.communication, || exact::measure(options))
            }
            What::Collective(MeasureCollective { operation, options }) => {
                options.check()?;
                let (workers, servers) = (options.nproc, options.servers);
                let measure = || collective::measure(*operation, options);
                as_worker(workers, servers, &options.communication, measure)
            }
        }
    }
}

/// Calls `measure` in a worker; in any other process, starts `nproc` workers and `servers` servers.
fn as_worker(
    nproc: usize,
    servers: usize,
    communication: &Communication,
    measure: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    match is_worker() {
        true => measure(),
        false => {
            let elastic = Elastic { servers: Some(servers), ..Elastic::default() };
            let (env, bind) = (communication.environment(None), communication.bind());
            start_workers(nproc, None, env, &elastic, bind, Messages::Text, None)
        }
    }
}
