//! `kolo plan`: predicts the resources of a training before machines are rented.

mod memory;
mod numbers;
mod step;
mod training;

use clap::{Args, Subcommand};

use kolo::Failure;

/// Predict what a training will take: time, memory, energy and money.
#[derive(Args)]
pub(crate) struct Plan {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Step(Box<step::Step>),
    Training(training::Training),
    Memory(memory::Memory),
}

impl Plan {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.what {
            What::Step(step) => step.run(),
            What::Training(training) => training.run(),
            What::Memory(memory) => memory.run(),
        }
    }
}
