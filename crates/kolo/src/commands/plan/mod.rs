//! `kolo plan`: predicts the resources of a training before machines are rented.

mod memory;
mod step;
mod training;

use clap::{Args, Subcommand};

use kolo::Failure;

/// Say what a training will take before it is begun: time, memory, energy and money.
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

/// Parses a number above 0, as 7e9.
fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "give a number above 0, as 7e9".into())
}

/// Parses a share: above 0 and at most 1.
fn share(text: &str) -> Result<f64, String> {
    positive(text).ok().filter(|share| *share <= 1.0).ok_or_else(|| "give a share above 0 and up to 1".into())
}
