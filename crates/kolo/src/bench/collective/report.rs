//! Tables and JSON.

use kolo::Failure;
use kolo_comm::schedule::words::counted;
use kolo_comm::schedule::{Choice, OperationKind};
use kolo_comm::{Collectives, Distance, Group, TRANSPORTS};
use kolo_program::output::{print_json, say};
use serde::Serialize;

use super::options::{Memory, Options};
use super::sample::Case;
use crate::bench::samples::{Samples, memory_bus};

#[derive(Serialize)]
pub(super) struct Row {
    bytes: usize,
    algorithm: String,
    p50_us: f64,
    p99_us: f64,
    /// Bytes divided by time.
    algbw_gbps: f64,
    /// algbw × the operation's factor: the load of each rank's link, in GB/s.
    busbw_gbps: f64,
    /// Time that the cost model predicts for this algorithm.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_us: Option<f64>,
    samples: usize,
    #[serde(skip)]
    why: String,
}

impl Row {
    pub(super) fn new(
        case: &Case<'_, impl Collectives>,
        element_bytes: usize,
        samples: &Samples,
        asked: Option<&str>,
        choice: Option<&Choice>,
    ) -> Row {
        let bytes = case.values.len * element_bytes;
        let p50 = samples.percentile(50.0);
        let algbw_gbps = bytes as f64 / p50.max(1e-12) / 1e9;
        let picked = choice.map_or("the backend's own", |choice| choice.algorithm.name);
        let algorithm = asked.unwrap_or(picked);
        let predicted = choice.and_then(|choice| choice.seconds(algorithm));
        Row {
            bytes,
            algorithm: algorithm.into(),
            p50_us: p50 * 1e6,
            p99_us: samples.percentile(99.0) * 1e6,
            algbw_gbps,
            busbw_gbps: algbw_gbps * case.values.operation.properties().bus.factor(case.world()),
            predicted_us: predicted.map(|seconds| seconds * 1e6),
            samples: samples.0.len(),
            why: choice.map(Choice::reason).unwrap_or_default(),
        }
    }

    /// Relative error of the prediction.
    fn error(&self) -> Option<f64> {
        self.predicted_us.map(|predicted| predicted / self.p50_us - 1.0)
    }
}

/// All results of a measurement.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) operation: &'static str,
    pub(super) dtype: String,
    op: String,
    pub(super) world_size: usize,
    /// Number of ranks that are summation servers.
    servers: usize,
    pub(super) transport: String,
    memory: Memory,
    /// Bytes read and written per second if all ranks copy at once, in GB/s; only for shared memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_gbps: Option<f64>,
    /// Share of `memory_gbps` that the largest size reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_share: Option<f64>,
    pub(super) rows: Vec<Row>,
    #[serde(skip)]
    explain: bool,
}

impl Report {
    /// Makes the report; a collective, because all ranks load the memory bus together. `engine` names the
    /// engine, and `on_host` is true if it works in memory of the host.
    pub(super) fn new(
        group: &Group,
        engine: String,
        on_host: bool,
        operation: OperationKind,
        options: &Options,
        rows: Vec<Row>,
    ) -> Result<Report, Failure> {
        let world_size = group.world_size();
        let servers = super::servers::servers(group)?.into_iter().filter(|server| *server).count();
        let in_memory = TRANSPORTS.iter().any(|kind| kind.name == engine && kind.reach < Distance::Network);
        let shared = operation == OperationKind::AllReduce && on_host && in_memory;
        let memory_gbps = if shared { Some(memory_bus(group)?) } else { None };
        // Lower bound: every contribution is read once, and each rank writes the sum once.
        let traffic = (2 * (world_size - servers)) as f64;
        let largest = rows.iter().max_by_key(|row| row.bytes);
        let memory_share = memory_gbps.and_then(|bus| largest.map(|row| row.algbw_gbps * traffic / bus));
        Ok(Report {
            operation: operation.name(),
            dtype: options.dtype.clone(),
            op: options.op.clone(),
            world_size,
            servers,
            transport: engine,
            memory: options.memory,
            memory_gbps,
            memory_share,
            rows,
            explain: options.explain || options.algorithm.as_deref() == Some("all"),
        })
    }

    /// Returns each measured algorithm once.
    pub(super) fn algorithms(&self) -> impl Iterator<Item = &str> {
        let first = |(n, row): (usize, &Row)| self.rows[..n].iter().all(|r| r.algorithm != row.algorithm);
        self.rows.iter().enumerate().filter(move |row| first(*row)).map(|(_, row)| row.algorithm.as_str())
    }

    /// Returns algorithm, bytes and bus bandwidth of each row.
    pub(super) fn points(&self) -> impl Iterator<Item = (&str, usize, f64)> {
        self.rows.iter().map(|row| (row.algorithm.as_str(), row.bytes, row.busbw_gbps))
    }

    pub(super) fn print_json(&self) -> Result<(), Failure> {
        print_json(self)
    }

    pub(super) fn print(&self) {
        let Report { operation, dtype, op, world_size, servers, transport, .. } = self;
        let of = if *servers > 0 {
            format!(", {} among them,", counted(servers, "server"))
        } else {
            String::new()
        };
        let memory = if self.memory == Memory::Slice { "on slices" } else { "in place" };
        let ranks = counted(world_size, "rank");
        say!("# {operation} of {dtype} ({op}) {memory}, {ranks}{of} over {transport}; verified");
        let predicted =
            if self.explain { format!(" {:>12} {:>7}", "predicted µs", "off by") } else { String::new() };
        say!(
            "{:>12} {:>18} {:>11} {:>11} {:>10} {:>10}{predicted}",
            "bytes",
            "algorithm",
            "p50 µs",
            "p99 µs",
            "algbw",
            "busbw"
        );
        for row in &self.rows {
            let Row { bytes, algorithm, p50_us, p99_us, algbw_gbps, busbw_gbps, .. } = row;
            let predicted = match (self.explain, row.predicted_us, row.error()) {
                (true, Some(predicted), Some(error)) => {
                    format!(" {predicted:>12.1} {:>+6.0}%", 100.0 * error)
                }
                _ => String::new(),
            };
            say!(
                "{bytes:>12} {algorithm:>18} {p50_us:>11.1} {p99_us:>11.1} {algbw_gbps:>10.3} \
                 {busbw_gbps:>10.3}{predicted}"
            );
        }
        say!("# algbw and busbw in GB/s (10⁹ bytes a second); p50 and p99 of the slowest rank's times");
        if let (Some(bus), Some(share)) = (self.memory_gbps, self.memory_share) {
            say!(
                "# memory bus: {bus:.1} GB/s when all ranks copy; the largest size moves {:.0} % of that",
                100.0 * share
            );
        }
        if self.explain {
            self.print_choices();
        }
    }

    fn print_choices(&self) {
        let mut errors: Vec<f64> = self.rows.iter().filter_map(|row| row.error().map(f64::abs)).collect();
        errors.sort_by(f64::total_cmp);
        if let Some(median) = errors.get(errors.len() / 2) {
            say!("# predictions are off by {:.0} % (median)", 100.0 * median);
        }
        let mut last = 0;
        for row in self.rows.iter().filter(|row| !row.why.is_empty()) {
            if row.bytes != last {
                say!("# {} bytes: {}", row.bytes, row.why);
                last = row.bytes;
            }
        }
    }
}
