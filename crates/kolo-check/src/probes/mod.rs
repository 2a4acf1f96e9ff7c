//! Probes: each measures one property of this rank and returns it as a value. The checks, which get the
//! values of all ranks, draw the conclusions.

mod cgroup;
mod clock;
mod cpu;
mod data;
mod folder;
mod host;
mod huge_pages;
mod links;
mod memory;
mod open_files;
mod program;

pub use kolo_comm::Processor;

pub use clock::Clock;
pub use cpu::{Cpu, Quota};
pub use data::{DataFacts, SamplesRead};
pub use folder::{Disk, FolderFacts, FolderProbe};
pub use host::Host;
pub use huge_pages::HugePages;
pub use links::{LinkFacts, measure_links};
pub use memory::{Limit, Memory};
pub use open_files::{LauncherFiles, OpenFiles};
pub use program::Program;
