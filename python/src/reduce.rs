//! Reductions over all types by way of those that Kolo's collectives add.
//!
//! | type | reduction | runs as |
//! |---|---|---|
//! | complex | sum, mean | twice as many floats |
//! | `bool` | sum and max; product and min | maximum; minimum of bytes |
//! | `int8`, `int16`, `uint16`, `uint32` | all arithmetic | wider integers, cut off at the end |
//! | `uint64` | sum, product | `int64`, whose bits are the same |
//! | `uint64` | max, min | `int64` with the first bit flipped |
//! | complex | product | everything is gathered, and every rank combines |
//! | integers, `bool` | bitwise | the same |

use kolo_comm::backend::WaitMode;
use kolo_comm::schedule::Chunks;
use kolo_comm::{Collective, DType, Element, Group, Op, Rank, bf16, f16};

use crate::elements::{ElementType, Reduction};
use crate::failure::Failure;
use crate::region::Region;

/// The part of the combination that this rank needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it; the result replaces the data.
    All,
    /// All of it on one rank; the result replaces its data.
    Root(Rank),
    /// The chunk of this rank.
    Own,
}

/// A reduction with the memory that it reads and writes. They are the same but for [`Part::Own`].
pub struct Reduce<'a> {
    pub group: &'a Group,
    pub part: Part,
    pub input: Region,
    pub output: Region,
    pub mode: WaitMode,
}

impl Reduce<'_> {
    /// Runs it on elements of a type.
    ///
    /// # Errors
    ///
    /// The type has no such reduction; otherwise the errors of [`Group::run`].
    pub fn run(&self, element: ElementType, reduction: Reduction) -> Result<(), Failure> {
        use ElementType as E;
        use Reduction as R;
        let bitwise = matches!(reduction, R::BitAnd | R::BitOr | R::BitXor);
        match (element, reduction) {
            (E::Bool, R::Sum | R::Max | R::BitOr) => self.plainly::<u8>(Op::Max),
            (E::Bool, R::Product | R::Min | R::BitAnd) => self.plainly::<u8>(Op::Min),
            (E::Native(DType::I32 | DType::I64 | DType::U8), _)
            | (E::I8 | E::I16 | E::U16 | E::U32 | E::U64, _)
                if bitwise =>
            {
                self.divided(element.size()).gathered(bits(reduction))
            }
            (E::Bool, R::BitXor) => self.gathered(bits(reduction)),
            (E::C64, R::Sum | R::Mean) => self.divided(2).plainly::<f32>(arithmetic(reduction)?),
            (E::C128, R::Sum | R::Mean) => self.divided(2).plainly::<f64>(arithmetic(reduction)?),
            (E::C64, R::Product) => self.divided(2).gathered::<f32>(|all, next| {
                pairs(all, next, |a, b, c, d| (a * c - b * d, a * d + b * c));
            }),
            (E::C128, R::Product) => self.divided(2).gathered::<f64>(|all, next| {
                pairs(all, next, |a, b, c, d| (a * c - b * d, a * d + b * c));
            }),
            (E::Native(dtype), _) if !bitwise => self.native(dtype, arithmetic(reduction)?),
            (E::I8, _) if !bitwise => self.mapped(arithmetic(reduction)?, i32::from, |wide| wide as i8),
            (E::I16, _) if !bitwise => self.mapped(arithmetic(reduction)?, i32::from, |wide| wide as i16),
            (E::U16, _) if !bitwise => self.mapped(arithmetic(reduction)?, i32::from, |wide| wide as u16),
            (E::U32, _) if !bitwise => self.mapped(arithmetic(reduction)?, i64::from, |wide| wide as u32),
            (E::U64, R::Sum | R::Product) => self.plainly::<i64>(arithmetic(reduction)?),
            (E::U64, R::Max | R::Min) => {
                const FIRST: u64 = 1 << 63;
                let (to, from) = (|number| (number ^ FIRST) as i64, |number: i64| number as u64 ^ FIRST);
                self.mapped(arithmetic(reduction)?, to, from)
            }
            (E::U64, R::Mean) => {
                let ranks = self.group.world_size() as u64;
                self.mapped(Op::Sum, |number: u64| number as i64, |sum| sum as u64 / ranks)
            }
            _ => Err(Failure::Refused(format!("{} of {} is not defined", reduction.name(), element.name()))),
        }
    }

    fn native(&self, dtype: DType, op: Op) -> Result<(), Failure> {
        match dtype {
            DType::F32 => self.plainly::<f32>(op),
            DType::F64 => self.plainly::<f64>(op),
            DType::I32 => self.plainly::<i32>(op),
            DType::I64 => self.plainly::<i64>(op),
            DType::U8 => self.plainly::<u8>(op),
            DType::F16 => self.plainly::<f16>(op),
            DType::Bf16 => self.plainly::<bf16>(op),
        }
    }

    fn divided(&self, factor: usize) -> Reduce<'_> {
        Reduce { input: self.input.divided(factor), output: self.output.divided(factor), ..*self }
    }

    /// Runs a reduction that Kolo's collectives have.
    fn plainly<T: Element>(&self, op: Op) -> Result<(), Failure> {
        let Reduce { group, part, input, output, mode } = *self;
        let rank = group.rank();
        match part {
            Part::All => {
                // SAFETY: the array is kept alive and left alone by the caller, as for every region here.
                let data = unsafe { output.write::<T>() };
                group.run_directly_on_slice(&Collective::AllReduce(op), data, mode)?;
            }
            Part::Root(root) => {
                // SAFETY: as above.
                let buffer = group.copied(unsafe { output.read::<T>() })?;
                let result = group.run_directly(&Collective::Reduce(op, root), buffer, mode)?;
                if rank == root {
                    // SAFETY: as above.
                    unsafe { output.write::<T>() }.copy_from_slice(&result);
                }
            }
            Part::Own if !input.overlaps::<T>(output) => {
                // SAFETY: as above.
                let (input, output) = unsafe { (input.read::<T>(), output.write::<T>()) };
                group.reduce_scatter_directly(input, output, op, mode)?;
            }
            Part::Own => {
                // SAFETY: as above; the slice ends before the output, which overlaps it, is written.
                let buffer = group.copied(unsafe { input.read::<T>() })?;
                let collective = Collective::ReduceScatter(op, Chunks::Equal);
                let result = group.run_directly(&collective, buffer, mode)?;
                let own = &result[rank.0 * output.len()..][..output.len()];
                // SAFETY: as above.
                unsafe { output.write::<T>() }.copy_from_slice(own);
            }
        }
        Ok(())
    }

    /// Runs a reduction on converted copies of the data.
    fn mapped<T: Copy, W: Element>(
        &self,
        op: Op,
        widen: impl Fn(T) -> W,
        narrow: impl Fn(W) -> T,
    ) -> Result<(), Failure> {
        let is_own = self.part == Part::Own;
        // SAFETY: as in `plainly`.
        let mut wide: Vec<W> =
            unsafe { self.input.read::<T>() }.iter().map(|number| widen(*number)).collect();
        let mut own = vec![W::default(); if is_own { self.output.len() } else { 0 }];
        let input = Region::new(wide.as_mut_ptr() as usize, wide.len());
        let result = if is_own { Region::new(own.as_mut_ptr() as usize, own.len()) } else { input };
        Reduce { input, output: result, ..*self }.plainly::<W>(op)?;
        if matches!(self.part, Part::Root(root) if root != self.group.rank()) {
            return Ok(());
        }
        let result = if is_own { &own } else { &wide };
        // SAFETY: as in `plainly`.
        let output = unsafe { self.output.write::<T>() };
        output.iter_mut().zip(result).for_each(|(into, number)| *into = narrow(*number));
        Ok(())
    }

    /// Gathers the data of all ranks and combines it in rank order.
    fn gathered<T: Element>(&self, combine: impl Fn(&mut [T], &[T])) -> Result<(), Failure> {
        let Reduce { group, part, input, output, mode } = *self;
        let (rank, len) = (group.rank(), input.len());
        let mut buffer = group.alloc::<T>(len * group.world_size())?;
        // SAFETY: as in `plainly`.
        buffer[rank.0 * len..][..len].copy_from_slice(unsafe { input.read::<T>() });
        let all = group.run_directly(&Collective::AllGather(Chunks::Equal), buffer, mode)?;
        let start = match part {
            Part::Root(root) if root != rank => return Ok(()),
            Part::Own => rank.0 * output.len(),
            Part::All | Part::Root(_) => 0,
        };
        // SAFETY: as in `plainly`.
        let output = unsafe { output.write::<T>() };
        let part_of = |of: usize| &all[of * len + start..][..output.len()];
        let mut combined = part_of(0).to_vec();
        (1..group.world_size()).for_each(|of| combine(&mut combined, part_of(of)));
        output.copy_from_slice(&combined);
        Ok(())
    }
}

fn arithmetic(reduction: Reduction) -> Result<Op, Failure> {
    match reduction {
        Reduction::Sum => Ok(Op::Sum),
        Reduction::Mean => Ok(Op::Average),
        Reduction::Max => Ok(Op::Max),
        Reduction::Min => Ok(Op::Min),
        Reduction::Product => Ok(Op::Product),
        _ => Err(Failure::Refused(format!("{} is bitwise", reduction.name()))),
    }
}

/// Returns the function that combines bytes bit by bit.
fn bits(reduction: Reduction) -> impl Fn(&mut [u8], &[u8]) {
    move |all, next| {
        all.iter_mut().zip(next).for_each(|(all, next)| match reduction {
            Reduction::BitAnd => *all &= next,
            Reduction::BitOr => *all |= next,
            _ => *all ^= next,
        });
    }
}

/// Combines complex numbers: pairs of a real and an imaginary part.
fn pairs<T: Copy>(all: &mut [T], next: &[T], combine: impl Fn(T, T, T, T) -> (T, T)) {
    for (all, next) in all.chunks_exact_mut(2).zip(next.chunks_exact(2)) {
        (all[0], all[1]) = combine(all[0], all[1], next[0], next[1]);
    }
}
