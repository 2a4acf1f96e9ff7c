//! All shards of a step together, for models whose layers need sums over the global batch.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, scope};

use burn::module::Module;

use kolo_ddp::cross_shard::{Exchange, TurnTaker};
use kolo_ddp::{Error as DdpError, SpanId};

use super::{Ddp, Loss, lock};
use crate::Error;
use crate::hook::{self, Sink};
use crate::shard_pass::ShardPass;
use crate::tensors::{self, Which};

impl<M: Module> Ddp<M> {
    /// Runs the forward and backward passes of all of this rank's shards, in step with those of all other
    /// ranks, so that [`ShardPass::batch_norm`] can normalise over the global batch. It stands in place of a
    /// step's calls of [`Ddp::backward`] and [`Ddp::skip_shard`]. Every rank calls it, also one without
    /// shards.
    ///
    /// `inputs` has one entry for each of [`Ddp::shards`], in order, `None` for a shard without samples.
    /// `forward` gives a shard's loss; it must take the same way through the model for every shard.
    ///
    /// A rank with one shard reduces its gradients while the backward pass runs. One with several runs their
    /// passes in threads of which one computes at a time, each with a copy of the model that shares its
    /// values, and reduces when all are over: their activations and gradients are in memory at once.
    ///
    /// # Errors
    ///
    /// There is not one input for each shard, a loss is over no samples, shards have taken different ways,
    /// the loss does not come from a model on `flex` with autodiff, or a collective failed (naming the rank).
    pub fn in_step<T: Send>(
        &mut self,
        inputs: Vec<Option<T>>,
        forward: impl Fn(&M, T, &ShardPass) -> Loss + Sync,
    ) -> Result<(), Error> {
        let (given, due) = (inputs.len(), self.shards.len());
        if given != due {
            let problem = format!("{given} inputs for the {due} shards of this rank; give one for each");
            return Err(DdpError::Setting(problem).into());
        }
        // MPI may let one collective at a time pass: no bucket is on its way there while sums are exchanged.
        let apart = self.group.transport() == "mpi";
        if apart {
            self.with_replica(|replica| replica.values().map(drop))?;
        }
        let mut exchange = match self.exchange.take() {
            Some(exchange) => exchange,
            None => Exchange::new(&self.group, lock(&self.replica).shares())?,
        };
        let busy: Vec<bool> = inputs.iter().map(Option::is_some).collect();
        exchange.begin(busy.contains(&true))?;
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
            let passes = self.passes(&turns, inputs, &forward)?;
            let exchange = turns.end()?;
            self.reduce(passes)?;
            exchange
        };
        lock(&self.replica).exchange_waited(exchange.take_waited());
        self.exchange = Some(exchange);
        Ok(())
    }

    /// The passes of the only shard, on this thread. A failed step is told by the turns.
    fn only_pass<T>(
        &mut self,
        turns: &Arc<TurnTaker>,
        input: T,
        forward: &impl Fn(&M, T, &ShardPass) -> Loss,
    ) -> Result<(), Error> {
        let runner = turns.enter(0);
        let pass = ShardPass::new(self.shards.start, runner.handle().clone());
        let loss = some_samples(forward(self.model(), input, &pass), &pass)?;
        if !turns.has_failed() {
            self.backward(loss)?;
            runner.leave();
        }
        Ok(())
    }

    /// The passes of several shards, each in a thread of its own.
    fn passes<T: Send>(
        &self,
        turns: &Arc<TurnTaker>,
        inputs: Vec<Option<T>>,
        forward: &(impl Fn(&M, T, &ShardPass) -> Loss + Sync),
    ) -> Result<Vec<Option<Passed>>, Error> {
        let copied = |input: Option<T>| input.map(|input| (tensors::copy(self.model()), input));
        let inputs: Vec<Option<(M, T)>> = inputs.into_iter().map(copied).collect();
        let ended = scope(|scope| {
            let start = |(place, input): (usize, Option<(M, T)>)| {
                let (model, input) = input?;
                let shard = self.shards.start + place;
                let work = move || passes_of(&model, input, place, shard, turns, forward);
                let thread = Builder::new().name(format!("kolo-shard-{shard}")).spawn_scoped(scope, work);
                let failed = |cause| turns.fail(DdpError::Setting(format!("cannot start a thread: {cause}")));
                thread.map_err(failed).ok()
            };
            let threads: Vec<_> = inputs.into_iter().enumerate().map(start).collect();
            threads.into_iter().map(|thread| thread.map(|thread| thread.join())).collect::<Vec<_>>()
        });
        let passed = |ended: Option<std::thread::Result<_>>| match ended {
            Some(Ok(passed)) => passed,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(None),
        };
        ended.into_iter().map(passed).collect()
    }

    /// Hands over what the passes have given, shard by shard, as if they had been one after another.
    fn reduce(&mut self, passes: Vec<Option<Passed>>) -> Result<(), Error> {
        for passed in passes {
            let Some(passed) = passed else {
                self.skip_shard()?;
                continue;
            };
            let mut replica = lock(&self.replica);
            let mut pass = replica.begin_shard(passed.loss, passed.count)?;
            for (span, gradient) in &passed.gradients {
                pass.ready(*span, gradient);
            }
            self.report(&mut pass, &passed.statistics, passed.count);
            pass.finish()?;
        }
        self.write(Which::Statistics);
        Ok(())
    }
}

/// What a shard's passes have given.
struct Passed {
    loss: f64,
    count: f64,
    gradients: Vec<(SpanId, Vec<f32>)>,
    statistics: Vec<f32>,
}

/// The passes of one of several shards. Nothing where the step has failed, as the turns tells.
fn passes_of<M: Module, T>(
    model: &M,
    input: T,
    place: usize,
    shard: usize,
    turns: &Arc<TurnTaker>,
    forward: impl Fn(&M, T, &ShardPass) -> Loss,
) -> Result<Option<Passed>, Error> {
    let runner = turns.enter(place);
    if turns.has_failed() {
        return Ok(None);
    }
    let pass = ShardPass::new(shard, runner.handle().clone());
    let loss = some_samples(forward(model, input, &pass), &pass)?;
    if turns.has_failed() {
        return Ok(None);
    }
    let sum: f32 = loss.sum.clone().into_scalar();
    let kept = Arc::new(Kept::default());
    hook::backward(loss.sum, tensors::nodes(model), kept.clone())?;
    let statistics = tensors::inventory(model, Which::Statistics)?.values;
    runner.leave();
    let gradients = std::mem::take(&mut *kept.0.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Some(Passed { loss: f64::from(sum), count: loss.count, gradients, statistics }))
}

/// A shard that has taken part in the sums of the forward pass cannot stay away from those of the backward
/// pass.
fn some_samples(loss: Loss, pass: &ShardPass) -> Result<Loss, Error> {
    if loss.count > 0.0 {
        return Ok(loss);
    }
    let problem = format!("the loss of shard {} is over no samples; give `None` for its input", pass.shard());
    Err(DdpError::Setting(problem).into())
}

/// Gradients, in the order in which they were computed.
#[derive(Default)]
struct Kept(Mutex<Vec<(SpanId, Vec<f32>)>>);

impl Sink for Kept {
    fn ready(&self, span: SpanId, gradient: &[f32]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((span, gradient.to_vec()));
    }
}

#[cfg(test)]
#[path = "in_step_tests.rs"]
mod tests;
