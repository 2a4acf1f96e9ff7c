//! `--metrics-addr`: rank 0 serves the newest metrics to Prometheus during the run.
//!
//! Any process that becomes rank 0 serves. If it cannot listen, for example because the address is of another
//! host, the training continues without metrics, and tries again after each epoch.

mod metrics;
mod server;
#[cfg(test)]
mod tests;

use kolo_ddp::checkpoint::tell;
use kolo_elastic::MEMBER;
use metrics::Metrics;
use server::Server;

use super::live::MetricsAddress;
use super::sink::{MetricSink, Record, SinkEntry};
use crate::progress::Progress;
use kolo_recipe::Error;

pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: "metrics endpoint",
    about: "with --metrics-addr, the newest metrics for Prometheus",
    open: |run| {
        let address = run.live.metrics_addr.clone()?;
        Some(Box::new(Prometheus { address, metrics: Metrics::new(run), server: None, has_failed: false }))
    },
};

struct Prometheus {
    address: MetricsAddress,
    metrics: Metrics,
    server: Option<Server>,
    /// True after the user was warned that the process cannot listen.
    has_failed: bool,
}

impl MetricSink for Prometheus {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        self.metrics.record(record);
        Ok(())
    }

    fn align(&mut self, progress: &Progress) -> Result<(), Error> {
        self.metrics.align(progress);
        self.serve()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.serve()
    }
}

impl Prometheus {
    /// Starts the server, unless it runs. The first failure ends a run of workers that stay, at its
    /// beginning; an elastic job gets a warning, because metrics do not justify more.
    fn serve(&mut self) -> Result<(), Error> {
        if self.server.is_some() {
            return Ok(());
        }
        let start = |listener| Server::start(listener, self.metrics.registry());
        match self.address.listen().and_then(|listener| start(listener).map_err(|e| self.address.refused(e)))
        {
            Ok(server) => self.server = Some(server),
            Err(_) if self.has_failed => {}
            Err(error) => {
                self.has_failed = true;
                // The others would continue without this worker, and fail in the same way.
                if std::env::var_os(MEMBER).is_none() {
                    return Err(error);
                }
                tell(&format!("{error}; training continues and tries again later"));
            }
        }
        Ok(())
    }
}
