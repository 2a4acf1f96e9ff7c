//! The job's state while rank 0 saves it: the ranks that have it send it, one run after another.
//!
//! Nobody copies its state, and rank 0 holds one run at a time. Each run costs a broadcast of 24 bytes, and a
//! message from each rank that has a part of it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use kolo_checkpoint::{Error as CheckpointError, Source};
use kolo_comm::Rank;

use super::handle::Replica;
use kolo_reduction::Error;
use kolo_reduction::state::{Holdings, StateKind, StateName, StatePart, senders};

/// Request of rank 0: its number, or that of an array and the run of flat memory.
type Request = [i64; 3];

/// All ranks report what they have.
const REPORT: i64 = -1;

/// Rank 0 has all that it needs.
const END: i64 = -2;

/// Parts of a run, and the rank that sends them.
type Sent = (Rank, Vec<Range<usize>>);

/// Parts of the job's arrays that each rank has.
#[derive(Default)]
pub(crate) struct OwnedArrays {
    /// Each array's name, and each rank's runs of it.
    arrays: Vec<(StateName, Vec<Vec<Range<usize>>>)>,
}

impl OwnedArrays {
    fn of(all: &[Holdings]) -> Self {
        let mut arrays: Vec<(StateName, Vec<Vec<Range<usize>>>)> = Vec::new();
        let mut places: HashMap<&StateName, usize> = HashMap::new();
        for (rank, Holdings(runs)) in all.iter().enumerate() {
            for (name, run) in runs {
                let place = *places.entry(name).or_insert_with(|| {
                    arrays.push((name.clone(), vec![Vec::new(); all.len()]));
                    arrays.len() - 1
                });
                arrays[place].1[rank].push(run.clone());
            }
        }
        arrays.sort_by_key(|(name, _)| order_in_files(name));
        OwnedArrays { arrays }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &StateName> {
        self.arrays.iter().map(|(name, _)| name)
    }

    /// Returns an array's name, and who sends which parts of a run of it. Of a reduction's state nobody has
    /// the elements that it does not use, which are 0.
    fn sent(&self, array: usize, run: &Range<usize>) -> Result<(&StateName, Vec<Sent>), Error> {
        let (name, have) = self.arrays.get(array).ok_or(Error::Lost)?;
        let (sent, missing) = senders(have, run);
        let is_lost = name.kind != StateKind::Reduction && missing.iter().any(|run| !run.is_empty());
        if is_lost { Err(Error::Lost) } else { Ok((name, sent)) }
    }
}

/// Key by which arrays are sorted in a checkpoint: by shard, however they came there. The reduction's arrays
/// for all shards are the last ones.
pub(crate) fn order_in_files(name: &StateName) -> (bool, Option<usize>) {
    (name.kind == StateKind::Reduction && name.shard.is_none(), name.shard)
}

impl Replica {
    /// Returns true if each rank holds a part of the optimizer's state only. Then rank 0 saves checkpoints by
    /// [`write_divided`](crate::checkpoint::write_divided), while the others are in
    /// [`Replica::serve_state`].
    pub fn divides_state(&self) -> bool {
        self.core.is_divided()
    }

    /// Sends rank 0 the parts of the state that it asks for, until it calls [`Replica::end_serving`]. All
    /// other ranks call it, after the same step.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), the optimizer's state is not finite (naming the parameter, on
    /// all ranks), or an optimizer's file is lost.
    pub fn serve_state(&mut self) -> Result<(), Error> {
        let mut arrays = OwnedArrays::default();
        loop {
            match self.request([END, 0, 0])? {
                [REPORT, ..] => arrays = self.report_arrays()?,
                [END, ..] => return Ok(()),
                [array, start, end] => {
                    let (name, sent) = arrays.sent(array as usize, &(start as usize..end as usize))?;
                    let own = self.group().rank();
                    for (_, parts) in sent.into_iter().filter(|(rank, _)| *rank == own) {
                        let values = self.copy_of(name, &parts)?;
                        self.group().send(&values, Rank(0))?;
                    }
                }
            }
        }
    }

    /// Lets the other ranks return from [`Replica::serve_state`]. Rank 0 calls it. Fails if a collective
    /// fails (naming the rank).
    pub fn end_serving(&mut self) -> Result<(), Error> {
        self.request([END, 0, 0]).map(drop)
    }

    /// Gives rank 0's request to all ranks.
    fn request(&self, mut request: Request) -> Result<Request, Error> {
        self.group().broadcast(&mut request, Rank(0))?;
        Ok(request)
    }

    /// Makes all ranks report what they have, on rank 0.
    pub(crate) fn ask_for_arrays(&mut self) -> Result<OwnedArrays, Error> {
        self.request([REPORT, 0, 0])?;
        self.report_arrays()
    }

    /// Shares what each rank has. A collective.
    fn report_arrays(&mut self) -> Result<OwnedArrays, Error> {
        self.expect_whole()?;
        self.core.check_state()?;
        self.core.expect_whole_step()?;
        let have = Holdings::of(|visit| self.visit_state(visit));
        self.mode.check_stores(&mut self.core)?;
        let all: Vec<Holdings> = self.group().all_gather_value(&have)?;
        Ok(OwnedArrays::of(&all))
    }

    /// Returns a run of an array on rank 0, of which other ranks send their parts.
    fn ask_for_run(
        &mut self,
        arrays: &OwnedArrays,
        array: usize,
        run: Range<usize>,
    ) -> Result<Vec<f32>, Error> {
        self.request([array as i64, run.start as i64, run.end as i64])?;
        let (name, sent) = arrays.sent(array, &run)?;
        let mut all = vec![0.0; run.len()];
        for (rank, parts) in sent {
            let values = match rank == self.group().rank() {
                true => self.copy_of(name, &parts)?,
                false => {
                    let mut values = vec![0.0; parts.iter().map(Range::len).sum()];
                    self.group().receive(&mut values, rank)?;
                    values
                }
            };
            let mut rest = &values[..];
            for part in parts {
                let (own, others) = rest.split_at(part.len());
                all[part.start - run.start..part.end - run.start].copy_from_slice(own);
                rest = others;
            }
        }
        Ok(all)
    }

    /// Copies parts of an array that this rank has, one behind the other.
    fn copy_of(&mut self, name: &StateName, parts: &[Range<usize>]) -> Result<Vec<f32>, Error> {
        let mut values = vec![0.0; parts.iter().map(Range::len).sum()];
        let mut next = 0;
        for part in parts {
            self.visit_elements(name, part, &mut |place, own| {
                let start = next + (place.start - part.start);
                values[start..start + place.len()].copy_from_slice(own);
            });
            next += part.len();
        }
        self.mode.check_stores(&mut self.core)?;
        Ok(values)
    }

    /// Visits these elements of an array, as far as this rank has them, where all ranks synchronize in every
    /// step: `visit` gets their place in flat memory, and themselves.
    pub(crate) fn visit_elements(
        &mut self,
        name: &StateName,
        wanted: &Range<usize>,
        visit: &mut dyn FnMut(Range<usize>, &mut [f32]),
    ) {
        if name.kind != StateKind::Reduction {
            return self.core.weights.visit_elements(name, wanted, visit);
        }
        self.core.step.visit_state(&mut |StatePart { name: other, place, values }| {
            let run = place.start.max(wanted.start)..place.end.min(wanted.end);
            if other == *name && run.start < run.end {
                visit(run.clone(), &mut values[run.start - place.start..run.end - place.start]);
            }
        });
    }
}

/// State of all ranks, as rank 0 reads it.
pub(crate) struct OwnedState<'a> {
    pub(crate) replica: &'a mut Replica,
    pub(crate) arrays: &'a OwnedArrays,
    /// Error of the first run that has not come.
    pub(crate) failure: Option<Error>,
}

impl Source for OwnedState<'_> {
    fn read(&mut self, part: usize, place: Range<usize>) -> Result<Cow<'_, [f32]>, CheckpointError> {
        match self.replica.ask_for_run(self.arrays, part, place) {
            Ok(values) => Ok(Cow::Owned(values)),
            Err(error) => {
                self.failure.get_or_insert(error);
                Err(CheckpointError::NoValues)
            }
        }
    }
}
