//! Verification that the replicas are equal, and that two runs have the same bits.
//!
//! Fingerprints are taken after a step whose updates are all made, and have two uses. `drift` compares the
//! ranks of this run with one another, at intervals of steps. The trace is a file, by which `kolo verify`
//! compares this run with others. A verified step waits for all of its reductions, also if they would have
//! overlapped with the next forward pass.

use std::ops::Range;
use std::path::PathBuf;

use kolo_comm::{Group, Rank};
pub use kolo_host::aim;

use crate::config::Config;
use kolo_optim::{Kind, Layout};
use kolo_reduction::{BucketCaps, Error};
use kolo_step::LastStep;
pub use kolo_step::trace;
use kolo_values::drift;
use trace::{Bits, Start, Step, Tensor, TraceOptions, Writer};

/// Takes fingerprints of one rank's values after its steps.
pub struct Verifier {
    /// Steps between two comparisons with the other ranks; 0: never.
    every: u64,
    /// True if the ranks may hold different statistics.
    local_statistics: bool,
    /// True if its steps are the outer ones of islands.
    islands: bool,
    /// True if each worker holds a part of the optimizer's state only.
    sharded: bool,
    options: Option<TraceOptions>,
    /// True if steps are to be tuned, and true if they can be.
    tunes: bool,
    tunable: bool,
    /// Rank 0's, from the first step on.
    writer: Option<Writer>,
    /// True if this rank has taken part in a step, so that rank 0 has begun the trace.
    begun: bool,
    /// Number of steps seen; in a resumed run it begins at 0, too.
    seen: u64,
}

kolo_comm::opaque_debug!(Verifier { every, local_statistics, islands });

/// Returns true if the environment requests a trace of this process, as `kolo verify` does. Errors: a
/// variable of the environment is invalid.
pub(crate) fn is_watched() -> Result<bool, Error> {
    Ok(TraceOptions::from_env()?.is_some())
}

impl Verifier {
    /// Reads the configuration and the environment. Errors: a variable of the environment is invalid.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let local_statistics = config.statistics == crate::Statistics::Local;
        let (every, islands) = (config.verify_every, config.sync.traits().rounds.is_some());
        let sharded = config.sharding != crate::Sharding::Nothing;
        let (options, tunes, tunable) = (TraceOptions::from_env()?, trace::tunes()?, config.can_be_tuned());
        let silent = Verifier::silent();
        Ok(Verifier { every, local_statistics, islands, sharded, options, tunes, tunable, ..silent })
    }

    /// Bucket sizes to try in place of the program's.
    pub(crate) fn caps(&self) -> Option<BucketCaps> {
        self.options.as_ref()?.caps
    }

    /// Returns true if steps are to be tuned where possible, independent of the program.
    pub(crate) fn tunes(&self) -> bool {
        self.tunes
    }

    /// Creates a verifier that does nothing.
    pub(crate) fn silent() -> Self {
        Verifier {
            every: 0,
            local_statistics: false,
            islands: false,
            sharded: false,
            options: None,
            tunes: false,
            tunable: false,
            writer: None,
            begun: false,
            seen: 0,
        }
    }

    /// Returns true if [`Verifier::verify`] is to be called by `world` ranks. They were equal after the
    /// range's first number of steps, and are equal again after its end.
    pub(crate) fn is_due(&self, steps: Range<u64>, world: usize) -> bool {
        let is_multiple = || steps.end / self.every > steps.start / self.every;
        self.options.is_some() || (world > 1 && self.every > 0 && is_multiple())
    }

    /// Returns the folder for a restart after the step that has just been seen, if one is requested.
    pub fn resumes_from(&self) -> Option<PathBuf> {
        let options = self.options.as_ref().filter(|options| options.resume == Some(self.seen))?;
        Some(options.file.with_extension("checkpoints"))
    }

    /// Returns true if all updates are made `more` steps after those seen, in a job whose updates are one
    /// step late.
    pub(crate) fn ends_round(&self, more: u64) -> bool {
        self.options.as_ref().is_some_and(|options| options.end_round == Some(self.seen + more))
    }

    /// Returns true if a trace is requested.
    pub(crate) fn is_traced(&self) -> bool {
        self.options.is_some()
    }

    /// Returns true if [`Verifier::begin`] needs the values; else it is to be called no more.
    pub(crate) fn is_to_begin(&mut self, group: &Group) -> bool {
        let writes = self.options.is_some() && self.writer.is_none() && group.rank() == Rank(0);
        self.begun |= !writes;
        writes
    }

    /// Writes the values with which the first step begins to the trace. May be called repeatedly, before a
    /// step has changed anything. If rank 0 has died, its successor continues its trace. Errors: the file
    /// cannot be written.
    pub(crate) fn begin(
        &mut self,
        group: &Group,
        layout: &Layout,
        prints: Vec<u64>,
        shards: usize,
    ) -> Result<(), Error> {
        let begun = std::mem::replace(&mut self.begun, true);
        let writes = self.writer.is_none() && group.rank() == Rank(0);
        let Some(options) = self.options.as_ref().filter(|_| writes) else { return Ok(()) };
        if begun {
            self.writer = Some(Writer::resume(&options.file)?);
            return Ok(());
        }
        let tensor = |(span, print): (&kolo_optim::Span, u64)| Tensor {
            name: span.spec.name.clone(),
            statistic: span.spec.kind == Kind::Statistic,
            print: Bits(print),
        };
        let start = Start {
            world_size: group.world_size(),
            shards,
            islands: self.islands,
            sharded: self.sharded,
            foreign: false,
            tunable: self.tunable,
            transport: group.transport().into(),
            tensors: layout.spans().iter().zip(prints).map(tensor).collect(),
        };
        self.writer = Some(Writer::create(&options.file, &start)?);
        Ok(())
    }

    /// Compares the values after a step with the other ranks, and writes them to the trace; `servers` have
    /// none. Errors: the ranks differ ([`Error::Drift`]), a collective failed, or the trace cannot be
    /// written.
    pub(crate) fn verify(
        &mut self,
        group: &Group,
        layout: &Layout,
        prints: Vec<u64>,
        done: &LastStep,
        servers: &[bool],
    ) -> Result<(), Error> {
        self.seen += 1;
        drift::compare(group, layout, &prints, self.local_statistics, done.step, servers)?;
        let is_wanted =
            self.options.as_ref().is_some_and(|options| options.steps.is_none_or(|steps| self.seen <= steps));
        if let Some(writer) = self.writer.as_mut().filter(|_| is_wanted) {
            let prints = prints.into_iter().map(Bits).collect();
            let loss_bits = Bits(done.loss.to_bits());
            writer.add(&Step { step: done.step, loss: done.loss, loss_bits, count: done.count, prints })?;
        }
        Ok(())
    }
}
