//! Steps and meetings of workers that have one copy of the state in the memory of their host.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kolo_comm::{Group, Rank};
use kolo_host::aim::Moment;
use kolo_host::{Decision, HostMemory, HostReport, HostState, MOST_WORKERS, MemoryPlace, Role, decide};
use kolo_optim::{StoreFailure, StoreFault, state_names};
use kolo_reduction::{Error, blocks};
use kolo_step::{LastStep, timed};
use kolo_values::{FlatValues, HostValues};

use super::core::Core;
use super::handover::progress::{Ending, Handover, Stage};
use super::notes::Notes;
use super::weights::Weights;
use crate::sharding::Sharding;

impl Core {
    /// Returns true if the workers of the host have one copy of the state.
    pub fn shares_memory(&self) -> bool {
        self.config.sharding == Sharding::Host
    }

    /// Declares that this process does not write to the memory of the host any more, unless it meets others
    /// again. Otherwise they would end it when they go on without it.
    pub fn leave_memory(&self) {
        self.weights.host.iter().for_each(|host| host.memory.leave());
    }

    /// Sets the values to 0; in the memory of the host also the optimizer's state, on one rank while the
    /// others wait. A collective there.
    pub(super) fn clear_state(&mut self) -> Result<(), Error> {
        if !self.shares_memory() {
            self.weights.clear_values();
            return Ok(());
        }
        self.release_values()?;
        self.ranks.group.barrier()?;
        if self.fills_state() {
            self.weights.visit_state(&mut |part| part.values.fill(0.0));
        }
        Ok(self.ranks.group.barrier()?)
    }

    /// Returns true if this rank writes values and state that are read from a checkpoint: where the host has
    /// one copy of them, one rank does.
    pub fn fills_state(&self) -> bool {
        !self.shares_memory() || self.ranks.group.rank() == Rank(0)
    }

    /// Ends what this process lends of values that another rank is about to write between two steps.
    ///
    /// # Errors
    ///
    /// There is no memory for a copy of what somebody keeps.
    pub fn release_values(&mut self) -> Result<(), Error> {
        match &mut self.weights.values {
            FlatValues::Host(values) => Ok(values.end_loans_of_current()?),
            _ => Ok(()),
        }
    }

    /// Makes the next update stop in the middle of a block, after so many others.
    pub fn stop_in_block_for_tests(&mut self, blocks: usize) {
        self.weights.host.iter_mut().for_each(|host| host.stop_after_for_tests(blocks));
    }

    /// Updates the values in the memory of the host. A collective. When the sums of all workers are in the
    /// memory, the update has begun: from then on the survivors of any death complete it.
    pub(super) fn update_in_memory(&mut self, mut ending: Ending) -> Result<(), Error> {
        self.handover.ending = Some(ending);
        if !ending.done.skipped {
            self.put_sums()?;
        }
        ending.stage = Stage::Ready;
        self.handover.ending = Some(ending);
        self.wait_for_others("the sums of the others' parts")?;
        if std::mem::take(&mut self.handover.fails_when_ready) {
            return Err(Error::Lost);
        }
        if !ending.done.skipped {
            let update = self.weights.begin_update();
            let own = self.weights.host.as_ref().map(HostState::own_blocks).unwrap_or_default();
            let start = Instant::now();
            self.weights.step_blocks(&own, update, false)?;
            let stepped = start.elapsed();
            self.wait_for_others("the others' parts of the values")?;
            self.weights.switch(update);
            let mut start = Some(Instant::now().checked_sub(stepped).unwrap_or(start));
            for bucket in self.step.order() {
                self.step.applied(bucket);
                self.step.updated(bucket, start.take().unwrap_or_else(Instant::now));
            }
        }
        ending.stage = Stage::Stepped;
        self.handover.ending = Some(ending);
        Ok(())
    }

    fn wait_for_others(&mut self, what: &'static str) -> Result<(), Error> {
        let (group, mut exposed) = (&self.ranks.group, Duration::ZERO);
        timed(&mut exposed, what, || group.barrier())?;
        self.step.add_exposed(exposed);
        Ok(())
    }

    /// Writes the sums of this worker's blocks to the place of the next values.
    fn put_sums(&mut self) -> Result<(), Error> {
        let Weights { values, layout, .. } = &mut self.weights;
        let FlatValues::Host(values) = values else { return Ok(()) };
        for bucket in self.step.order() {
            let (slices, reduced) = self.step.collect_own(bucket)?;
            let sums = reduced.result();
            for slice in slices {
                values.next_mut(slice.place(layout)).copy_from_slice(&sums[slice.range()]);
            }
        }
        Ok(())
    }

    /// Brings all ranks of `group` to one state in one memory, of which all are owners of a part. A
    /// collective. Errors: the ranks are not on one host, the memory cannot be mapped, a value is not finite
    /// (on all ranks), or a collective failed (naming the rank).
    pub(super) fn meet_in_memory(&mut self, group: &Arc<Group>) -> Result<(), Error> {
        expect_one_host(group)?;
        let standings: Vec<(u32, bool)> =
            group.all_gather_value(&(std::process::id(), self.progress.joined))?;
        let first = standings.iter().position(|(_, joined)| *joined);
        if first == Some(group.rank().0)
            && let Some(host) = &self.weights.host
        {
            let living: Vec<u32> = standings.iter().map(|(pid, _)| *pid).collect();
            host.memory.end_others(&living)?;
        }
        // The reports come after that: nobody else changes the memory any more.
        let reports: Vec<HostReport> = group.all_gather_value(&self.host_report())?;
        let Some(decision) = decide(&reports) else { return self.make_memory(group) };
        self.weights.map_memory(group, decision.memory, decision.updates)?;
        self.complete_update(group, &decision)?;
        let own = (self.last_steps(), self.notes());
        let (known, notes): (Vec<LastStep>, Notes) = group.broadcast_value(own, Rank(decision.donor))?;
        self.handover = Handover::default();
        self.progress.steps = decision.steps;
        self.set_last_steps(known);
        self.set_notes(notes)?;
        match decision.steps.checked_sub(1) {
            // A step that has been completed here has not been checked yet.
            Some(step) => self.weights.name_not_finite(step),
            None => Ok(()),
        }
    }

    fn host_report(&self) -> HostReport {
        let host = self.weights.host.as_ref();
        HostReport {
            steps: self.progress.joined.then_some(self.progress.steps),
            updates: host.map_or(0, |host| host.updates),
            is_ready: self.handover.ready.is_some(),
            is_skipped: self.handover.ready.is_some_and(|ending| ending.done.skipped),
            begun: host.map_or(0, |host| host.memory.begun()),
            memory: host.map(|host| host.memory.place()),
        }
    }

    /// Makes the memory of a job that begins, with the values of rank 0. All ranks have it in the end, or get
    /// the error of the first one that has no room for it.
    fn make_memory(&mut self, group: &Arc<Group>) -> Result<(), Error> {
        let is_first = group.rank() == Rank(0);
        let made = if is_first { self.weights.new_memory().map(Some) } else { Ok(None) };
        let place = made.as_ref().ok().and_then(|made| Some(made.as_ref()?.0.place()));
        let place = group.broadcast_value(place, Rank(0))?;
        let mapped = match (made, place) {
            (Ok(Some((memory, first))), _) => self.weights.take_memory(group, memory, first, 0),
            (Ok(None), Some(place)) => self.weights.map_memory(group, place, 0),
            (Ok(None), None) => Ok(()),
            (Err(error), _) => Err(error.into()),
        };
        let problem = mapped.err().map(|error| error.to_string());
        let problems: Vec<Option<String>> = group.all_gather_value(&problem)?;
        let mut problems = problems.into_iter().enumerate();
        match problems.find_map(|(rank, problem)| Some((Rank(rank), problem?))) {
            Some((rank, problem)) => {
                Err(Error::Offload { rank, failure: StoreFailure { fault: StoreFault::NoRoom, problem } })
            }
            None => Ok(()),
        }
    }

    /// Completes the update that was interrupted, if there is one. A collective.
    fn complete_update(&mut self, group: &Group, decision: &Decision) -> Result<(), Error> {
        let (update, rank) = (decision.updates, group.rank().0);
        let completing = decision.completing();
        let place = completing.iter().position(|other| *other == rank);
        let ready = self.handover.ready;
        if !completing.is_empty() {
            if let (Some(0), Some(host), FlatValues::Host(values)) =
                (place, &self.weights.host, &mut self.weights.values)
            {
                host.restore(update, values);
            }
            group.barrier()?;
            if let Some(place) = place.filter(|_| ready.is_some_and(|ending| !ending.done.skipped)) {
                let host = self.weights.host.as_ref();
                let rest = host.map(|host| host.rest(update, place, completing.len())).unwrap_or_default();
                self.weights.step_blocks(&rest, update, true)?;
            }
            group.barrier()?;
            if std::mem::take(&mut self.handover.fails_when_ready) {
                return Err(Error::Lost);
            }
        }
        self.weights.switch(update);
        if let Some(ending) = self.handover.ready.take() {
            match decision.roles[rank] {
                Role::Completes => {
                    self.settle(ending.done);
                    // The step counts from here on. If this meeting fails, the report at the next one agrees
                    // with the values, which are those after the update.
                    self.progress.steps += 1;
                }
                Role::Keeps | Role::Repeats | Role::Receives => self.discard(ending)?,
            }
        }
        Ok(())
    }
}

impl Weights {
    /// Declares the next update to have begun, and returns its number.
    fn begin_update(&mut self) -> u64 {
        let Some(host) = &self.host else { return 0 };
        host.memory.begin(host.updates + 1);
        host.updates + 1
    }

    /// Steps blocks whose sums are in the memory; `completes` an update that was interrupted, or makes it.
    fn step_blocks(&mut self, blocks: &[usize], update: u64, completes: bool) -> Result<(), Error> {
        let Some(mut host) = self.host.take() else { return Ok(()) };
        let mut result = Ok(());
        host.begin_blocks(blocks.len(), completes);
        for block in blocks {
            let FlatValues::Host(values) = &mut self.values else { break };
            let (slice, saved) = host.begin_block(*block, update, values);
            if host.stops_here(*block, values) {
                result = Err(Error::Lost);
                break;
            }
            self.step_slice(&slice, saved.sums());
            if let FlatValues::Host(values) = &self.values {
                self.overflow.look(slice.span, values.next(slice.place(&self.layout)));
            }
            host.end_block(*block, update);
        }
        if self.overflow.has_found() {
            host.memory.set_not_finite(update);
        }
        host.reach(Moment::AfterBlocks);
        self.host = Some(host);
        result
    }

    /// Switches to the values after an update, which is complete.
    fn switch(&mut self, update: u64) {
        let (Some(host), FlatValues::Host(values)) = (&mut self.host, &mut self.values) else { return };
        host.reach(Moment::BeforeSwitch);
        host.updates = update;
        values.set_current((update % 2) as usize);
        self.overflow.find(host.memory.is_not_finite(update));
    }

    /// Makes the memory of a job with these values.
    fn new_memory(&mut self) -> Result<(Arc<HostMemory>, HostValues), kolo_comm::Error> {
        let Weights { layout, optimizer, values, .. } = self;
        let arrays = state_names(&mut **optimizer).len();
        let memory = HostMemory::create(blocks(layout, optimizer.scope()).collect(), arrays)?;
        let mut first = HostValues::new(layout.clone(), 0, memory.map_versions())?;
        first.copy_from_slice(values);
        Ok((memory, first))
    }

    /// Maps the memory at `place`, unless this worker has it, and divides its blocks among the ranks of
    /// `group`.
    fn map_memory(&mut self, group: &Arc<Group>, place: MemoryPlace, updates: u64) -> Result<(), Error> {
        let scope = self.optimizer.scope();
        if let Some(host) = self.host.take() {
            let ranks: Vec<Rank> = (0..group.world_size()).map(Rank).collect();
            let (memory, updates) = (host.memory, host.updates);
            self.host = Some(HostState::new(memory, &self.layout, scope, &ranks, group.rank(), updates)?);
            return Ok(());
        }
        let arrays = state_names(&mut *self.optimizer).len();
        let memory = HostMemory::open(place, blocks(&self.layout, scope).collect(), arrays)?;
        let values = HostValues::new(self.layout.clone(), (updates % 2) as usize, memory.map_versions())?;
        self.take_memory(group, memory, values, updates)
    }

    fn take_memory(
        &mut self,
        group: &Arc<Group>,
        memory: Arc<HostMemory>,
        values: HostValues,
        updates: u64,
    ) -> Result<(), Error> {
        let ranks: Vec<Rank> = (0..group.world_size()).map(Rank).collect();
        let (scope, rank) = (self.optimizer.scope(), group.rank());
        if let Some(store) = self.optimizer.store() {
            store.attach(Box::new(memory.clone()));
        }
        self.host = Some(HostState::new(memory, &self.layout, scope, &ranks, rank, updates)?);
        self.values = FlatValues::Host(values);
        Ok(())
    }
}

/// Returns an error if ranks are on several hosts, or too many on one.
fn expect_one_host(group: &Group) -> Result<(), Error> {
    let (hosts, workers) = (group.topology().nodes().len(), group.world_size());
    if group.transport() == "mpi" {
        return Err(Error::Setting(
            "sharding `host` shares memory by Kolo's own transport, which workers over MPI do not have; unset KOLO_BACKEND, or \
             take `optimizer`"
                .into(),
        ));
    }
    let refuse = |problem: String| Err(Error::Setting(format!("sharding `host` {problem}")));
    match hosts {
        0 | 1 if workers <= MOST_WORKERS => Ok(()),
        0 | 1 => refuse(format!("is for at most {MOST_WORKERS} workers, not {workers}; take `optimizer`")),
        hosts => refuse(format!(
            "needs workers that share memory, and these share it in {hosts} groups; start all on one host, without transport \
             `tcp`, or take `optimizer`; a warning names what keeps workers of one host from it"
        )),
    }
}
