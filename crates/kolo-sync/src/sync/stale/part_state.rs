//! State of a server: the values of its part, its optimizer's state for them, and the progress of each
//! worker.
//!
//! With K = 0 the pushes of a step wait for each other, and their sum, added in the order of the workers, is
//! one step of the optimizer. With K > 0 each push is a step of its own as soon as it arrives: on the
//! worker's mean gradient, with the learning rate times the worker's share of the shards.

use std::ops::Range;
use std::sync::Arc;

use kolo_comm::{Group, Rank};

use super::clocks::Clocks;
use super::message::{Answer, Push, PushHeader};
use crate::replica::FirstValues;
use crate::replica::weights::{Scales, Weights};
use kolo_optim::{Layout, Optimizer, SpanGroups, Turns};
use kolo_reduction::state::{StateCopy, StatePart, Visit};
use kolo_reduction::{Error, Slice, slices};

/// A server's part of the model.
pub(super) struct PartState {
    /// As long as flat memory; elements outside the part are never read. If the optimizer needs whole
    /// tensors, no slice is only a part of one.
    weights: Weights,
    /// The part's elements of flat memory, and the slices of tensors in it.
    place: Range<usize>,
    slices: Vec<Slice>,
    /// K
    bound: u64,
    /// Each worker's share of the shards.
    shares: Vec<f64>,
    /// Steps that the optimizer has made.
    updates: u64,
    /// Number of steps done when the round began.
    began: u64,
    clocks: Clocks,
    /// Step that ends the round, once a worker has announced it.
    ends: Option<u64>,
    /// With K = 0, pushes that wait for those of other workers.
    waiting: Vec<Option<Push>>,
    losses: Losses,
    /// True if this server sends losses to the workers; only one does.
    tells_losses: bool,
}

/// Losses of the round's steps: those of each worker, and the sums of the steps that all workers have done.
#[derive(Default)]
struct Losses {
    of_workers: Vec<Vec<[f64; 2]>>,
    known: Vec<[f64; 2]>,
    /// Number of known losses that each worker has received.
    told: Vec<usize>,
}

impl Losses {
    fn new(workers: usize) -> Self {
        Losses { of_workers: vec![Vec::new(); workers], known: Vec::new(), told: vec![0; workers] }
    }

    /// Adds the loss and count of a worker's next step.
    fn add(&mut self, worker: usize, own: [f64; 2]) {
        self.of_workers[worker].push(own);
        let next = self.known.len();
        if self.of_workers.iter().all(|own| own.len() > next) {
            let all = self.of_workers.iter().map(|own| own[next]);
            self.known.push(all.fold([0.0; 2], |sum, own| [sum[0] + own[0], sum[1] + own[1]]));
        }
    }

    /// Takes the losses that a worker has not received yet.
    fn news(&mut self, worker: usize) -> Vec<[f64; 2]> {
        let told = std::mem::replace(&mut self.told[worker], self.known.len());
        self.known[told..].to_vec()
    }
}

/// Settings of a part.
pub(super) struct Plan {
    pub(super) layout: Arc<Layout>,
    pub(super) groups: SpanGroups,
    pub(super) place: Range<usize>,
    pub(super) bound: u64,
    /// Each worker's share of the shards.
    pub(super) shares: Vec<f64>,
    /// True if this server sends losses to the workers; only one does.
    pub(super) tells_losses: bool,
}

impl PartState {
    /// Creates a part without values; the optimizer already has its state for the whole layout.
    pub(super) fn new(plan: Plan, optimizer: Box<dyn Optimizer>) -> Self {
        let Plan { layout, groups, place, bound, shares, tells_losses } = plan;
        PartState {
            slices: slices(&layout, &place),
            weights: Weights::new(
                layout.clone(),
                FirstValues::Whole(Arc::new(vec![0.0; layout.len()])),
                optimizer,
                groups,
                Turns::default(),
                None,
            ),
            clocks: Clocks::new(shares.len(), bound),
            waiting: Vec::new(),
            losses: Losses::default(),
            updates: 0,
            began: 0,
            ends: None,
            place,
            bound,
            shares,
            tells_losses,
        }
    }

    /// Returns the number of elements of a push's content.
    pub(super) fn content(&self) -> usize {
        self.place.len() + self.slices.len()
    }

    /// Steps that the optimizer has made.
    pub(super) fn updates(&self) -> u64 {
        self.updates
    }

    /// Visits its values and its optimizer's state.
    pub(super) fn visit_state(&mut self, visit: &mut Visit<'_>) {
        let place = &self.place;
        self.weights.visit_state(&mut |StatePart { name, values, .. }| {
            visit(StatePart { name, place: place.clone(), values: &mut values[place.clone()] });
        });
    }

    /// Loads its values and its optimizer's state. The optimizer has made `updates` steps.
    pub(super) fn load(&mut self, state: &StateCopy, updates: u64) {
        state.fill(|visit| self.visit_state(visit));
        self.updates = updates;
        self.weights.look_anew();
    }

    /// Begins a round after that number of steps.
    pub(super) fn begin_round(&mut self, steps: u64) {
        let workers = self.shares.len();
        (self.began, self.ends) = (steps, None);
        self.clocks = Clocks::new(workers, self.bound);
        self.waiting = (0..workers).map(|_| None).collect();
        self.losses = Losses::new(workers);
    }

    /// Takes a push of a worker and applies it; with K = 0 when it is the last one of its step. `ranks` has
    /// the ranks of all workers. Errors: the push is not of the step that is due, it ends the round after
    /// another step than other workers, or its update has overflowed.
    pub(super) fn take(&mut self, worker: usize, ranks: &[Rank], push: Push) -> Result<(), Error> {
        let PushHeader { step, count, loss, ends, .. } = push.header;
        let (rank, due) = (ranks[worker], self.began + self.clocks.of(worker));
        if step != due {
            let problem = format!(
                "{rank} is at step {step}, where its step {due} is due: all ranks have to begin and end a round before the same \
                 step; load the same checkpoint, and call `Ddp::end_round` on all of them"
            );
            return Err(Error::Setting(problem));
        }
        let others_go_on = self.began + self.clocks.of_fastest() > step + 1;
        let fits = match self.ends {
            Some(last) => step <= last && ends == (step == last),
            None => !(ends && others_go_on),
        };
        if !fits {
            let does = if ends { "ends" } else { "does not end" };
            let problem = format!(
                "{rank} {does} its round with step {step}, unlike another worker; call `Ddp::end_round` on all ranks before the same \
                 step"
            );
            return Err(Error::Setting(problem));
        }
        if ends {
            self.ends = Some(step);
        }
        self.clocks.push(worker);
        if self.tells_losses {
            self.losses.add(worker, [loss, count]);
        }
        match self.bound {
            0 => self.take_with_others(worker, push),
            _ => self.apply_alone(worker, &push),
        }
    }

    /// Returns true if a worker's last push can be answered.
    pub(super) fn may_pull(&self, worker: usize, ends: bool) -> bool {
        self.clocks.may_pull(worker, ends)
    }

    /// Returns the worker that has pushed the fewest steps.
    pub(super) fn slowest(&self) -> usize {
        self.clocks.slowest()
    }

    /// Returns the answer to a worker's last push, in a buffer of `group`. Errors: memory allocation failed.
    pub(super) fn answer(&mut self, worker: usize, group: &Group) -> Result<Answer, Error> {
        let losses = if self.tells_losses { self.losses.news(worker) } else { Vec::new() };
        let values = group.copied(&self.weights.values[self.place.clone()])?;
        Ok(Answer { behind: self.clocks.behind(worker), losses, values })
    }

    /// Checks, after a round of all workers, that the server ends it after as many steps as they do. Errors:
    /// the numbers differ.
    pub(super) fn expect_end(&self, steps: u64) -> Result<(), Error> {
        let workers = self.began + self.clocks.of_slowest();
        if workers == steps {
            return Ok(());
        }
        let problem = format!(
            "this server ends its round after {steps} steps and the workers after {workers}; call `Ddp::end_round` on all ranks before \
             the same step"
        );
        Err(Error::Setting(problem))
    }

    /// Applies a push as a step of its own.
    fn apply_alone(&mut self, worker: usize, push: &Push) -> Result<(), Error> {
        let (share, PushHeader { step, count, rate, .. }) = (self.shares[worker], push.header);
        match count > 0.0 {
            true => self.apply(&push.content, step, rate * share, share / count, 1.0 / share),
            false => Ok(()),
        }
    }

    /// Applies the pushes of a step as one step, once all are here.
    fn take_with_others(&mut self, worker: usize, push: Push) -> Result<(), Error> {
        self.waiting[worker] = Some(push);
        if self.waiting.iter().any(Option::is_none) {
            return Ok(());
        }
        let mut pushes =
            self.waiting.iter_mut().filter_map(Option::take).filter(|push| push.header.count > 0.0);
        let Some(Push { header, content: mut sum }) = pushes.next() else { return Ok(()) };
        let mut count = header.count;
        for push in pushes {
            count += push.header.count;
            sum.iter_mut().zip(push.content.iter()).for_each(|(sum, own)| *sum += own);
        }
        self.apply(&sum, header.step, header.rate, 1.0 / count, 1.0)
    }

    /// Runs a step of the optimizer on the content of a push of step `step`. `scale` and `factor` together
    /// make the gradient a mean; `scale` alone makes the changes of statistics a mean, or this worker's part
    /// of it.
    fn apply(&mut self, content: &[f32], step: u64, rate: f64, scale: f64, factor: f64) -> Result<(), Error> {
        let (gradient, marks) = content.split_at(self.place.len());
        for (slice, mark) in self.slices.iter().zip(marks) {
            self.weights.unused[slice.span.0] = *mark == 0.0;
        }
        self.updates += 1;
        self.weights.optimizer.begin(self.updates, rate);
        self.weights.scales = Scales { sum: scale, parameters: factor };
        for slice in &self.slices {
            self.weights.slice(slice, &gradient[slice.range()]);
        }
        self.weights.name_overflow(step)
    }
}
