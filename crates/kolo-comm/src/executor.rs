//! Runs a schedule: the one place where steps become messages and additions.

use crate::kernel;
use kolo_rendezvous::Error;
use kolo_schedule::{Op, Range, Rank, Schedule, Source, Step};
use kolo_transport::with_type;
use kolo_transport::{Element, Memory, Routes, WaitContext};

/// Number of contributions that are tracked without allocating memory.
const FEW: usize = 8;

/// Runs one rank's schedule on its buffer. Afterwards the buffer holds the result and no peer reads it.
pub(crate) fn run(
    schedule: &Schedule,
    memory: &Memory<'_>,
    op: Op,
    routes: &mut Routes,
    wait: &WaitContext<'_>,
) -> Result<(), Error> {
    let unsettled = Unsettled(routes);
    with_type!(memory.dtype, T => run_typed::<T>(schedule, memory, op, unsettled.0, wait))?;
    std::mem::forget(unsettled);
    Ok(())
}

/// A collective that is not over. If it ends early, it sends no more of its memory, which is the caller's.
struct Unsettled<'a>(&'a mut Routes);

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

fn run_typed<T: Element>(
    schedule: &Schedule,
    memory: &Memory<'_>,
    op: Op,
    routes: &mut Routes,
    wait: &WaitContext<'_>,
) -> Result<(), Error> {
    let start = memory.start().as_ptr().cast::<T>();
    let world = wait.members.len();
    let inside = |range: Range| {
        assert!(range.start + range.len <= memory.elements, "a schedule stays inside its buffer");
        range.start
    };
    // Address of a range that a step writes: in the buffer, or in the memory that takes the result.
    let destination = |range: Range| {
        let inside = inside(range);
        let Some((result, taken)) = memory.result() else {
            // SAFETY: inside the buffer.
            return unsafe { start.add(inside) };
        };
        let end = taken.start + taken.len;
        assert!(taken.start <= inside && inside + range.len <= end, "a schedule writes its result only");
        // SAFETY: inside the memory that takes the range, as just checked.
        unsafe { result.as_ptr().cast::<T>().add(inside - taken.start) }
    };
    let (mut few, mut many) = ([std::ptr::null::<T>(); FEW], Vec::new());
    // The last range sent, as long as nothing has been written since.
    let mut sent: Option<(Range, u64)> = None;
    for step in &schedule.steps {
        let last_sent = sent.take();
        match step {
            Step::Send { to, range, copied } => {
                let offset = inside(*range) * size_of::<T>();
                let content = match last_sent {
                    Some((last, content)) if last == *range => content,
                    _ => routes.next_content(),
                };
                sent = Some((*range, content));
                let segment = memory.segment(offset, range.len * size_of::<T>(), content);
                routes.send(*to, segment, *copied, wait)?;
            }
            Step::Receive { from, range } => {
                let bytes = range.len * size_of::<T>();
                // SAFETY: `memory` holds the destination exclusively.
                unsafe { routes.receive_into(*from, destination(*range).cast(), bytes, wait)? };
            }
            Step::Copy { from, range } => {
                inside(Range { start: *from, len: range.len });
                // SAFETY: both ranges are inside the buffer; a copy to itself is allowed.
                unsafe { std::ptr::copy(start.add(*from), destination(*range), range.len) };
            }
            Step::Reduce { range, sources, program, complete } => {
                let addresses = match few.get_mut(..sources.len()) {
                    Some(few) => few,
                    None => {
                        many.resize(sources.len(), std::ptr::null());
                        &mut many[..]
                    }
                };
                for (address, source) in addresses.iter_mut().zip(sources.iter()) {
                    *address = match source {
                        Source::Own(offset) => {
                            let own = Range { start: range.start + offset, len: range.len };
                            // SAFETY: inside the buffer.
                            unsafe { start.add(inside(own)).cast_const() }
                        }
                        Source::From(rank) => {
                            let message = routes.receive(*rank, range.len * size_of::<T>(), wait)?;
                            elements(message, *rank, wait)?
                        }
                    };
                }
                let divide_by = (*complete && op == Op::Average).then_some(world);
                // SAFETY: every address holds `range.len` elements. Messages stay readable until
                // released, and only this rank writes its buffer.
                unsafe { kernel::fold(destination(*range), addresses, range.len, program, op, divide_by) };
                for source in sources.iter() {
                    if let Source::From(rank) = source {
                        routes.release(*rank);
                    }
                }
            }
        }
    }
    routes.settle(wait)
}

/// Returns the elements of a message. For a message in a peer's memory, the address comes from that peer.
fn elements<T: Element>(message: *const u8, from: Rank, wait: &WaitContext<'_>) -> Result<*const T, Error> {
    let elements = message.cast::<T>();
    if elements.is_aligned() {
        return Ok(elements);
    }
    let cause = format!("a message begins between two elements of {} bytes", size_of::<T>());
    Err(Error::Untrusted { rank: wait.name(from), cause })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kolo_rendezvous::Liveness;
    use kolo_schedule::DType;

    use super::*;
    use kolo_transport::CollectiveKind;
    use kolo_transport::{Call, Fingerprint, WaitMode};

    #[test]
    fn a_message_between_two_elements_is_refused() {
        let liveness = Liveness::new(2);
        let (kind, op, dtype) = (CollectiveKind::AllReduce, Op::Sum, DType::F32);
        let call =
            Fingerprint::new(&Call { kind, op, root: None, readers: None, dtype, elements: 3, algorithm: 0 });
        let (members, timeout) = ([Rank(0), Rank(1)], Duration::ZERO);
        let wait = WaitContext::new(Rank(0), &members, call, WaitMode::Blocking, timeout, &liveness);
        let memory = [0f32; 4];
        let start = memory.as_ptr().cast::<u8>();
        assert_eq!(elements::<f32>(start, Rank(1), &wait).unwrap(), memory.as_ptr());
        let error = elements::<f32>(start.wrapping_add(2), Rank(1), &wait).unwrap_err();
        assert_eq!(error.culprit(), Some(Rank(1)));
        assert!(elements::<u8>(start.wrapping_add(3), Rank(1), &wait).is_ok());
    }
}
