//! `kolo bench <operation>`: collectives in the manner of nccl-tests.
//!
//! In place, with a barrier before each sample; every element is verified before and after; a sample is the slowest
//! rank's time.

mod operation;
mod plot;
mod report;
mod sample;

use std::path::PathBuf;

use clap::Args;
use kolo_comm::schedule::ALGORITHMS;
use kolo_comm::{DType, Group, Op, bf16, f16};

pub(crate) use operation::Operation;
use report::{Report, Row};
use sample::Case;

use super::device;
use crate::commands::talk::{Talk, algorithms};
use crate::fail::Failure;

/// How a collective is measured.
#[derive(Args)]
pub(crate) struct Options {
    /// Workers on this machine
    #[arg(long, default_value_t = 2)]
    pub(crate) nproc: usize,
    /// Bytes, separated by commas; of the larger one where input and output differ
    #[arg(long, value_delimiter = ',', default_values_t = [4, 64, 1024, 16384, 65536, 262_144, 1_048_576, 4_194_304, 16_777_216, 46_800_000, 100_000_000])]
    sizes: Vec<usize>,
    /// Type of the elements
    #[arg(long, default_value = "f32", value_parser = DType::ALL.map(DType::name))]
    dtype: String,
    /// How contributions are combined
    #[arg(long, default_value = "sum", value_parser = ["sum", "average", "max", "min", "product"])]
    op: String,
    /// Root of a broadcast, reduce, gather or scatter
    #[arg(long, default_value_t = 0)]
    root: usize,
    /// Seconds a size
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Algorithm, or `all` for each in turn [default: picked by the cost model]
    #[arg(long, value_parser = algorithm_names())]
    algorithm: Option<String>,
    /// Show for each size what the cost model predicts for each algorithm, beside what was measured
    #[arg(long)]
    explain: bool,
    /// What does the work: Kolo's groups, or NCCL on GPUs (all-reduce of f32)
    #[arg(long, default_value = "native", value_parser = ["native", "nccl"])]
    backend: String,
    #[command(flatten)]
    pub(crate) talk: Talk,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw bus bandwidth against bytes into an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

fn algorithm_names() -> Vec<&'static str> {
    algorithms().into_iter().chain(["all"]).collect()
}

impl Options {
    pub(crate) fn check(&self, operation: Operation) -> Result<(), Failure> {
        if self.nproc == 0 {
            return Err(Failure::input("--nproc 0: it must be at least 1"));
        }
        if self.backend == "nccl" && (operation != Operation::AllReduce || self.dtype() != DType::F32) {
            return Err(Failure::input("--backend nccl: it measures all-reduce of f32 only"));
        }
        let size = self.dtype().size();
        if let Some(bytes) = self.sizes.iter().find(|bytes| !bytes.is_multiple_of(size) || **bytes == 0) {
            let remedy = format!("give a multiple of {size} bytes, greater than 0");
            return Err(Failure::input(format!("--sizes {bytes}: {remedy}")));
        }
        if !(self.seconds > 0.0 && self.seconds < 3600.0) {
            return Err(Failure::input(format!("--seconds {}: give a time greater than 0", self.seconds)));
        }
        if let Some(folder) = self.plot.as_ref().and_then(|file| file.parent())
            && !(folder.as_os_str().is_empty() || folder.is_dir())
        {
            return Err(Failure::input(format!("--plot: there is no folder {}", folder.display())));
        }
        Ok(())
    }

    fn dtype(&self) -> DType {
        DType::ALL.into_iter().find(|dtype| dtype.name() == self.dtype).unwrap_or(DType::F32)
    }

    fn op(&self) -> Op {
        Op::ALL.into_iter().find(|op| op.to_string() == self.op).unwrap_or(Op::Sum)
    }
}

pub(crate) fn measure(operation: Operation, options: &Options) -> Result<(), Failure> {
    if options.backend == "nccl" {
        return device::measure(&options.sizes, options.seconds, options.json);
    }
    let group = options.talk.group(options.algorithm.as_deref().filter(|name| *name != "all"))?;
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
    operation: Operation,
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
