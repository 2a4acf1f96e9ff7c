//! Runs a schedule: the one place where steps become messages and additions.

use crate::element::{Element, Op};
use crate::error::Error;
use crate::kernel;
use crate::liveness::Patience;
use crate::memory::Buffer;
use crate::schedule::{Range, Schedule, Source, Step};
use crate::transport::{Span, Transport};

/// Runs one rank's schedule on its buffer, whose parts have `len` elements each.
///
/// Afterwards part 0 holds the result, and no peer reads the buffer any more.
pub(crate) fn run<T: Element>(
    schedule: &Schedule,
    buffer: &mut Buffer<T>,
    len: usize,
    op: Op,
    world: usize,
    transport: &mut dyn Transport,
    patience: &Patience<'_>,
) -> Result<(), Error> {
    let (total, start) = (buffer.len(), buffer.block().start().as_ptr().cast::<T>());
    let inside = |part: usize, range: Range| {
        assert!(part * len + range.start + range.len <= total, "a schedule stays inside its buffer");
        part * len + range.start
    };
    for step in &schedule.steps {
        match step {
            Step::Send { to, part, range } => {
                let offset = inside(*part, *range) * size_of::<T>();
                let span = Span { block: buffer.block(), offset, bytes: range.len * size_of::<T>() };
                transport.send(*to, span, patience)?;
            }
            Step::Receive { from, range } => {
                let bytes = range.len * size_of::<T>();
                // SAFETY: inside the buffer, which this function holds exclusively.
                unsafe {
                    let into = start.add(inside(0, *range)).cast();
                    transport.receive_into(*from, into, bytes, patience)?;
                }
            }
            Step::Reduce { range, sources, program, complete } => {
                let mut addresses: Vec<*const T> = Vec::with_capacity(sources.len());
                for source in sources.iter() {
                    addresses.push(match source {
                        // SAFETY: inside the buffer.
                        Source::Own(part) => unsafe { start.add(inside(*part, *range)).cast_const() },
                        Source::From(rank) => {
                            transport.receive(*rank, range.len * size_of::<T>(), patience)?.cast()
                        }
                    });
                }
                let divide_by = (*complete && op == Op::Average).then_some(world);
                // SAFETY: every address holds range.len elements; messages stay readable until released, and only
                // this rank writes its part 0.
                unsafe {
                    let into = start.add(inside(0, *range));
                    kernel::fold(into, &addresses, range.len, program, op, divide_by);
                }
                for source in sources.iter() {
                    if let Source::From(rank) = source {
                        transport.release(*rank);
                    }
                }
            }
        }
    }
    transport.settle(patience)
}
