//! `kolo bench <operation>`: collectives in the manner of nccl-tests.
//!
//! In place, with a barrier before each sample; every element is verified before and after; a sample is the
//! slowest rank's time.

mod operation;
mod options;
mod plot;
mod report;
mod sample;
mod subcommand;

use kolo_comm::schedule::{ALGORITHMS, OperationKind};
use kolo_comm::{DType, Group, bf16, f16};

use options::Options;
use report::{Report, Row};
use sample::Case;
pub(crate) use subcommand::MeasureCollective;

use super::device;
use crate::fail::Failure;

pub(crate) fn measure(operation: OperationKind, options: &Options) -> Result<(), Failure> {
    if options.backend == "nccl" {
        return device::measure(&options.sizes, options.seconds, options.json);
    }
    let group = options.communication.group(options.algorithm.as_deref().filter(|name| *name != "all"))?;
    if options.root >= group.world_size() {
        let world = group.world_size();
        return Err(Failure::input(format!("--root {}: there are {world} ranks", options.root)));
    }
    let rows = match options.dtype() {
        DType::F32 => all_sizes::<f32>(&group, operation, options),
        DType::F64 => all_sizes::<f64>(&group, operation, options),
        DType::I32 => all_sizes::<i32>(&group, operation, options),
        DType::I64 => all_sizes::<i64>(&group, operation, options),
        DType::U8 => all_sizes::<u8>(&group, operation, options),
        DType::F16 => all_sizes::<f16>(&group, operation, options),
        DType::Bf16 => all_sizes::<bf16>(&group, operation, options),
    }?;
    let report = Report::new(&group, operation, options, rows)?;
    if group.rank().0 != 0 {
        return Ok(());
    }
    if options.json {
        report.print_json()?
    } else {
        report.print()
    }
    match &options.plot {
        Some(file) => plot::draw(&report, file),
        None => Ok(()),
    }
}

fn all_sizes<T: sample::Exact>(
    group: &Group,
    operation: OperationKind,
    options: &Options,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for &bytes in &options.sizes {
        let case = Case::new(group, operation, options, bytes / size_of::<T>());
        let asked = options.algorithm.as_deref();
        // Another backend than Kolo's own picks by itself.
        let choice = case.explain::<T>();
        let names: Vec<Option<&str>> = match (asked, &choice) {
            (Some("all"), Some(choice)) => {
                choice.predicted.iter().chain(&choice.others).map(|(name, _)| Some(*name)).collect()
            }
            (Some("all"), None) => vec![None],
            (one, _) => vec![one],
        };
        for name in names {
            if let (Some("all"), Some(name)) = (asked, name) {
                group.use_algorithm(ALGORITHMS.iter().find(|algorithm| algorithm.name == name))?;
            }
            let samples = case.measure::<T>(options.seconds)?;
            rows.push(Row::new(&case, size_of::<T>(), &samples, name, choice.as_ref()));
        }
    }
    Ok(rows)
}
