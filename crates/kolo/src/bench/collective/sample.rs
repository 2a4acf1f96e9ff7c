//! Runs one collective at one size many times, and verifies the result.

use std::time::{Duration, Instant};

use kolo::Failure;
use kolo_comm::schedule::{Choice, OperationKind};
use kolo_comm::{Collectives, Element, Group, Rank};

use super::operation::{Shape, fitting, served, shape};
use super::options::Options;
use super::values::Values;
use crate::bench::samples::Samples;

/// Fewest and most samples of one size.
const SAMPLES: (usize, usize) = (20, 2000);
const WARM_UP: usize = 5;

pub(super) struct Case<'a, C> {
    /// Native group of the engine's ranks.
    group: &'a Group,
    engine: &'a C,
    pub(super) values: Values,
    shape: Shape,
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
        let values = Values { operation, op, root: root.0, world, workers, len };
        Case { group, engine, values, shape }
    }

    /// Number of ranks that contribute.
    pub(super) fn world(&self) -> usize {
        self.values.workers.len()
    }

    pub(super) fn explain<T: Element>(&self, native: &Group) -> Option<Choice> {
        native.explain(&self.shape.collective, self.shape.elements, T::DTYPE)
    }

    /// Returns the time of each sample in seconds, of the slowest rank.
    pub(super) fn measure<T: Element>(&self, seconds: f64) -> Result<Samples, Failure> {
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
    fn verified<T: Element>(&self, mut buffer: C::Buffer<T>) -> Result<C::Buffer<T>, Failure> {
        let rank = self.group.rank().0;
        let mut data = vec![T::default(); self.shape.elements];
        for (index, x) in data.iter_mut().skip(self.values.first_sent()).enumerate() {
            *x = T::of(self.values.sent(rank, index));
        }
        self.engine.write(&data, &mut buffer)?;
        let mut buffer = self.engine.run(&self.shape.collective, buffer)?;
        self.engine.read(&buffer, &mut data)?;

        for index in self.values.specified(rank) {
            let (got, right) = (data[index], T::of(self.values.expected(rank, index)));
            if got != right {
                let (name, len) = (self.values.operation.name(), data.len());
                return Err(Failure::work(format!(
                    "{name} on rank {rank}: element {index} of {len} is {got:?}, not {right:?}"
                )));
            }
        }
        data.fill(T::default());
        self.engine.write(&data, &mut buffer)?;
        Ok(buffer)
    }
}
