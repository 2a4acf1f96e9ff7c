//! Gathers of tensors from their owners, as they are used and a few ahead.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kolo_comm::{Group, Rank, Receiving};
use kolo_optim::{Layout, SpanId};
use kolo_reduction::{BLOCK, Error, Owners, Slice};
use parking_lot::Mutex;

use crate::ahead::Order;
use crate::flat::FlatValues;
use crate::region::Region;
use crate::serving::{Request, Server};

/// Tensors that are gathered before they are used.
const AHEAD: usize = 2;

/// Values that are divided among ranks, from the side of one of them.
pub struct DividedValues {
    layout: Arc<Layout>,
    owners: Arc<Owners>,
    rank: Rank,
    /// True for each tensor of which a rank holds its own parts only.
    divided: Vec<bool>,
    server: Server,
    /// Number of the last request.
    requests: AtomicU64,
    /// Number of gathers.
    gathers: AtomicU64,
    ahead: Mutex<Ahead>,
    failure: Mutex<Option<Error>>,
}

/// Gathers that have begun before their tensors are used.
#[derive(Default)]
struct Ahead {
    order: Order,
    coming: Vec<Coming>,
    /// Gathers that nobody needs any more. They end before others begin ahead, so they are few.
    unneeded: Vec<Coming>,
}

/// A gather that has begun.
struct Coming {
    span: SpanId,
    version: u64,
    /// Parts of the tensor that other ranks send.
    parts: Vec<(Range<usize>, Receiving)>,
}

impl fmt::Debug for DividedValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DividedValues").field("rank", &self.rank).finish_non_exhaustive()
    }
}

impl DividedValues {
    /// Divides values among their owners; `values` keeps this rank's parts of the divided tensors, and all
    /// others. A collective.
    ///
    /// A trained tensor of at least a block is divided. All others are small, or never sent.
    ///
    /// # Errors
    ///
    /// The group's transport has no messages, or a collective failed (naming the rank).
    pub fn new(
        group: &Arc<Group>,
        layout: &Arc<Layout>,
        owners: &Arc<Owners>,
        values: &mut FlatValues,
    ) -> Result<Self, Error> {
        let spans = layout.spans().iter();
        let divided = spans.map(|span| span.spec.kind.is_trained() && span.len >= BLOCK).collect();
        let divided = DividedValues {
            layout: layout.clone(),
            owners: owners.clone(),
            rank: group.rank(),
            divided,
            server: Server::start(group).map_err(|error| match error {
                kolo_comm::Error::InvalidCall(_) => Error::Setting(format!(
                    "sharding `parameters` needs messages between workers, which {} does not have; take \
                     `gradients`, or another transport",
                    group.transport()
                )),
                error => error.into(),
            })?,
            requests: AtomicU64::new(0),
            gathers: AtomicU64::new(0),
            ahead: Mutex::default(),
            failure: Mutex::default(),
        };
        let no_memory = |cause| kolo_comm::Error::io("no addresses for the values", cause);
        let mut own = Region::new(values.len()).map_err(no_memory)?;
        for run in divided.runs() {
            own[run.clone()].copy_from_slice(&values[run]);
        }
        *values = FlatValues::Own(own);
        divided.publish(values, true);
        // From here on every rank answers.
        group.barrier()?;
        Ok(divided)
    }

    /// Returns true if a rank holds its own parts of a tensor only.
    pub fn is_divided(&self, span: SpanId) -> bool {
        self.divided[span.0]
    }

    /// Number of gathers so far.
    pub fn gathers(&self) -> u64 {
        self.gathers.load(Ordering::Relaxed)
    }

    /// Runs of flat memory that this rank holds: its own parts, and tensors that are not divided.
    pub fn runs(&self) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (number, span) in self.layout.spans().iter().enumerate() {
            let whole = Slice { span: SpanId(number), elements: 0..span.len, offset: 0 };
            let parts = match self.divided[number] {
                false => vec![span.range()],
                true => {
                    let parts = self.owners.cut(&self.layout, &whole);
                    let own = parts.filter(|(_, owners)| owners.contains(&self.rank));
                    own.map(|(slice, _)| slice.place(&self.layout)).collect()
                }
            };
            for part in parts.into_iter().filter(|part| !part.is_empty()) {
                match runs.last_mut() {
                    Some(last) if last.end == part.start => last.end = part.end,
                    _ => runs.push(part),
                }
            }
        }
        runs
    }

    /// Lets other ranks read this rank's values; `is_new` says that all ranks have made a step or loaded a
    /// checkpoint.
    pub fn publish(&self, values: &mut FlatValues, is_new: bool) {
        if let Some(values) = values.publish() {
            self.server.publish(values, is_new);
        }
        if is_new {
            let mut ahead = self.ahead.lock();
            ahead.order.end();
            let old = std::mem::take(&mut ahead.coming);
            ahead.unneeded.extend(old);
        }
    }

    /// Makes other ranks wait for the next version, so that this one's values may change. Waits until what
    /// is being read has been read.
    pub fn withdraw(&self, values: &mut FlatValues) {
        self.server.withdraw();
        while !values.withdraw() {
            self.server.wait_for_readers();
        }
    }

    /// Returns the values of a divided tensor, and begins to gather those that are likely to follow.
    ///
    /// # Errors
    ///
    /// An owner died, left or did not answer (naming it).
    pub fn gather(&self, span: SpanId) -> Result<Vec<f32>, Error> {
        self.gathers.fetch_add(1, Ordering::Relaxed);
        let version = self.server.version();
        let mut ahead = self.ahead.lock();
        let place = ahead.coming.iter().position(|coming| (coming.span, coming.version) == (span, version));
        let coming = match place {
            Some(place) => ahead.coming.remove(place),
            None => self.begin(span, version)?,
        };
        ahead.order.used(span);
        self.begin_next(&mut ahead, version)?;
        drop(ahead);
        self.finish(coming)
    }

    /// Returns the values of a divided tensor where no error can be returned: NaN if it cannot be gathered,
    /// and the next fallible call returns the error.
    pub fn gather_or_nan(&self, span: SpanId) -> Vec<f32> {
        self.gather(span).unwrap_or_else(|error| {
            self.failure.lock().get_or_insert(error);
            vec![f32::NAN; self.layout.span(span).len]
        })
    }

    /// Returns the first failure that no call has returned, once.
    pub fn take_failure(&self) -> Option<Error> {
        let own = self.failure.lock().take();
        own.or_else(|| self.server.take_failure().map(Error::from))
    }

    /// Asks the other owners of a tensor for their parts.
    fn begin(&self, span: SpanId, version: u64) -> Result<Coming, Error> {
        let whole = Slice { span, elements: 0..self.layout.span(span).len, offset: 0 };
        let mut parts = Vec::new();
        for (slice, owners) in self.owners.cut(&self.layout, &whole) {
            let Some(&owner) = owners.first().filter(|_| !owners.contains(&self.rank)) else { continue };
            let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
            let answer = self.server.messages.receive(Some(owner), number)?;
            let place = slice.place(&self.layout);
            let (start, len) = (place.start as u64, place.len() as u64);
            self.server.ask(owner, Request { number, version, start, len })?;
            parts.push((slice.elements, answer));
        }
        Ok(Coming { span, version, parts })
    }

    /// Begins the gathers that are likely to be needed next, unless others that nobody needs are under way.
    fn begin_next(&self, ahead: &mut Ahead, version: u64) -> Result<(), Error> {
        let next = ahead.order.next(AHEAD);
        let (coming, unneeded) =
            std::mem::take(&mut ahead.coming).into_iter().partition(|coming| next.contains(&coming.span));
        ahead.coming = coming;
        ahead.unneeded.extend::<Vec<Coming>>(unneeded);
        for mut old in std::mem::take(&mut ahead.unneeded) {
            old.take_arrived()?;
            if !old.parts.is_empty() {
                ahead.unneeded.push(old);
            }
        }
        if ahead.unneeded.is_empty() {
            for span in next {
                if ahead.coming.iter().all(|coming| coming.span != span) {
                    ahead.coming.push(self.begin(span, version)?);
                }
            }
        }
        Ok(())
    }

    /// Waits for the parts of a tensor.
    fn finish(&self, coming: Coming) -> Result<Vec<f32>, Error> {
        let span = self.layout.span(coming.span);
        let mut values = vec![0.0; span.len];
        let whole = Slice { span: coming.span, elements: 0..span.len, offset: 0 };
        if let Some(own) = self.server.values() {
            for (slice, owners) in self.owners.cut(&self.layout, &whole) {
                if owners.contains(&self.rank) {
                    let place = slice.place(&self.layout);
                    values[slice.elements].copy_from_slice(&own[place]);
                }
            }
        }
        for (elements, answer) in coming.parts {
            let (_, bytes) = answer.wait()?;
            let (words, _) = bytes.as_chunks::<4>();
            let part = &mut values[elements];
            if words.len() != part.len() {
                return Err(Error::Lost);
            }
            part.iter_mut().zip(words).for_each(|(value, word)| *value = f32::from_le_bytes(*word));
        }
        Ok(values)
    }
}

impl Coming {
    /// Drops the parts that have arrived.
    fn take_arrived(&mut self) -> Result<(), Error> {
        let mut rest = Vec::new();
        for (elements, mut answer) in std::mem::take(&mut self.parts) {
            if answer.wait_for(Duration::ZERO)?.is_none() {
                rest.push((elements, answer));
            }
        }
        self.parts = rest;
        Ok(())
    }
}
