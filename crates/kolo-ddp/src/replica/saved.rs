//! Gathering the state that a checkpoint holds, and resuming from it.

use kolo_reduction::Error;

use super::handle::Replica;

impl Replica {
    /// Brings to rank 0 all state that a checkpoint needs: what the reduction keeps for each shard, such as
    /// residuals, and the optimizers of islands or servers. All ranks must call it after the same step,
    /// before rank 0 takes the checkpoint. Does nothing if there is no such state.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), or the optimizer's state is not finite (naming the parameter,
    /// on all ranks).
    pub fn gather_residuals(&mut self) -> Result<(), Error> {
        let core = &mut self.core;
        core.check_state()?;
        if !core.config.reduction.shard_state().is_empty() {
            core.apply_outstanding()?;
            core.gathered = Some((core.progress.steps, core.step.gather_shard_state()?));
        }
        if self.is_synchronised() { self.mode.gather(&mut self.core) } else { Ok(()) }
    }

    /// Resets all state that a checkpoint restores: the replica is then like that of a process that has just
    /// joined these ranks. All ranks must call it after the same step.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), or memory allocation failed.
    pub(crate) fn begin_anew(&mut self) -> Result<(), Error> {
        self.core.begin_anew()?;
        self.mode.form(&mut self.core, 0)?;
        self.resume(0)
    }

    /// Resumes all ranks from a checkpoint that was made after that number of steps. A collective.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(crate) fn resume(&mut self, steps: u64) -> Result<(), Error> {
        self.core.set_steps(steps);
        self.forget_backups()
    }
}
