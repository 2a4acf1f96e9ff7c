//! One operation of a group, with all of its arguments.

use std::sync::Arc;

use kolo_comm::backend::WaitMode;
use kolo_comm::schedule::Chunks;
use kolo_comm::tree::Contributions;
use kolo_comm::{Collective, Element, Group, Rank, with_type};

use crate::elements::{ElementType, Reduction};
use crate::failure::{Failure, guarded};
use crate::reduce::{Part, Reduce};
use crate::region::Region;

/// An operation of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    AllReduce,
    Reduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    Gather,
    Scatter,
    AllToAll,
    Barrier,
    /// The sum of all ranks' tree nodes (`kolo_comm::tree`), which are parts of the output; it replaces part 0.
    TreeSum,
}

/// The operations with their names, in the order of their codes.
pub const OPERATIONS: [(&str, Operation); 10] = [
    ("all_reduce", Operation::AllReduce),
    ("reduce", Operation::Reduce),
    ("reduce_scatter", Operation::ReduceScatter),
    ("all_gather", Operation::AllGather),
    ("broadcast", Operation::Broadcast),
    ("gather", Operation::Gather),
    ("scatter", Operation::Scatter),
    ("all_to_all", Operation::AllToAll),
    ("barrier", Operation::Barrier),
    ("tree_sum", Operation::TreeSum),
];

impl Operation {
    /// Name in Python.
    pub fn name(self) -> &'static str {
        OPERATIONS.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}

/// An operation with its arguments. Python keeps the memory alive until the operation is over.
#[derive(Clone, Debug)]
pub struct Call {
    pub operation: Operation,
    pub element: ElementType,
    pub reduction: Reduction,
    pub root: Rank,
    /// Operations in place have only an output.
    pub input: Region,
    pub output: Region,
    /// Elements to and from each rank, for [`Operation::AllToAll`]; shards of each rank, for [`Operation::TreeSum`].
    pub send: Vec<usize>,
    pub receive: Vec<usize>,
}

impl Call {
    /// Runs the operation on this thread.
    ///
    /// # Errors
    ///
    /// The call is invalid, or the group has failed.
    pub fn run(&self, group: &Group, mode: WaitMode) -> Result<(), Failure> {
        guarded(|| {
            self.check(group)?;
            let part = match self.operation {
                Operation::AllReduce => Part::All,
                Operation::Reduce => Part::Root(self.root),
                Operation::ReduceScatter => Part::Own,
                Operation::Barrier => {
                    return Ok(group
                        .run_directly(&Collective::Barrier, group.alloc::<u8>(1)?, mode)
                        .map(drop)?);
                }
                Operation::TreeSum => return self.tree_sum(group, mode),
                _ => return self.movement(group, mode),
            };
            let input = if part == Part::Own { self.input } else { self.output };
            Reduce { group, part, input, output: self.output, mode }.run(self.element, self.reduction)
        })
    }

    fn tree_sum(&self, group: &Group, mode: WaitMode) -> Result<(), Failure> {
        let shares = &self.send;
        if shares.len() != group.world_size() {
            return Err(Failure::Refused(format!(
                "{} shares of shards are given for {} ranks",
                shares.len(),
                group.world_size()
            )));
        }
        let contributions = Contributions::of_shares(shares);
        let (len, parts) = (self.output.len(), contributions.parts(group.rank()));
        if !len.is_multiple_of(parts) {
            return Err(Failure::Refused(format!("{len} elements do not divide into {parts} parts")));
        }
        let sum = Collective::tree_sum(Arc::new(contributions), len / parts);
        let ElementType::Native(dtype) = self.element else {
            let name = self.element.name();
            return Err(Failure::Refused(format!("a sum over shards of {name} is not defined")));
        };
        with_type!(dtype, T => {
            // SAFETY: Python keeps the array alive.
            let rows = unsafe { self.output.write::<T>() };
            group.run_directly_on_slice(&sum, rows, mode)?;
        });
        Ok(())
    }

    /// Moves elements; those that Kolo's collectives do not know are moved as bytes.
    fn movement(&self, group: &Group, mode: WaitMode) -> Result<(), Failure> {
        if let ElementType::Native(dtype) = self.element {
            return with_type!(dtype, T => self.movement_of::<T>(group, mode));
        }
        let size = self.element.size();
        let counts = |counts: &[usize]| counts.iter().map(|count| count * size).collect();
        let call = Call {
            element: ElementType::Byte,
            input: self.input.divided(size),
            output: self.output.divided(size),
            send: counts(&self.send),
            receive: counts(&self.receive),
            ..*self
        };
        call.movement_of::<u8>(group, mode)
    }

    fn movement_of<T: Element>(&self, group: &Group, mode: WaitMode) -> Result<(), Failure> {
        let Call { input, output, root, .. } = *self;
        let rank = group.rank();
        // SAFETY: Python keeps the arrays alive; only one of the slices that follow exists at a time.
        let (read, write) = (|| unsafe { input.read::<T>() }, || unsafe { output.write::<T>() });
        let in_place = |collective| group.run_directly_on_slice(&collective, write(), mode);
        match self.operation {
            Operation::Broadcast => in_place(Collective::Broadcast(root))?,
            Operation::AllGather => {
                // SAFETY: `check` has compared the lengths.
                unsafe { input.copy_to_part::<T>(output, rank.0) };
                in_place(Collective::AllGather(Chunks::Equal))?;
            }
            Operation::Gather if rank == root => {
                // SAFETY: as above.
                unsafe { input.copy_to_part::<T>(output, rank.0) };
                in_place(Collective::Gather(root))?;
            }
            Operation::Gather => {
                group.run_directly(&Collective::Gather(root), group.copied(read())?, mode)?;
            }
            Operation::Scatter if rank == root => {
                let all = group.run_directly(&Collective::Scatter(root), group.copied(read())?, mode)?;
                write().copy_from_slice(&all[rank.0 * output.len()..][..output.len()]);
            }
            Operation::Scatter => in_place(Collective::Scatter(root))?,
            _ => {
                let (send, receive): (Arc<[usize]>, Arc<[usize]>) =
                    (self.send.as_slice().into(), self.receive.as_slice().into());
                let mut buffer = group.alloc::<T>(output.len() + input.len())?;
                buffer[output.len()..].copy_from_slice(read());
                let result = group.run_directly(&Collective::AllToAll { send, receive }, buffer, mode)?;
                write().copy_from_slice(&result[..output.len()]);
            }
        }
        Ok(())
    }

    /// Checks the lengths and the addresses, which Kolo's collectives do not see.
    fn check(&self, group: &Group) -> Result<(), Failure> {
        let (world, input, output) = (group.world_size(), self.input.len(), self.output.len());
        let is_root = group.rank() == self.root;
        let by_ranks = |name: &str, long: usize, short: usize, other: &str| match long == short * world {
            true => Ok(()),
            false => Err(Failure::Refused(format!(
                "{name} has {long} elements; with {world} ranks and an {other} of {short} it must have {}",
                short * world
            ))),
        };
        if self.root.0 >= world {
            let root = self.root.0;
            return Err(Failure::Refused(format!("the root is {root}, but the group has {world} ranks")));
        }
        for region in [self.input, self.output] {
            if region.len() > 0 && !region.address().is_multiple_of(self.element.alignment()) {
                let (name, alignment) = (self.element.name(), self.element.alignment());
                return Err(Failure::Refused(format!(
                    "an array of {name} does not begin at a multiple of {alignment} bytes; copy it first"
                )));
            }
        }
        match self.operation {
            Operation::ReduceScatter => by_ranks("the input", input, output, "output"),
            Operation::AllGather => by_ranks("the output", output, input, "input"),
            Operation::Gather if is_root => by_ranks("the output", output, input, "input"),
            Operation::Scatter if is_root => by_ranks("the input", input, output, "output"),
            Operation::AllToAll => {
                for (counts, len, name) in [(&self.send, input, "input"), (&self.receive, output, "output")] {
                    let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
                    if counts.len() != world || sum != Some(len) {
                        let sum = sum.map_or("too many".into(), |sum| sum.to_string());
                        return Err(Failure::Refused(format!(
                            "the {name} has {len} elements for {} counts with a sum of {sum}; it needs one count for \
                             each of {world} ranks, whose sum is its length",
                            counts.len()
                        )));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
