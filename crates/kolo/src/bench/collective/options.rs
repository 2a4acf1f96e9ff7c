//! The options of `kolo bench <operation>`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use kolo::Failure;
use kolo_comm::{DType, Op};
use kolo_ddp::table::{Value, parse_number};
use serde::Serialize;

use crate::backends::{self, NCCL};
use crate::options::{Communication, algorithms};

/// Places of the elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Memory {
    /// In a buffer of the group, which peers read where it lies.
    #[default]
    Buffer,
    /// In memory of the program's own.
    Slice,
}

/// Options for the measurement of a collective.
#[derive(Args)]
pub(crate) struct Options {
    /// Workers on this machine
    #[arg(long, default_value_t = 2)]
    pub(crate) nproc: usize,
    /// Summation servers besides the workers: ranks that add for the others. They need an all-reduce of
    /// sums by Kolo's own schedules
    #[arg(long, default_value_t = 0)]
    pub(crate) servers: usize,
    /// Sizes in bytes, separated by commas: of the larger buffer if input and output differ
    #[arg(long, value_delimiter = ',', default_values_t = [4, 64, 1024, 16384, 65536, 262_144, 1_048_576, 4_194_304, 16_777_216, 46_800_000, 100_000_000])]
    pub(super) sizes: Vec<usize>,
    /// Type of the elements
    #[arg(long, default_value = "f32", value_parser = DType::ALL.map(DType::name))]
    pub(super) dtype: String,
    /// How Kolo combines contributions
    #[arg(long, default_value = "sum", value_parser = Op::ALL.map(Op::name))]
    pub(super) op: String,
    /// Root of a broadcast, reduce, gather or scatter
    #[arg(long, default_value_t = 0)]
    pub(super) root: usize,
    /// Seconds per size
    #[arg(long, default_value_t = 1.0, value_parser = parse_number)]
    pub(super) seconds: f64,
    /// Algorithm, or `all` for each in turn [default: the choice of the cost model]
    #[arg(long, value_parser = algorithm_names())]
    pub(super) algorithm: Option<String>,
    /// Show for each size the cost model's prediction for each algorithm, beside the measurement
    #[arg(long)]
    pub(super) explain: bool,
    /// Library that communicates: Kolo's own schedules, MPI, or NCCL on GPUs [default: KOLO_BACKEND, else
    /// native]
    #[arg(long, value_parser = backends::names())]
    pub(super) backend: Option<String>,
    /// Where the elements are
    #[arg(long, value_enum, default_value_t)]
    pub(super) memory: Memory,
    #[command(flatten)]
    pub(crate) communication: Communication,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Draw bus bandwidth by size into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
}

fn algorithm_names() -> Vec<&'static str> {
    algorithms().into_iter().chain(["all"]).collect()
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.nproc == 0 {
            return Err(Failure::input("--nproc 0: it must be at least 1"));
        }
        if self.backend.as_deref() == Some(NCCL) && (self.algorithm.is_some() || self.explain) {
            return Err(Failure::input(
                "--backend nccl: NCCL picks algorithms; leave out --algorithm and --explain",
            ));
        }
        if self.backend.as_deref() == Some(NCCL) && self.memory == Memory::Slice {
            return Err(Failure::input("--backend nccl: its memory is the GPUs'; leave out --memory"));
        }
        let size = self.dtype().size();
        if let Some(bytes) = self.sizes.iter().find(|bytes| !bytes.is_multiple_of(size) || **bytes == 0) {
            let remedy = format!("give a multiple of {size} bytes, greater than 0");
            return Err(Failure::input(format!("--sizes {bytes}: {remedy}")));
        }
        if !(self.seconds > 0.0 && self.seconds < 3600.0) {
            let seconds = Value::Number(self.seconds);
            return Err(Failure::input(format!(
                "--seconds {seconds}: give a time greater than 0 and below 3600"
            )));
        }
        if let Some(folder) = self.plot.as_ref().and_then(|file| file.parent())
            && !(folder.as_os_str().is_empty() || folder.is_dir())
        {
            return Err(Failure::input(format!("--plot: there is no folder {}", folder.display())));
        }
        Ok(())
    }

    pub(super) fn dtype(&self) -> DType {
        DType::ALL.into_iter().find(|dtype| dtype.name() == self.dtype).unwrap_or(DType::F32)
    }

    pub(super) fn op(&self) -> Op {
        Op::ALL.into_iter().find(|op| op.to_string() == self.op).unwrap_or(Op::Sum)
    }
}
