//! `kolo bench <operation>`: measures collectives in the manner of nccl-tests.
//!
//! Operations run in place, with a barrier before each sample. Every element is verified before and after the
//! measurement. A sample is the slowest rank's time.

mod operation;
mod options;
mod plot;
mod report;
mod sample;
mod servers;
mod slices;
mod subcommand;
mod values;

use std::sync::Arc;

use kolo_comm::schedule::words::counted;
use kolo_comm::schedule::{ALGORITHMS, OperationKind};
use kolo_comm::{Collectives, DType, Element, Group, Op, bf16, f16};

use options::{Memory, Options};
use report::{Report, Row};
use sample::Case;
use servers::servers;
use slices::Slices;
pub(crate) use subcommand::MeasureCollective;

use kolo::Failure;

use super::device;
use crate::backends::NCCL;

pub(crate) fn measure(operation: OperationKind, options: &Options) -> Result<(), Failure> {
    let (backend, algorithm) = (options.backend.as_deref(), options.algorithm.as_deref());
    let group = options.communication.group_over(backend, algorithm.filter(|name| *name != "all"))?;
    if options.root >= group.world_size() {
        let world = counted(group.world_size(), "rank");
        return Err(Failure::input(format!("--root {}: the group has {world}", options.root)));
    }
    check_servers(&group, operation, options)?;
    if operation == OperationKind::ReduceToReaders && options.op() != Op::Sum {
        let problem = format!("{} adds, and knows no {}", operation.name(), options.op());
        return Err(Failure::input(format!("--op: {problem}; leave it out")));
    }
    if backend != Some(NCCL) {
        return match options.memory {
            Memory::Buffer => measure_by(&group, &group, Some(&group), operation, options),
            Memory::Slice => measure_by(&group, &Slices(&group), Some(&group), operation, options),
        };
    }
    let inexact = options.op() == Op::Average && !group.world_size().is_power_of_two();
    if inexact {
        let problem = "NCCL's averages are exact, and can be verified, on 2, 4, 8, … ranks only";
        return Err(Failure::input(format!("--op average: {problem}; there are {}", group.world_size())));
    }
    let group = Arc::new(group);
    measure_by(&group, &device::open(&group)?, None, operation, options)
}

/// Refuses servers for operations that do not use them.
fn check_servers(group: &Group, operation: OperationKind, options: &Options) -> Result<(), Failure> {
    if !servers(group)?.contains(&true) {
        return Ok(());
    }
    let problem = match () {
        _ if operation != OperationKind::AllReduce => format!("they take no part in {}", operation.name()),
        _ if options.op() != Op::Sum => format!("they add, and know no {}", options.op()),
        _ if options.backend.is_some() => "they belong to Kolo's own schedules".into(),
        _ => return Ok(()),
    };
    Err(Failure::input(format!("--servers: {problem}; leave it out")))
}

/// Measures with an engine of the same ranks as `group`; `native` is that engine if it has a cost model.
fn measure_by(
    group: &Group,
    engine: &impl Collectives,
    native: Option<&Group>,
    operation: OperationKind,
    options: &Options,
) -> Result<(), Failure> {
    let rows = match options.dtype() {
        DType::F32 => all_sizes::<f32>(group, engine, native, operation, options),
        DType::F64 => all_sizes::<f64>(group, engine, native, operation, options),
        DType::I32 => all_sizes::<i32>(group, engine, native, operation, options),
        DType::I64 => all_sizes::<i64>(group, engine, native, operation, options),
        DType::U8 => all_sizes::<u8>(group, engine, native, operation, options),
        DType::F16 => all_sizes::<f16>(group, engine, native, operation, options),
        DType::Bf16 => all_sizes::<bf16>(group, engine, native, operation, options),
    }?;
    let report = Report::new(group, engine.describe(), native.is_some(), operation, options, rows)?;
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

fn all_sizes<T: Element>(
    group: &Group,
    engine: &impl Collectives,
    native: Option<&Group>,
    operation: OperationKind,
    options: &Options,
) -> Result<Vec<Row>, Failure> {
    let (mut rows, servers) = (Vec::new(), servers(group)?);
    for &bytes in &options.sizes {
        let case = Case::new(group, engine, operation, options, bytes / size_of::<T>(), &servers);
        let asked = options.algorithm.as_deref();
        // Backends other than Kolo's own pick an algorithm themselves.
        let choice = native.and_then(|native| case.explain::<T>(native));
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
