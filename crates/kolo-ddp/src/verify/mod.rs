//! Are the replicas still equal, and do two runs go through the same bits?
//!
//! Two readers of the same fingerprints, after a step whose updates are all in: `drift` compares the ranks of
//! this run with one another, every so many steps; the trace writes them down, so that `kolo verify` can
//! compare this run with others. A step that is looked at waits for all of its reductions, also where they
//! would have reached into the next forward pass.

mod drift;
mod fingerprints;
pub mod trace;

use std::ops::Range;
use std::path::PathBuf;

use kolo_comm::{Group, Rank};

use crate::buckets::BucketCaps;
use crate::config::Config;
use crate::error::Error;
use crate::last_step::LastStep;
use kolo_optim::{Kind, Layout};
use trace::{Bits, Start, Step, Tensor, Wish, Writer};

/// Takes fingerprints of one rank's values after its steps.
pub(crate) struct Verifier {
    /// Steps between two looks at the other ranks; 0: never.
    every: u64,
    /// Whether the ranks may hold different statistics.
    local_statistics: bool,
    /// Whether its steps are the outer ones of islands.
    islands: bool,
    wish: Option<Wish>,
    /// Whether steps are to be tuned, and whether they can be.
    tunes: bool,
    tunable: bool,
    /// Rank 0's, from the first step on.
    writer: Option<Writer>,
    /// This rank has taken part in a step, so that rank 0 has begun the trace.
    begun: bool,
    /// Steps seen, which a resumed run does not count from 0.
    seen: u64,
}

/// Whether somebody watches the bits of this process, as `kolo verify` does.
///
/// # Errors
///
/// A variable of the environment cannot be understood.
pub(crate) fn is_watched() -> Result<bool, Error> {
    Ok(Wish::from_env()?.is_some())
}

impl Verifier {
    /// What the configuration and the environment wish for.
    ///
    /// # Errors
    ///
    /// A variable of the environment cannot be understood.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let local_statistics = config.statistics == crate::Statistics::Local;
        let (every, islands) = (config.verify_every, config.sync.rounds().is_some());
        let (wish, tunes, tunable) = (Wish::from_env()?, trace::tunes()?, config.can_be_tuned());
        Ok(Verifier { every, local_statistics, islands, wish, tunes, tunable, ..Verifier::silent() })
    }

    /// Bucket sizes to try in place of the program's.
    pub(crate) fn caps(&self) -> Option<BucketCaps> {
        self.wish.as_ref()?.caps
    }

    /// Whether steps are to be tuned where they can be, whatever the program says.
    pub(crate) fn tunes(&self) -> bool {
        self.tunes
    }

    /// One that looks at nothing.
    pub(crate) fn silent() -> Self {
        Verifier {
            every: 0,
            local_statistics: false,
            islands: false,
            wish: None,
            tunes: false,
            tunable: false,
            writer: None,
            begun: false,
            seen: 0,
        }
    }

    /// Whether [`Verifier::verify`] is to be called by so many ranks that were last equal when the range's
    /// first number of steps was done, and are so again after its end.
    pub(crate) fn is_due(&self, steps: Range<u64>, world: usize) -> bool {
        let is_multiple = || steps.end / self.every > steps.start / self.every;
        self.wish.is_some() || (world > 1 && self.every > 0 && is_multiple())
    }

    /// Where the run is cut after the step that has just been seen: the folder through which it goes on.
    pub(crate) fn resumes_from(&self) -> Option<PathBuf> {
        let wish = self.wish.as_ref().filter(|wish| wish.resume == Some(self.seen))?;
        Some(wish.file.with_extension("checkpoints"))
    }

    /// Whether all updates are made when so many more steps than have been seen are done, where they are one
    /// step late.
    pub(crate) fn ends_round(&self, more: u64) -> bool {
        self.wish.as_ref().is_some_and(|wish| wish.end_round == Some(self.seen + more))
    }

    /// Before anything has changed in a step, as often as one likes: tells the values with which the first
    /// one begins. Where rank 0 has died, the next one goes on with its trace.
    ///
    /// # Errors
    ///
    /// Names the file that cannot be written.
    pub(crate) fn begin(
        &mut self,
        group: &Group,
        layout: &Layout,
        values: &[f32],
        shards: usize,
    ) -> Result<(), Error> {
        let begun = std::mem::replace(&mut self.begun, true);
        let writes = self.writer.is_none() && group.rank() == Rank(0);
        let Some(wish) = self.wish.as_ref().filter(|_| writes) else { return Ok(()) };
        if begun {
            self.writer = Some(Writer::resume(&wish.file)?);
            return Ok(());
        }
        let tensor = |(span, print): (&crate::Span, u64)| Tensor {
            name: span.spec.name.clone(),
            statistic: span.spec.kind == Kind::Statistic,
            print: Bits(print),
        };
        let start = Start {
            world_size: group.world_size(),
            shards,
            islands: self.islands,
            tunable: self.tunable,
            transport: group.transport().into(),
            tensors: layout.spans().iter().zip(fingerprints::of(layout, values)).map(tensor).collect(),
        };
        self.writer = Some(Writer::create(&wish.file, &start)?);
        Ok(())
    }

    /// Compares and writes down the values after a step; those of `servers` are none.
    ///
    /// # Errors
    ///
    /// The ranks differ ([`Error::Drift`]), a collective failed, or the trace cannot be written.
    pub(crate) fn verify(
        &mut self,
        group: &Group,
        layout: &Layout,
        values: &[f32],
        done: &LastStep,
        servers: &[bool],
    ) -> Result<(), Error> {
        self.seen += 1;
        let prints = fingerprints::of(layout, values);
        drift::compare(group, layout, &prints, self.local_statistics, done.step, servers)?;
        let is_wanted =
            self.wish.as_ref().is_some_and(|wish| wish.steps.is_none_or(|steps| self.seen <= steps));
        if let Some(writer) = self.writer.as_mut().filter(|_| is_wanted) {
            let prints = prints.into_iter().map(Bits).collect();
            let loss_bits = Bits(done.loss.to_bits());
            writer.add(&Step { step: done.step, loss: done.loss, loss_bits, count: done.count, prints })?;
        }
        Ok(())
    }
}
