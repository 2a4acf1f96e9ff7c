//! Gathers of tensors from their owners: when a tensor is used, and a few ahead if some of it lies on another
//! host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kolo_comm::{Group, Rank, Receiving};
use kolo_optim::{Layout, SpanId};
use kolo_reduction::{Error, Owners, Slice};
use parking_lot::Mutex;

use crate::ahead::Order;
use crate::division::is_divided;
use crate::flat::FlatValues;
use crate::neighbors::Neighbors;
use crate::region::Region;
use crate::serving::{PIECE, Request, Server};

/// Tensors that are gathered before they are used.
pub const AHEAD: usize = 2;

/// Values that are divided among ranks, from the side of one of them. The ranks may change
/// ([`DividedValues::join`]); whoever uses tensors keeps the same reference.
pub struct DividedValues {
    layout: Arc<Layout>,
    /// Its group; `None` while it has none.
    place: Mutex<Option<Arc<Place>>>,
    /// True if nothing is read from the memory of other processes.
    only_messages: bool,
    /// Number of gathers.
    gathers: AtomicU64,
    failure: Mutex<Option<Error>>,
}

/// A rank's place in a group.
struct Place {
    owners: Arc<Owners>,
    rank: Rank,
    /// True for each rank on this rank's host.
    near: Vec<bool>,
    neighbors: Neighbors,
    server: Server,
    /// Number of the last request.
    requests: AtomicU64,
    ahead: Mutex<Ahead>,
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
    tensor: Arc<Mutex<Tensor>>,
    /// Messages with what other ranks have of it.
    parts: Vec<Receiving>,
}

/// A tensor whose values arrive. They take no other memory: each message is copied to its place as it comes.
struct Tensor {
    values: Vec<f32>,
    /// True if a message had another length than what was asked for.
    is_wrong: bool,
}

impl Tensor {
    /// Copies the bytes of a message to their place, of which this is the first element. `end` is the end of
    /// what was asked for.
    fn take(&mut self, start: usize, end: usize, bytes: &[u8]) {
        let part = &mut self.values[start..end.min(start + PIECE)];
        let (words, _) = bytes.as_chunks::<4>();
        self.is_wrong |= bytes.len() != size_of_val(part);
        part.iter_mut().zip(words).for_each(|(value, word)| *value = f32::from_le_bytes(*word));
    }
}

kolo_comm::opaque_debug!(DividedValues);

impl DividedValues {
    /// Creates the division of the tensors of `layout` among ranks that are not known yet.
    pub fn new(layout: &Arc<Layout>) -> Self {
        let (layout, gathers, only_messages) = (layout.clone(), AtomicU64::new(0), false);
        DividedValues { layout, place: Mutex::default(), only_messages, gathers, failure: Mutex::default() }
    }

    /// Creates the same for ranks that read nothing from each other's memory, also on one host.
    pub fn with_messages(layout: &Arc<Layout>) -> Self {
        DividedValues { only_messages: true, ..Self::new(layout) }
    }

    /// Shares this rank's `values` with the ranks of a group, whose parts have these owners. A collective.
    ///
    /// # Errors
    ///
    /// The group's transport has no messages, or a collective failed (naming the rank).
    pub fn join(
        &self,
        group: &Arc<Group>,
        owners: &Arc<Owners>,
        values: &mut FlatValues,
    ) -> Result<(), Error> {
        self.leave(values);
        *self.failure.lock() = None;
        let server = Server::start(group).map_err(|error| match error {
            kolo_comm::Error::InvalidCall(_) => Error::Setting(format!(
                "sharding `parameters` needs messages between workers, which {} does not have; take \
                 `gradients`, or another transport",
                group.transport()
            )),
            error => error.into(),
        })?;
        let mut near = vec![false; group.world_size()];
        let hosts = group.topology().nodes();
        let own = hosts.iter().find(|host| host.contains(&group.rank()));
        own.into_iter().flatten().for_each(|rank| near[rank.0] = true);
        let neighbors = match self.only_messages {
            true => Neighbors::default(),
            false => Neighbors::meet(group, &near, values.publish())?,
        };
        let (owners, rank, requests, ahead) =
            (owners.clone(), group.rank(), AtomicU64::new(0), Mutex::default());
        let place = Place { owners, rank, near, neighbors, server, requests, ahead };
        *self.place.lock() = Some(Arc::new(place));
        self.publish(values, true);
        // From here on every rank answers.
        Ok(group.barrier()?)
    }

    /// Stops serving the ranks of a group, for good: requests that wait are not answered. Waits until what is
    /// being read has been read. The values may change afterwards.
    pub fn leave(&self, values: &mut FlatValues) {
        self.withdraw(values);
        let left = self.place.lock().take();
        drop(left);
    }

    /// Returns true if a rank holds its own parts of a tensor only.
    pub fn is_divided(&self, span: SpanId) -> bool {
        is_divided(self.layout.span(span))
    }

    /// Number of gathers so far.
    pub fn gathers(&self) -> u64 {
        self.gathers.load(Ordering::Relaxed)
    }

    /// Lets other ranks read this rank's values; `is_new` says that all ranks have made a step or loaded a
    /// checkpoint. Does nothing in no group.
    pub fn publish(&self, values: &FlatValues, is_new: bool) {
        let Some(place) = self.place() else { return };
        if let Some(values) = values.publish() {
            place.server.publish(values.clone(), is_new);
            values.show(place.server.version());
        }
        if is_new {
            let mut ahead = place.ahead.lock();
            ahead.order.end();
            let old = std::mem::take(&mut ahead.coming);
            ahead.unneeded.extend(old);
        }
    }

    /// Makes other ranks wait for the next version, so that this one's values may change. Waits until what
    /// is being read has been read.
    pub fn withdraw(&self, values: &mut FlatValues) {
        let Some(place) = self.place() else { return };
        values.publish().iter().for_each(|values| values.hide());
        place.server.withdraw();
        while !values.is_withdrawn() {
            place.server.wait_for_readers();
        }
    }

    /// Returns the values of a divided tensor, and begins to gather those that are likely to follow.
    ///
    /// # Errors
    ///
    /// An owner died, left or did not answer (naming it).
    pub fn gather(&self, span: SpanId) -> Result<Vec<f32>, Error> {
        self.gathers.fetch_add(1, Ordering::Relaxed);
        self.place().ok_or(Error::Lost)?.gather(&self.layout, span)
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
        own.or_else(|| self.place()?.server.take_failure().map(Error::from))
    }

    fn place(&self) -> Option<Arc<Place>> {
        self.place.lock().clone()
    }
}

impl Place {
    fn gather(&self, layout: &Layout, span: SpanId) -> Result<Vec<f32>, Error> {
        let version = self.server.version();
        let here = self.read_here(layout, span, version)?;
        let mut ahead = self.ahead.lock();
        if let Some(values) = here {
            ahead.order.used(span);
            self.begin_next(layout, &mut ahead, version)?;
            return Ok(values);
        }
        let place = ahead.coming.iter().position(|coming| (coming.span, coming.version) == (span, version));
        let coming = match place {
            Some(place) => ahead.coming.remove(place),
            None => self.begin(layout, span, version)?,
        };
        ahead.order.used(span);
        self.begin_next(layout, &mut ahead, version)?;
        drop(ahead);
        self.finish(layout, coming)
    }

    /// Returns one of a part's owners whose values this rank can read, itself first; `None` if there is none.
    fn here(&self, owners: &[Rank]) -> Option<Rank> {
        let own = owners.contains(&self.rank).then_some(self.rank);
        own.or_else(|| owners.iter().copied().find(|owner| self.neighbors.can_read(*owner)))
    }

    /// Returns true if this rank can read all of a tensor.
    fn is_here(&self, layout: &Layout, span: SpanId) -> bool {
        self.owners.cut(layout, &whole(layout, span)).all(|(_, owners)| self.here(owners).is_some())
    }

    /// Reads a tensor whose owners are all on this host. Returns `None` if they are not, or if one of them has
    /// not reached this version yet: messages wait for it.
    fn read_here(&self, layout: &Layout, span: SpanId, version: u64) -> Result<Option<Vec<f32>>, Error> {
        if !self.is_here(layout, span) {
            return Ok(None);
        }
        let own = self.own_values()?;
        let mut values = Vec::with_capacity(layout.span(span).len);
        for (slice, owners) in self.owners.cut(layout, &whole(layout, span)) {
            let place = slice.place(layout);
            match self.here(owners).filter(|owner| *owner != self.rank) {
                None => values.extend_from_slice(&own[place]),
                Some(owner) => {
                    let read = self.neighbors.append(owner, version, place.start, place.len(), &mut values);
                    if read.is_none() {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(values))
    }

    /// This rank's own values.
    fn own_values(&self) -> Result<Arc<Region>, Error> {
        // Values that are changing belong to a step that has failed.
        self.server.values().ok_or(Error::Lost)
    }

    /// Returns the owner that this rank asks: one on its own host, or else another one than its neighbors
    /// ask.
    fn asked(&self, owners: &[Rank]) -> Option<Rank> {
        let near = owners.iter().find(|owner| self.near[owner.0]);
        near.or_else(|| owners.get(self.rank.0 % owners.len().max(1))).copied()
    }

    /// Asks the other owners of a tensor for their parts.
    fn begin(&self, layout: &Layout, span: SpanId, version: u64) -> Result<Coming, Error> {
        let len = layout.span(span).len;
        let tensor = Arc::new(Mutex::new(Tensor { values: vec![0.0; len], is_wrong: false }));
        let mut parts = Vec::new();
        for (slice, owners) in self.owners.cut(layout, &whole(layout, span)) {
            let Some(owner) = self.asked(owners).filter(|_| !owners.contains(&self.rank)) else { continue };
            let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
            let place = slice.place(layout);
            let (start, len) = (place.start as u64, place.len() as u64);
            let (tensor, elements) = (tensor.clone(), slice.elements);
            let take = Arc::new(move |start, bytes: &[u8]| {
                tensor.lock().take(elements.start + start, elements.end, bytes);
            });
            parts.extend(self.server.ask(owner, Request { number, version, start, len }, &take)?);
        }
        Ok(Coming { span, version, tensor, parts })
    }

    /// Begins the gathers that are likely to be needed next, unless others that nobody needs are under way.
    fn begin_next(&self, layout: &Layout, ahead: &mut Ahead, version: u64) -> Result<(), Error> {
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
            for span in next.into_iter().filter(|span| !self.is_here(layout, *span)) {
                if ahead.coming.iter().all(|coming| coming.span != span) {
                    ahead.coming.push(self.begin(layout, span, version)?);
                }
            }
        }
        Ok(())
    }

    /// Waits for the parts of a tensor.
    fn finish(&self, layout: &Layout, coming: Coming) -> Result<Vec<f32>, Error> {
        let own = self.own_values()?;
        for (slice, owners) in self.owners.cut(layout, &whole(layout, coming.span)) {
            if owners.contains(&self.rank) {
                let place = slice.place(layout);
                coming.tensor.lock().values[slice.elements].copy_from_slice(&own[place]);
            }
        }
        drop(own);
        for answer in coming.parts {
            answer.wait()?;
        }
        let mut tensor = coming.tensor.lock();
        if tensor.is_wrong { Err(Error::Lost) } else { Ok(std::mem::take(&mut tensor.values)) }
    }
}

/// Slice that is a whole tensor.
fn whole(layout: &Layout, span: SpanId) -> Slice {
    Slice { span, elements: 0..layout.span(span).len, offset: 0 }
}

impl Coming {
    /// Drops the parts that have arrived.
    fn take_arrived(&mut self) -> Result<(), Error> {
        let mut rest = Vec::new();
        for mut answer in std::mem::take(&mut self.parts) {
            if answer.wait_for(Duration::ZERO)?.is_none() {
                rest.push(answer);
            }
        }
        self.parts = rest;
        Ok(())
    }
}
