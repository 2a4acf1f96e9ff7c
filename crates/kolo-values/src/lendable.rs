//! Values of a model in flat memory, of which other code may read single tensors where they lie.
//!
//! A tensor library needs each tensor's values for a forward and a backward pass. [`LendableValues::lend`]
//! gives them without a copy, as a [`Loan`]. What a loan shows never changes. So before a tensor is
//! written, its loan must have ended: the loop drops the model's tensors before it steps. If somebody has
//! kept one, such as a copy of the model from an earlier step, the values move to other memory, and the old
//! memory is left to the loans. That costs a copy of all values.
//!
//! Memory that was left lives as long as any loan of it. So a tensor is not lent while an older loan of it
//! lives in such memory: whoever keeps many versions of a tensor keeps one of them there, and copies of all
//! others.

use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Weak};

use crate::flat_memory::FlatMemory;
use kolo_optim::{Layout, SpanId};

/// Values of a model in flat memory.
pub struct LendableValues {
    layout: Arc<Layout>,
    memory: Arc<FlatMemory>,
    tensors: Vec<Lending>,
    /// Number of tensors with a loan in `memory`.
    lent: usize,
}

/// Loans of one tensor.
#[derive(Clone, Default)]
struct Lending {
    /// Loan in the current memory.
    loan: Option<Loan>,
    /// Loan in memory that the values have left, if somebody still has it.
    left: Weak<LentPlace>,
}

/// Values of one tensor where they lie. They never change, and live as long as the loan or a clone of it.
#[derive(Clone)]
pub struct Loan(pub(crate) Arc<LentPlace>);

/// Place that a loan shows.
pub(crate) struct LentPlace {
    memory: Arc<FlatMemory>,
    place: Range<usize>,
}

kolo_comm::opaque_debug!(LendableValues { lent });

kolo_comm::opaque_debug!(Loan);

impl Loan {
    /// Creates the loan of a place that nobody writes while the loan lives.
    pub(crate) fn of(memory: &Arc<FlatMemory>, place: Range<usize>) -> Self {
        Loan(Arc::new(LentPlace { memory: memory.clone(), place }))
    }

    /// Returns the values, in the tensor's memory order.
    pub fn values(&self) -> &[f32] {
        // SAFETY: `LendableValues` and `HostValues` write a place only after the last loan of it has ended.
        unsafe { self.0.memory.read(self.0.place.clone()) }
    }
}

/// The bytes of the values.
impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        let values = self.values();
        // SAFETY: any `f32` is four bytes, and bytes may lie anywhere.
        unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
    }
}

impl LendableValues {
    /// Creates the values of the tensors of `layout`.
    ///
    /// # Panics
    ///
    /// Panics if `values` is not as long as the layout.
    pub fn new(layout: Arc<Layout>, values: &[f32]) -> Self {
        assert_eq!(values.len(), layout.len(), "one value for each place of the layout");
        let tensors = vec![Lending::default(); layout.spans().len()];
        LendableValues { layout, memory: Arc::new(FlatMemory::copied(values)), tensors, lent: 0 }
    }

    /// Lends the values of a tensor, to be read where they lie. Returns `None` if they are to be copied:
    /// somebody still has an older version of them in memory that the values have left.
    pub fn lend(&mut self, id: SpanId) -> Option<Loan> {
        let tensor = &mut self.tensors[id.0];
        if tensor.left.strong_count() > 0 {
            return None;
        }
        if tensor.loan.is_none() {
            let place = self.layout.span(id).range();
            tensor.loan = Some(Loan::of(&self.memory, place));
            self.lent += 1;
        }
        tensor.loan.clone()
    }

    /// Returns a part of one tensor's values, to be changed: those of `range`, which is a range of flat
    /// memory.
    ///
    /// # Panics
    ///
    /// Panics if the tensor does not hold the whole range.
    pub fn of_tensor_mut(&mut self, id: SpanId, range: Range<usize>) -> &mut [f32] {
        self.end_loan(id);
        let tensor = self.layout.span(id).range();
        let is_inside = tensor.start <= range.start && range.start <= range.end && range.end <= tensor.end;
        assert!(is_inside, "{range:?} is not within {tensor:?}");
        // SAFETY: no loan of this tensor in this memory lives, and nothing else refers to the memory beside
        // `self`, which is borrowed for as long as the result.
        unsafe { self.memory.write(range) }
    }

    /// Ends the loan of a tensor. If somebody still reads it, the values move.
    fn end_loan(&mut self, id: SpanId) {
        let Some(Loan(loan)) = self.tensors[id.0].loan.take() else { return };
        self.lent -= 1;
        if let Err(kept) = Arc::try_unwrap(loan) {
            self.tensors[id.0].left = Arc::downgrade(&kept);
            self.leave_memory();
        }
    }

    /// Moves the values to new memory. The old memory is left to its loans.
    fn leave_memory(&mut self) {
        self.memory = Arc::new(FlatMemory::copied(self));
        self.lent = 0;
        for Lending { loan, left } in &mut self.tensors {
            if let Some(Loan(loan)) = loan.take() {
                *left = Arc::downgrade(&loan);
            }
        }
    }
}

impl Deref for LendableValues {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: values are written through an exclusive reference to `self` only.
        unsafe { self.memory.read(0..self.layout.len()) }
    }
}

/// Ends all loans, and moves the values if somebody still reads one.
impl DerefMut for LendableValues {
    fn deref_mut(&mut self) -> &mut [f32] {
        for id in (0..self.tensors.len()).map(SpanId) {
            if self.lent == 0 {
                break;
            }
            self.end_loan(id);
        }
        // SAFETY: no loan in this memory lives, and nothing else refers to the memory beside `self`, which is
        // borrowed for as long as the result.
        unsafe { self.memory.write(0..self.layout.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_optim::{Kind, ParamSpec};

    const LENS: [usize; 4] = [3, 0, 70, 5];

    fn values() -> LendableValues {
        let spec = |len: &usize| ParamSpec::new(len.to_string(), vec![*len], Kind::Parameter { decay: true });
        let layout = Arc::new(Layout::new(LENS.iter().map(spec).collect()));
        let numbers: Vec<f32> = (0..layout.len()).map(|n| n as f32).collect();
        LendableValues::new(layout, &numbers)
    }

    /// Doubles one tensor.
    fn double(values: &mut LendableValues, id: usize) {
        let range = values.layout.span(SpanId(id)).range();
        values.of_tensor_mut(SpanId(id), range).iter_mut().for_each(|value| *value *= 2.0);
    }

    #[test]
    fn a_loan_shows_the_values_where_they_lie() {
        let mut values = values();
        let loan = values.lend(SpanId(2)).unwrap();
        assert_eq!(loan.values(), &values[3..73]);
        assert_eq!(loan.values().as_ptr(), values[3..].as_ptr());
        let bytes: &[u8] = loan.as_ref();
        assert_eq!(bytes, loan.values().iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<_>>());
        assert!(values.lend(SpanId(1)).unwrap().values().is_empty(), "a tensor without elements");
    }

    #[test]
    fn values_stay_in_place_if_loans_end_before_they_are_written() {
        let mut values = values();
        let place = values.as_ptr();
        for _ in 0..3 {
            let loans: Vec<Loan> = (0..4).map(|id| values.lend(SpanId(id)).unwrap()).collect();
            drop(loans);
            (0..4).for_each(|id| double(&mut values, id));
        }
        let loan = values.lend(SpanId(0)).unwrap();
        double(&mut values, 2);
        assert_eq!(
            (values.as_ptr(), loan.values()),
            (place, &[0.0, 8.0, 16.0][..]),
            "another tensor's loan lives"
        );
        drop(loan);
        values.fill(1.0);
        assert_eq!(values.as_ptr(), place);
    }

    /// Each way of writing.
    #[test]
    fn a_kept_loan_never_changes() {
        let ways: [fn(&mut LendableValues); 3] =
            [|values| double(values, 2), |values| values.fill(7.0), |values| values[4] = f32::NAN];
        for way in ways {
            let mut values = values();
            let (kept, other) = (values.lend(SpanId(2)).unwrap(), values.lend(SpanId(0)).unwrap());
            let (before, clone) = (kept.values().to_vec(), kept.clone());
            drop(kept);
            let mut expected = values.to_vec();
            way(&mut values);
            expected[3..73].copy_from_slice(&values[3..73]);
            assert_ne!(&values[3..73], before);
            assert_eq!((clone.values(), other.values()), (&before[..], &[0.0, 1.0, 2.0][..]));
            drop(values);
            assert_eq!(clone.values(), before, "it outlives the values");
        }
    }

    /// Otherwise every version that somebody keeps would keep the memory of all tensors.
    #[test]
    fn at_most_one_kept_version_of_a_tensor_keeps_memory() {
        let mut values = values();
        let first = values.lend(SpanId(0)).unwrap();
        double(&mut values, 0);
        assert!(values.lend(SpanId(0)).is_none(), "the first version is still there");
        assert!(values.lend(SpanId(2)).is_some(), "nobody keeps another tensor");
        let place = values.as_ptr();
        double(&mut values, 0);
        double(&mut values, 2);
        assert_eq!(values.as_ptr(), place);
        drop(first);
        assert_eq!(values.lend(SpanId(0)).unwrap().values(), [0.0, 4.0, 8.0]);
    }

    #[test]
    fn a_loan_may_end_on_another_thread() {
        let mut values = values();
        for round in 0..50 {
            let loan = values.lend(SpanId(2));
            let reader = std::thread::spawn(move || loan.map(|loan| loan.values().iter().sum::<f32>()));
            values.of_tensor_mut(SpanId(2), 3..73).fill(round as f32);
            let seen = reader.join().unwrap();
            let before = if round == 0 { (3..73).sum::<i32>() as f32 } else { 70.0 * (round - 1) as f32 };
            assert!(seen.is_none_or(|sum| sum == before), "{seen:?} in round {round}");
        }
    }

    #[test]
    #[should_panic(expected = "2..5 is not within 0..3")]
    fn a_range_of_two_tensors_is_refused() {
        values().of_tensor_mut(SpanId(0), 2..5);
    }
}
