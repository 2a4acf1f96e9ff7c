//! Kind of the processor on which a rank computes. Tensor libraries choose kernels by its vector
//! instructions, and some cut products of matrices by its caches: on another kind they may add in another
//! order. The kernels of burn-flex-nn do not.

use std::fmt;

use kolo_schedule::Rank;
use serde::{Deserialize, Serialize};

/// A kind of processor: its name, and the vector instructions that programs may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor(String);

impl Processor {
    /// The processor that this process runs on.
    pub fn here() -> Processor {
        let about = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = name(&about).unwrap_or_else(|| std::env::consts::ARCH.into());
        let instructions = instructions();
        Processor(if instructions.is_empty() { name } else { format!("{name} with {instructions}") })
    }

    /// A processor of that name.
    pub fn of(name: &str) -> Processor {
        Processor(name.into())
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses the name from Linux's description of the processors: text on x86-64, numbers on Arm.
fn name(about: &str) -> Option<String> {
    let value = |key: &str| {
        let line =
            about.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    value("model name").or_else(|| Some(format!("{} part {}", value("CPU implementer")?, value("CPU part")?)))
}

/// The vector instructions by which kernels are chosen. A virtual machine may hide some that its processor
/// has.
fn instructions() -> String {
    #[cfg(target_arch = "x86_64")]
    let found = [
        ("AVX2", is_x86_feature_detected!("avx2")),
        ("FMA", is_x86_feature_detected!("fma")),
        ("AVX-512F", is_x86_feature_detected!("avx512f")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let found: [(&str, bool); 0] = [];
    let there: Vec<&str> = found.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect();
    there.join(", ")
}

/// Returns the first rank that computes on another kind than rank 0, if there is one.
pub fn first_other(processors: &[Processor]) -> Option<Rank> {
    let first = processors.first()?;
    processors.iter().position(|processor| processor != first).map(Rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_has_a_name_on_all_architectures() {
        let x86 = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC 9654\nflags\t\t: fpu\n";
        assert_eq!(name(x86).as_deref(), Some("AMD EPYC 9654"));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n";
        assert_eq!(name(arm).as_deref(), Some("0x41 part 0xd40"));
        assert_eq!(name(""), None);
        assert_ne!(Processor::here().0, "");
    }
}
