//! Probes: each looks at one thing of this rank, and gives it as a value. What follows from it is said by
//! the checks, which see the values of all ranks.

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

pub use kolo_ddp::Processor;

pub use clock::Clock;
pub use cpu::{Cpu, Quota};
pub use data::DataFacts;
pub use folder::{Disk, FolderFacts, FolderProbe};
pub use host::Host;
pub use huge_pages::HugePages;
pub use links::{LinkFacts, measure_links};
pub use memory::{Limit, Memory};
pub use open_files::{LauncherFiles, OpenFiles};
pub use program::Program;
