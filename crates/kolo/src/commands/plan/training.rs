//! `kolo plan training`: predicts a whole training from figures alone.

use clap::Args;
use kolo::Failure;
use kolo_plan::memory::{MIXED_ADAM, Sharding};
use kolo_plan::training::{
    Bill, DataSource, Duration, Efficiency, Limit, Limits, Optimum, Prices, SCALING_LAWS, durations,
    training_flops,
};
use kolo_program::output::{print, print_json};
use serde::Serialize;

use super::numbers::{positive, share};

const DAY: f64 = 86_400.0;

/// Predict how long a transformer trains on any number of workers, what it costs, and what limits it:
/// memory, data or arithmetic.
///
/// Time is 6 · parameters · tokens by what the workers sustain (Kaplan et al. 2020). How the speed of many
/// workers falls is not known from figures alone: --efficiency says it.
#[derive(Args)]
pub(crate) struct Training {
    /// Parameters of the model
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    parameters: f64,
    /// Tokens of the training, counted once per epoch
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    tokens: f64,
    /// Peak floating-point operations per second of a worker
    #[arg(long, value_name = "FLOP/S", value_parser = positive, default_value = "1e15")]
    peak: f64,
    /// Share of the peak that one worker alone sustains (MFU)
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "0.4")]
    mfu: f64,
    /// Numbers of workers
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [8, 64, 256, 1024])]
    workers: Vec<u64>,
    /// Share of one worker's speed that many workers keep. Give a share (0.9); a share of some workers
    /// whose communication time does not depend on their number (0.6@256); or 1/(1 + c·√K) (sqrt:0.04)
    #[arg(long, value_name = "EFFICIENCY", default_value = "1")]
    efficiency: Efficiency,
    /// Memory of a worker in bytes
    #[arg(long, value_name = "BYTES", value_parser = positive)]
    memory: Option<f64>,
    /// Bytes that a worker reads per token
    #[arg(long, value_name = "BYTES", value_parser = positive, default_value = "4")]
    token_bytes: f64,
    /// Bytes per second that each worker can read
    #[arg(long, value_name = "BYTES/S", value_parser = positive)]
    read_rate: Option<f64>,
    /// Bytes per second that all workers together can read
    #[arg(long, value_name = "BYTES/S", value_parser = positive, requires = "read_rate")]
    read_rate_together: Option<f64>,
    /// Power of a worker in watts
    #[arg(long, value_parser = positive)]
    watts: Option<f64>,
    /// Power of the building per watt of its workers (PUE)
    #[arg(long, value_parser = positive, default_value = "1.2")]
    pue: f64,
    /// Price of a kilowatt-hour
    #[arg(long, value_name = "PRICE", value_parser = positive, requires = "watts")]
    kwh_price: Option<f64>,
    /// Price of a worker's hour
    #[arg(long, value_name = "PRICE", value_parser = positive)]
    hour_price: Option<f64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Output of `kolo plan training`.
#[derive(Serialize)]
struct Report {
    flops: f64,
    flops_per_second: f64,
    /// Seconds on one worker.
    alone: f64,
    rows: Vec<Row>,
    optima: Vec<LawOptimum>,
}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    duration: Duration,
    bill: Bill,
    binds: Option<Limit>,
}

#[derive(Serialize)]
struct LawOptimum {
    law: &'static str,
    source: &'static str,
    #[serde(flatten)]
    optimum: Optimum,
}

impl Training {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.workers.contains(&0) {
            return Err(Failure::input("--workers 0: a job has at least one"));
        }
        let report = self.report();
        if self.json { print_json(&report) } else { print(&self.tables(&report)) }
    }

    fn report(&self) -> Report {
        let (flops, rate) = (training_flops(self.parameters, self.tokens), self.peak * self.mfu);
        let rows = durations(flops, rate, &self.workers, |_| self.efficiency);
        let optimum = |law: &'static kolo_plan::training::ScalingLaw| LawOptimum {
            law: law.name,
            source: law.source,
            optimum: law.optimum(flops),
        };
        Report {
            flops,
            flops_per_second: rate,
            alone: flops / rate,
            rows: rows.into_iter().map(|duration| self.row(duration)).collect(),
            optima: SCALING_LAWS.iter().map(optimum).collect(),
        }
    }

    fn row(&self, duration: Duration) -> Row {
        let prices = Prices {
            watts: self.watts.unwrap_or(0.0),
            building: self.pue,
            kilowatt_hour: self.kwh_price.unwrap_or(0.0),
            worker_hour: self.hour_price.unwrap_or(0.0),
        };
        let workers = duration.workers as f64;
        let limits = Limits {
            memory_needed: MIXED_ADAM.per_worker(self.parameters, workers, Sharding::None).total(),
            memory: self.memory.unwrap_or(f64::INFINITY),
            seconds: duration.seconds,
            workers,
            data: DataSource {
                bytes: self.tokens * self.token_bytes,
                per_worker: self.read_rate.unwrap_or(f64::INFINITY),
                together: self.read_rate_together.unwrap_or(f64::INFINITY),
            },
        };
        let is_asked = self.memory.is_some() || self.read_rate.is_some();
        Row {
            duration,
            bill: Bill::of(duration.workers, duration.seconds, &prices),
            binds: is_asked.then(|| limits.binding()),
        }
    }

    fn tables(&self, report: &Report) -> String {
        let days = report.alone / DAY;
        let mut text = format!(
            "{:.3e} parameters on {:.3e} tokens: {:.2e} FLOP\n\
             one worker at {:.2e} FLOP/s ({:.0} % of {:.2e}): \
             {days:.1} days ({:.1} months)\n\n",
            self.parameters,
            self.tokens,
            report.flops,
            report.flops_per_second,
            self.mfu * 100.0,
            self.peak,
            days / 30.0
        );
        text += &format!(
            "{:>8}{:>13}{:>12}{:>10}{:>10}",
            "workers", "ideal days", "efficiency", "days", "speedup"
        );
        text += if self.watts.is_some() { "         MWh" } else { "" };
        text += if self.prices_asked() { "         price" } else { "" };
        text += if report.rows.iter().any(|row| row.binds.is_some()) { "  what binds" } else { "" };
        text.push('\n');
        report.rows.iter().for_each(|row| text += &self.line(row));
        text += "\nThe least loss for as much arithmetic:\n";
        for LawOptimum { law, source, optimum } in &report.optima {
            text += &format!(
                "  {law:10} {:.3e} parameters on {:.3e} tokens, loss {:.3} ({source})\n",
                optimum.parameters, optimum.tokens, optimum.loss
            );
        }
        text
    }

    fn prices_asked(&self) -> bool {
        self.kwh_price.is_some() || self.hour_price.is_some()
    }

    fn line(&self, Row { duration, bill, binds }: &Row) -> String {
        let mut line = format!(
            "{:>8}{:>13.2}{:>10.1} %{:>10.2}{:>9.1}x",
            duration.workers,
            duration.ideal / DAY,
            duration.efficiency * 100.0,
            duration.seconds / DAY,
            duration.speedup()
        );
        if self.watts.is_some() {
            line += &format!("{:>12.1}", bill.energy / 1000.0);
        }
        if self.prices_asked() {
            line += &format!("{:>14.0}", bill.energy_price + bill.workers_price);
        }
        match binds {
            None => {}
            Some(Limit::Compute) => line += "  arithmetic: more workers help",
            Some(Limit::Data { seconds }) => {
                line += &format!("  data: reading takes {:.2} days", seconds / DAY);
            }
            Some(Limit::Memory { missing }) => {
                line += &format!(
                    "  memory: {:.0} GB a worker are missing; shard the state, or take a smaller model",
                    missing / 1e9
                );
            }
        }
        line + "\n"
    }
}
