//! Options shared by several commands.

mod communication;
mod elastic;

pub(crate) use communication::{Communication, algorithms, seconds};
pub(crate) use elastic::Elastic;
