//! `kolo bench all-reduce --backend nccl`: sums over the memory of GPUs. Before them every operation on every
//! type is compared with the native group's, so that this one command checks NCCL on a machine with GPUs.

use std::sync::Arc;
use std::time::Duration;

use kolo_comm::Group;
use kolo_nccl::{DeviceGroup, Measured};
use serde::Serialize;

use crate::fail::Failure;

/// As that of the native backend.
#[derive(Serialize)]
struct Report {
    operation: &'static str,
    dtype: &'static str,
    op: &'static str,
    world_size: usize,
    transport: String,
    /// Results of all operations that were compared with the native group's.
    compared: usize,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    /// NCCL picks it.
    algorithm: &'static str,
    #[serde(flatten)]
    measured: Measured,
}

/// Bytes are multiples of 4.
pub(crate) fn measure(sizes: &[usize], seconds: f64, json: bool) -> Result<(), Failure> {
    let devices = DeviceGroup::local(&Arc::new(Group::from_env()?))?;
    let compared = kolo_nccl::check(&devices)?;
    let limit = Duration::from_secs_f64(seconds);
    let row = |bytes: &usize| kolo_nccl::measure_all_reduce(&devices, *bytes, limit);
    let rows = sizes.iter().map(row).map(|row| row.map(|measured| Row { algorithm: "NCCL's own", measured }));
    let report = Report {
        operation: "all-reduce",
        dtype: "f32",
        op: "sum",
        world_size: devices.world_size(),
        rows: rows.collect::<Result<_, _>>()?,
        transport: devices.describe(),
        compared,
    };
    if devices.rank().0 != 0 {
        return Ok(());
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&report).map_err(Failure::work)?);
    } else {
        report.print();
    }
    Ok(())
}

impl Report {
    fn print(&self) {
        let Report { operation, dtype, op, world_size, transport, compared, rows } = self;
        println!("# {operation} of {dtype} ({op}) in place, {world_size} ranks, {transport}; verified");
        println!("# {compared} results of all operations and types are the native group's");
        println!(
            "{:>12} {:>11} {:>11} {:>11} {:>10} {:>10}",
            "bytes", "mean µs", "p50 µs", "p99 µs", "algbw", "busbw"
        );
        for Row { measured, .. } in rows {
            let Measured { bytes, mean_us, p50_us, p99_us, algbw_gbps, busbw_gbps, .. } = measured;
            println!(
                "{bytes:>12} {mean_us:>11.1} {p50_us:>11.1} {p99_us:>11.1} {algbw_gbps:>10.3} {busbw_gbps:>10.3}"
            );
        }
        println!(
            "# algbw and busbw in GB/s (10⁹ bytes a second); mean, p50 and p99 of the slowest rank's times"
        );
    }
}
