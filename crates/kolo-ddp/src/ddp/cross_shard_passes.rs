//! All shards of a step together, for models whose layers need sums over the global batch.

use std::sync::{Arc, Mutex};
use std::thread::{Builder, scope};

use super::Ddp;
use crate::binding::{Binding, GradientSink, Loss, Which, scaled};
use crate::cross_shard::{CrossShardPass, Exchange, Runner, TurnTaker};
use crate::shard_pass::lock;
use kolo_optim::SpanId;
use kolo_reduction::Error;

impl<B: Binding + Clone + Send> Ddp<B> {
    /// Runs the forward and backward passes of all of this rank's shards, together with those of all other
    /// ranks, so that a layer can request sums over the global batch ([`CrossShardPass::handle`]). It
    /// replaces a step's calls of [`Ddp::backward`] and [`Ddp::skip_shard`]. Every rank calls it, including
    /// ranks without shards.
    ///
    /// `inputs` has one entry for each of [`Ddp::shards`], in order, `None` for a shard without samples.
    /// `forward` returns a shard's loss; it must take the same way through the model for every shard.
    ///
    /// A rank with one shard reduces its gradients while the backward pass runs. A rank with several shards
    /// runs their passes in threads of which one computes at a time, each with a clone of the model, and
    /// reduces after the last: their activations and gradients are in memory at once.
    ///
    /// # Errors
    ///
    /// The number of inputs is not the number of shards, a loss is over no samples, shards have taken
    /// different ways, the binding refuses a loss, or a collective failed (naming the rank).
    pub fn cross_shard_passes<T: Send>(
        &mut self,
        inputs: Vec<Option<T>>,
        forward: impl Fn(&B, T, &CrossShardPass) -> B::Loss + Sync,
    ) -> Result<(), Error> {
        let (given, due) = (inputs.len(), self.shards.len());
        if given != due {
            return Err(Error::InputsMismatch { given, due });
        }
        self.expect_every_step()?;
        // Without a connection of its own, no sum may be exchanged while a bucket is in flight.
        let apart = !self.group.shares_the_wire();
        if apart {
            self.with_replica(|replica| replica.values().map(drop))?;
            self.expect_nothing_on_its_way()?;
        }
        let mut exchange = match self.exchange.take() {
            Some(exchange) => exchange,
            None => Exchange::new(&self.group, lock(&self.replica).shares())?,
        };
        let busy: Vec<bool> = inputs.iter().map(Option::is_some).collect();
        exchange.begin(busy.contains(&true))?;
        lock(&self.replica).never_wait_in_passes();
        let mut exchange = if !busy.contains(&true) {
            exchange.follow()?;
            self.shards().try_for_each(|_| self.skip_shard())?;
            exchange
        } else if due == 1 && !apart {
            let turns = TurnTaker::new(exchange, busy);
            inputs.into_iter().flatten().try_for_each(|input| self.only_pass(&turns, input, &forward))?;
            turns.end()?
        } else {
            let turns = TurnTaker::new(exchange, busy);
            let passes = self.concurrent_passes(&turns, inputs, &forward)?;
            let exchange = turns.end()?;
            self.reduce(passes)?;
            exchange
        };
        lock(&self.replica).exchange_waited(exchange.take_waited());
        self.exchange = Some(exchange);
        Ok(())
    }

    /// Runs the passes of the only shard, on this thread. `turns` keeps the error of a failed step.
    fn only_pass<T>(
        &mut self,
        turns: &Arc<TurnTaker>,
        input: T,
        forward: &impl Fn(&B, T, &CrossShardPass) -> B::Loss,
    ) -> Result<(), Error> {
        let runner = turns.enter(0);
        let loss = forward_pass(&self.model, self.shards.start, &runner, input, forward)?;
        if !turns.has_failed() {
            self.backward(loss)?;
            runner.leave();
        }
        Ok(())
    }

    /// Runs the passes of several shards, each in a thread of its own.
    fn concurrent_passes<T: Send>(
        &self,
        turns: &Arc<TurnTaker>,
        inputs: Vec<Option<T>>,
        forward: &(impl Fn(&B, T, &CrossShardPass) -> B::Loss + Sync),
    ) -> Result<Vec<Option<PassResult>>, Error> {
        let with_clone = |input: Option<T>| input.map(|input| (self.model.clone(), input));
        let inputs: Vec<Option<(B, T)>> = inputs.into_iter().map(with_clone).collect();
        let (first, scale) = (self.shards.start, lock(&self.replica).loss_scale());
        let ended = scope(|scope| {
            let start = |(place, input): (usize, Option<(B, T)>)| {
                let (model, input) = input?;
                let work = move || passes_of(&model, input, place, first + place, scale, turns, forward);
                let name = format!("kolo-shard-{}", first + place);
                let thread = Builder::new().name(name).spawn_scoped(scope, work);
                let failed = |cause| turns.fail(Error::Thread { cause });
                thread.map_err(failed).ok()
            };
            let threads: Vec<_> = inputs.into_iter().enumerate().map(start).collect();
            threads.into_iter().map(|thread| thread.map(|thread| thread.join())).collect::<Vec<_>>()
        });
        let result = |ended: Option<std::thread::Result<_>>| match ended {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(None),
        };
        ended.into_iter().map(result).collect()
    }

    /// Adds the results of the passes to the step, shard by shard, as if the passes had run one after
    /// another.
    fn reduce(&mut self, passes: Vec<Option<PassResult>>) -> Result<(), Error> {
        for result in passes {
            let Some(result) = result else {
                self.skip_shard()?;
                continue;
            };
            let mut replica = lock(&self.replica);
            let mut pass = replica.begin_shard(result.loss, result.count)?;
            for (span, gradient) in &result.gradients {
                pass.ready(*span, gradient);
            }
            self.statistics.report(&self.layout, &mut pass, &result.statistics, result.count);
            pass.finish()?;
        }
        self.write(Which::Statistics);
        Ok(())
    }
}

/// Result of a shard's passes.
struct PassResult {
    loss: f64,
    count: f64,
    gradients: Vec<(SpanId, Vec<f32>)>,
    statistics: Vec<f32>,
}

/// Runs the passes of one of several shards; `scale` multiplies the loss and so its gradients. Returns
/// `None` if the step has failed; `turns` keeps the error.
fn passes_of<B: Binding, T>(
    model: &B,
    input: T,
    place: usize,
    shard: usize,
    scale: f32,
    turns: &Arc<TurnTaker>,
    forward: &impl Fn(&B, T, &CrossShardPass) -> B::Loss,
) -> Result<Option<PassResult>, Error> {
    let runner = turns.enter(place);
    if turns.has_failed() {
        return Ok(None);
    }
    let loss = forward_pass(model, shard, &runner, input, forward)?;
    if turns.has_failed() {
        return Ok(None);
    }
    let (sum, count) = (loss.sum(), loss.count());
    let kept = Arc::new(Kept::default());
    model.backward(scaled(loss, scale), kept.clone())?;
    model.expect_frozen_unchanged()?;
    let statistics = model.inventory(Which::Statistics)?.values;
    runner.leave();
    let gradients = std::mem::take(&mut *lock(&kept.0));
    Ok(Some(PassResult { loss: sum, count, gradients, statistics }))
}

/// Returns the loss of one shard. A shard that has taken part in the sums of the forward pass must take part
/// in those of the backward pass, so it needs a sample.
fn forward_pass<B: Binding, T>(
    model: &B,
    shard: usize,
    runner: &Runner,
    input: T,
    forward: &impl Fn(&B, T, &CrossShardPass) -> B::Loss,
) -> Result<B::Loss, Error> {
    let loss = forward(model, input, &CrossShardPass::new(shard, runner.handle()));
    if loss.count() > 0.0 { Ok(loss) } else { Err(Error::EmptyShard { shard }) }
}

/// Gradients, in the order in which they were computed.
#[derive(Default)]
struct Kept(Mutex<Vec<(SpanId, Vec<f32>)>>);

impl GradientSink for Kept {
    fn ready(&self, span: SpanId, gradient: &[f32]) {
        lock(&self.0).push((span, gradient.to_vec()));
    }
}
