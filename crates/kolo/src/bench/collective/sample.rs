//! Runs one collective at one size many times, and verifies the result.

use std::time::{Duration, Instant};

use kolo_comm::schedule::{Choice, OperationKind};
use kolo_comm::{Collective, Collectives, Element, Group, Op, Rank, bf16, f16};

use super::operation::{Shape, fitting, served, shape};
use super::options::Options;
use crate::bench::samples::Samples;
use kolo::Failure;

/// Fewest and most samples of one size.
const SAMPLES: (usize, usize) = (20, 2000);
const WARM_UP: usize = 5;

/// A type in which small whole numbers are exact.
pub(super) trait Exact: Element {
    fn of(number: usize) -> Self;
}

macro_rules! exact {
    ($($t:ty),*) => {$(
        impl Exact for $t {
            fn of(number: usize) -> Self {
                number as $t
            }
        }
    )*};
}
exact!(f32, f64, i32, i64, u8);

impl Exact for f16 {
    fn of(number: usize) -> Self {
        f16::from_f32(number as f32)
    }
}

impl Exact for bf16 {
    fn of(number: usize) -> Self {
        bf16::from_f32(number as f32)
    }
}

/// One operation at one size.
pub(super) struct Case<'a, C> {
    /// Native group of the engine's ranks.
    group: &'a Group,
    engine: &'a C,
    pub(super) operation: OperationKind,
    op: Op,
    root: Rank,
    /// Elements of the larger one of input and output.
    pub(super) len: usize,
    shape: Shape,
    /// Ranks that contribute and are verified: all but servers, which are the last ranks of each launcher.
    workers: Vec<usize>,
}

impl<'a, C: Collectives> Case<'a, C> {
    pub(super) fn new(
        group: &'a Group,
        engine: &'a C,
        operation: OperationKind,
        options: &Options,
        len: usize,
        servers: &[bool],
    ) -> Self {
        let (rank, world) = (group.rank(), group.world_size());
        let (op, root, len) = (options.op(), Rank(options.root), fitting(operation, len, world));
        let shape = match servers.contains(&true) {
            true => served(len, servers),
            false => shape(operation, len, op, root, rank, world),
        };
        let workers = (0..world).filter(|rank| !servers[*rank]).collect();
        Case { group, engine, operation, op, root, len, shape, workers }
    }

    /// Number of ranks that contribute.
    pub(super) fn world(&self) -> usize {
        self.workers.len()
    }

    /// Returns the cost model's choice.
    pub(super) fn explain<T: Element>(&self, native: &Group) -> Option<Choice> {
        native.explain(&self.shape.collective, self.shape.elements, T::DTYPE)
    }

    /// Returns the time of each sample in seconds, of the slowest rank.
    pub(super) fn measure<T: Exact>(&self, seconds: f64) -> Result<Samples, Failure> {
        let mut buffer = self.verified::<T>(self.engine.alloc(self.shape.elements)?)?;
        for _ in 0..WARM_UP {
            buffer = self.sample(buffer)?.0;
        }
        let mut samples = Samples::default();
        // All ranks must take the same number of samples: rank 0's clock decides after each batch.
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        loop {
            for _ in 0..SAMPLES.0 {
                let (back, time) = self.sample(buffer)?;
                buffer = back;
                samples.0.push(time);
            }
            let mut on = [u8::from(Instant::now() < until && samples.0.len() < SAMPLES.1)];
            self.group.broadcast(&mut on, Rank(0))?;
            if on[0] == 0 {
                break;
            }
        }
        self.verified(buffer)?;
        samples.slowest(self.group)
    }

    fn sample<T: Element>(&self, buffer: C::Buffer<T>) -> Result<(C::Buffer<T>, f64), Failure> {
        self.group.barrier()?;
        let began = Instant::now();
        let buffer = self.engine.run(&self.shape.collective, buffer)?;
        Ok((buffer, began.elapsed().as_secs_f64()))
    }

    /// Runs the collective on numbers whose results are exact in every type, and verifies every element.
    fn verified<T: Exact>(&self, mut buffer: C::Buffer<T>) -> Result<C::Buffer<T>, Failure> {
        let (rank, world) = (self.group.rank().0, self.group.world_size());
        let each = self.len / world;
        let number = |rank: usize, index: usize| (index + 3 * rank) % 3;
        // All-to-all and messages send from the half of the buffer behind the received elements.
        let behind = match self.shape.collective {
            Collective::AllToAll { .. } | Collective::Exchange { .. } => self.len,
            _ => 0,
        };
        let fill = |(index, x): (usize, &mut T)| *x = T::of(number(rank, index.wrapping_sub(behind)));
        let mut data = vec![T::default(); self.shape.elements];
        data.iter_mut().enumerate().skip(behind).for_each(fill);
        self.engine.write(&data, &mut buffer)?;
        let mut buffer = self.engine.run(&self.shape.collective, buffer)?;
        self.engine.read(&buffer, &mut data)?;

        let contributed = |index: usize| self.workers.iter().map(move |rank| number(*rank, index));
        let combined = |index: usize| self.combined(contributed(index));
        let (root, previous) = (self.root.0, (rank + world - 1) % world);
        let from_each = |index: usize| number(index / each.max(1), index % each.max(1));
        // Range of elements with a specified result, and their values.
        let (checked, expected): (std::ops::Range<usize>, Box<dyn Fn(usize) -> usize + '_>) = match self
            .operation
        {
            OperationKind::AllReduce if !self.workers.contains(&rank) => (0..0, Box::new(combined)),
            OperationKind::AllReduce => (0..self.len, Box::new(combined)),
            OperationKind::ReduceScatter => (rank * each..(rank + 1) * each, Box::new(combined)),
            OperationKind::Reduce => (0..if rank == root { self.len } else { 0 }, Box::new(combined)),
            OperationKind::Broadcast => (0..self.len, Box::new(|index| number(root, index))),
            OperationKind::AllGather => {
                let own = move |index: usize| number(index / each, index);
                (0..self.len, Box::new(own))
            }
            OperationKind::Gather if rank == root => {
                let index_there = move |index: usize| if index / each == root { index } else { index % each };
                (0..self.len, Box::new(move |index| number(index / each, index_there(index))))
            }
            OperationKind::Scatter if rank != root => {
                (0..each, Box::new(move |index| number(root, rank * each + index)))
            }
            OperationKind::Gather | OperationKind::Scatter => (0..0, Box::new(from_each)),
            OperationKind::AllToAll => {
                let sent = move |index: usize| number(index / each, rank * each + index % each);
                (0..self.len, Box::new(sent))
            }
            OperationKind::Exchange if world == 1 => (0..0, Box::new(from_each)),
            OperationKind::Exchange => (0..self.len, Box::new(move |index| number(previous, index))),
        };
        for index in checked {
            let (got, right) = (data[index], T::of(expected(index)));
            if got != right {
                let (name, len) = (self.operation.name(), data.len());
                return Err(Failure::work(format!(
                    "{name} on rank {rank}: element {index} of {len} is {got:?}, not {right:?}"
                )));
            }
        }
        data.fill(T::default());
        self.engine.write(&data, &mut buffer)?;
        Ok(buffer)
    }

    fn combined(&self, numbers: impl Iterator<Item = usize>) -> usize {
        match self.op {
            Op::Sum => numbers.sum(),
            // All ranks have the same number at an index, so an average is exact.
            Op::Average => numbers.last().unwrap_or(0),
            Op::Max => numbers.max().unwrap_or(0),
            Op::Min => numbers.min().unwrap_or(0),
            Op::Product => numbers.product(),
        }
    }
}
