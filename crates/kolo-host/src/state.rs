//! One worker's part in the memory of its host.

use std::sync::Arc;

use kolo_comm::{Error, Rank};
use kolo_optim::{Layout, Scope};
use kolo_reduction::{Owners, Slice, slices};
use kolo_values::HostValues;

use crate::aim::{Aim, Moment, die};
use crate::memory::HostMemory;

/// The memory, and this worker's blocks.
#[derive(Debug)]
pub struct HostState {
    /// The memory.
    pub memory: Arc<HostMemory>,
    /// Owners of the blocks.
    pub owners: Arc<Owners>,
    /// Number of updates after which this worker's current values are.
    pub updates: u64,
    /// Slice of a tensor that each block is.
    slices: Vec<Slice>,
    rank: Rank,
    /// Number of blocks that this worker has stepped in the present update.
    stepped: usize,
    /// Number of own blocks after which the next update stops in the middle of one, in tests.
    stops_after: Option<usize>,
    /// Moment of the present update at which this process dies, in tests.
    aim: Option<Aim>,
}

impl HostState {
    /// Divides the blocks among `ranks`, of which `rank` is this worker.
    ///
    /// # Errors
    ///
    /// There are too many workers for the memory.
    pub fn new(
        memory: Arc<HostMemory>,
        layout: &Layout,
        scope: Scope,
        ranks: &[Rank],
        rank: Rank,
        updates: u64,
    ) -> Result<Self, Error> {
        memory.enter()?;
        let slice = |block| slices(layout, block).into_iter().next();
        let slices = memory.blocks().iter().filter_map(slice).collect();
        let owners = Arc::new(Owners::split(layout, scope, ranks, 1));
        Ok(HostState { memory, owners, updates, slices, rank, stepped: 0, stops_after: None, aim: None })
    }

    /// Blocks that this worker steps.
    pub fn own_blocks(&self) -> Vec<usize> {
        let is_own = |block: &usize| self.owners.of(self.memory.blocks()[*block].start) == [self.rank];
        (0..self.memory.blocks().len()).filter(is_own).collect()
    }

    /// Blocks that a worker steps of those that an update has not changed, if `count` workers complete it.
    pub fn rest(&self, update: u64, place: usize, count: usize) -> Vec<usize> {
        let is_due = |block: &usize| block % count == place && !self.memory.is_done(*block, update);
        (0..self.memory.blocks().len()).filter(is_due).collect()
    }

    /// Puts everything back to where an update of each block that is not done begins. Nobody else uses the
    /// memory meanwhile. An interruption leaves a journal valid, so this can be repeated.
    pub fn restore(&self, update: u64, values: &mut HostValues) {
        for (slot, block) in self.memory.interrupted(update) {
            let sums = self.memory.restore(slot, block);
            values.next_mut(self.memory.blocks()[block].clone()).copy_from_slice(sums);
            self.memory.void(slot);
        }
    }

    /// Begins to step so many blocks of an update, which this worker `completes` after another one's death.
    pub fn begin_blocks(&mut self, blocks: usize, completes: bool) {
        (self.stepped, self.aim) = (0, Aim::read(blocks, completes));
    }

    /// Declares that this worker has reached a moment of an update, and dies if a test aims there.
    pub fn reach(&self, moment: Moment) {
        if self.is_aimed_at(moment) {
            die()
        }
    }

    fn is_aimed_at(&self, moment: Moment) -> bool {
        self.aim.is_some_and(|aim| aim.is_at(moment, self.stepped))
    }

    /// Begins the update of a block whose sums are in the next values: saves what is needed to repeat it, and
    /// copies the current values there. Returns the block as a slice of a tensor.
    pub fn begin_block(&self, block: usize, update: u64, values: &mut HostValues) -> (Slice, SavedSums) {
        let range = self.memory.blocks()[block].clone();
        self.reach(Moment::BeforeJournal);
        self.memory.save(self.rank.0, block, update, values.next(range.clone()));
        self.reach(Moment::AfterJournal);
        values.copy_to_next(range.clone());
        (
            self.slices[block].clone(),
            SavedSums { memory: self.memory.clone(), slot: self.rank.0, len: range.len() },
        )
    }

    /// Ends the update of a block.
    pub fn end_block(&mut self, block: usize, update: u64) {
        self.reach(Moment::AfterBlock);
        self.memory.finish(block, update);
        self.stepped += 1;
    }

    /// Makes the next update stop in the middle of a block, after so many others.
    pub fn stop_after_for_tests(&mut self, blocks: usize) {
        self.stops_after = Some(blocks);
    }

    /// Returns true if an update is to stop in the middle of the present block; spoils it then, and dies
    /// there if a test aims at that.
    pub fn stops_here(&mut self, block: usize, values: &mut HostValues) -> bool {
        let (is_over, dies) = (self.stops_after == Some(0), self.is_aimed_at(Moment::InBlock));
        self.stops_after = self.stops_after.and_then(|blocks| blocks.checked_sub(1));
        if is_over || dies {
            let range = self.memory.blocks()[block].clone();
            values.next_mut(range.clone()).fill(f32::NAN);
            let half = range.start..range.start + range.len().div_ceil(2);
            for array in 0..self.memory.arrays() {
                // SAFETY: this worker is about to step the block.
                unsafe { self.memory.state(array, half.clone()) }.fill(f32::INFINITY);
            }
        }
        if dies {
            die()
        }
        is_over
    }
}

/// Sums of a block's gradients in this worker's journal.
#[derive(Debug)]
pub struct SavedSums {
    memory: Arc<HostMemory>,
    slot: usize,
    len: usize,
}

impl SavedSums {
    /// Returns them.
    pub fn sums(&self) -> &[f32] {
        self.memory.saved_sums(self.slot, self.len)
    }
}
