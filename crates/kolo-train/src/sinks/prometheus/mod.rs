//! `--metrics-addr`: rank 0 serves the newest metrics to Prometheus while the run goes on.
//!
//! Whichever process becomes rank 0 serves. Where it cannot listen, as on another host than the address is
//! of, the training goes on without, and each epoch is another try.

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
use crate::error::Error;
use crate::progress::Progress;

/// Entry of the table.
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
    /// The user has been told that the address cannot be listened at.
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
    /// Serves, if it does not yet. The first failure is told, and ends a run that begins with workers that
    /// stay; metrics are worth no more.
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
                // The others would go on without this worker, and meet the same.
                if std::env::var_os(MEMBER).is_none() {
                    return Err(error);
                }
                tell(&format!("{error}; training goes on and tries again later"));
            }
        }
        Ok(())
    }
}
