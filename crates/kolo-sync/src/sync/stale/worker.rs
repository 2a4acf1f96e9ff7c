//! A worker: pushes its gradient to the servers as soon as its passes are over, and pulls their values.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::message::{Exchange, Pair, Push, PushHeader};
use crate::replica::core::Core;
use crate::replica::report::StepReport;
use crate::replica::stepping::check_rate;
use kolo_reduction::{Error, Slice};
use kolo_step::{BucketTiming, LastStep, ObserverMessage, Totals};

/// This rank as a worker.
pub(super) struct Worker {
    servers: Vec<ServerPart>,
    /// Gradient of this rank, in the order of flat memory.
    gradient: Vec<f32>,
}

/// A server, as a worker sees it.
pub(super) struct ServerPart {
    pub(super) pair: Pair,
    /// Its range of flat memory, and the slices of tensors in it.
    pub(super) place: Range<usize>,
    pub(super) slices: Vec<Slice>,
}

/// Results of a step's pulls, besides values.
pub(super) struct Pulled {
    /// Number of steps that the stalest part is behind.
    pub(super) behind: u64,
    /// Loss and count over all workers of the steps that have become known.
    pub(super) losses: Vec<[f64; 2]>,
}

impl Worker {
    /// Creates a worker whose gradient has `len` elements.
    pub(super) fn new(servers: Vec<ServerPart>, len: usize) -> Self {
        Worker { servers, gradient: vec![0.0; len] }
    }

    /// Pushes the gradient of the passes, and takes the values that the servers answer with.
    pub(super) fn step(
        &mut self,
        outer: &mut Core,
        rate: f64,
        ends: bool,
        report: &mut StepReport,
    ) -> Result<Pulled, Error> {
        let step = outer.progress.steps;
        check_rate(step, rate)?;
        let number = outer.step_number();
        let started = outer.step.start_rest(number, &ObserverMessage::default());
        let totals = started.and_then(|()| outer.step.agree(number));
        let totals = totals.map_err(|error| tell_others(outer, error))?;
        for bucket in outer.step.order() {
            let (bucket, gradient) = outer.step.collect(bucket)?;
            bucket.to_flat(&outer.weights.layout, gradient, &mut self.gradient);
        }
        let Totals { loss, count, .. } = totals;
        let header = PushHeader { step, count, loss, rate, ends };
        let began = Instant::now();
        let exchanges = self.start(header, &totals.unused)?;
        let done = LastStep::of_losses(step, loss, count);
        outer.note_unused(step, totals.unused, count > 0.0);
        outer.step.begin_applying(done);
        outer.step.skip_updates();
        outer.step.prepare_next(false)?;
        (report.loss, report.count) = (done.loss, count);
        let mut pulled = Pulled { behind: 0, losses: Vec::new() };
        let mut waited = Duration::ZERO;
        for (server, exchange) in self.servers.iter().zip(exchanges) {
            let (values, before) = (&mut outer.weights.values[server.place.clone()], waited);
            let (behind, losses) = exchange.finish(&server.pair, values, &mut waited)?;
            pulled.behind = pulled.behind.max(behind);
            pulled.losses.extend(losses);
            let bytes = size_of_val(values);
            let seconds = began.elapsed().as_secs_f64();
            let exposed = (waited - before).as_secs_f64();
            report.traffic.buckets.push(BucketTiming {
                bytes,
                wire_bytes: bytes,
                seconds,
                ready: 0.0,
                needed: 0.0,
                exposed,
            });
            report.traffic.summed_bytes += bytes as u64;
        }
        report.times.communicating = began.elapsed();
        report.times.exposed = waited + outer.step.take_exposed();
        Ok(pulled)
    }

    /// Starts the pushes to all servers, and the pulls that answer them.
    fn start(&self, header: PushHeader, unused: &[bool]) -> Result<Vec<Exchange>, Error> {
        let start = |server: &ServerPart| {
            let ServerPart { pair, place, slices } = server;
            let mut content = pair.group().alloc::<f32>(place.len() + slices.len())?;
            let (gradient, marks) = content.split_at_mut(place.len());
            gradient.copy_from_slice(&self.gradient[place.clone()]);
            let used = slices.iter().map(|slice| if unused[slice.span.0] { 0.0 } else { 1.0 });
            marks.iter_mut().zip(used).for_each(|(mark, used)| *mark = used);
            pair.start(Push { header, content }, place.len())
        };
        Ok(self.servers.iter().map(start).collect::<Result<_, kolo_comm::Error>>()?)
    }
}

/// Ends the training of all ranks if an error ends that of this worker: they would wait for its pushes.
fn tell_others(outer: &Core, error: Error) -> Error {
    if error.is_divergence() || matches!(error, Error::NoGradient { .. }) {
        outer.ranks.group.abandon(&error.to_string());
    }
    error
}
