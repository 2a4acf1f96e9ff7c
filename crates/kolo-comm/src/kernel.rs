//! The arithmetic of a reduction: adds many contributions into one sum, in tree order.
//!
//! It works in blocks that stay in the first-level cache, so it reads every contribution once and writes the
//! result once, however many contributions there are. 16-bit floats are added in `f32` and rounded once.

use std::any::TypeId;

use kolo_schedule::Op;
use kolo_schedule::tree::Fold;
use kolo_transport::{Element, Number};

/// Elements per block: 8 KiB of `f32`, so that a few partial sums fit into 32 KiB.
const BLOCK: usize = 2048;

/// Location of a value on the stack.
#[derive(Clone, Copy)]
enum Value {
    Source(usize),
    Scratch(usize),
}

/// Adds `sources` by `program` into `into`; `divide_by` is applied to the sum (for [`Op::Average`]).
///
/// # Safety
///
/// `into` must be writable and every source readable for `len` elements. A source is either `into` itself
/// or does not overlap it. Nothing else writes any of them meanwhile.
pub unsafe fn fold<T: Element>(
    into: *mut T,
    sources: &[*const T],
    len: usize,
    program: &[Fold],
    op: Op,
    divide_by: Option<usize>,
) {
    if TypeId::of::<T>() == TypeId::of::<T::Sum>() {
        // SAFETY: the caller's promise; the two types are the same.
        unsafe {
            let sources = std::slice::from_raw_parts(sources.as_ptr().cast::<*const T::Sum>(), sources.len());
            fold_as_is(into.cast::<T::Sum>(), sources, len, program, op, divide_by);
        }
    } else {
        // SAFETY: the caller's promise.
        unsafe { fold_widened(into, sources, len, program, op, divide_by) }
    }
}

/// # Safety
///
/// Same as [`fold`].
unsafe fn fold_as_is<T: Number>(
    into: *mut T,
    sources: &[*const T],
    len: usize,
    program: &[Fold],
    op: Op,
    divide_by: Option<usize>,
) {
    if let ([left, right], [Fold::Push(0), Fold::Push(1), Fold::Add]) = (sources, program) {
        // The usual case needs no blocks: nothing is read or written twice.
        // SAFETY: the caller's promise.
        unsafe { combine(into, *left, *right, len, op) };
        if let Some(ranks) = divide_by {
            // SAFETY: `into` is writable for `len` elements.
            divide(unsafe { slice_mut(into, len) }, ranks);
        }
        return;
    }
    let mut scratch: Vec<T> = Vec::new();
    let mut stack: Vec<Value> = Vec::with_capacity(sources.len());
    let adds = program.iter().filter(|step| matches!(step, Fold::Add)).count();
    let mut start = 0;
    while start < len {
        let block = BLOCK.min(len - start);
        // SAFETY: start + block ≤ len, and the caller promises `len` elements.
        let (out, at) = unsafe { (into.add(start), |n: usize| sources[n].add(start)) };
        let mut remaining = adds;
        stack.clear();
        for step in program {
            match *step {
                Fold::Push(n) => stack.push(Value::Source(n)),
                Fold::Add => {
                    let (Some(right), Some(left)) = (stack.pop(), stack.pop()) else {
                        unreachable!("a fold program adds only what it pushed")
                    };
                    remaining -= 1;
                    // A partial sum is stored at its depth of the stack, which its operands have left.
                    let depth = stack.len();
                    if remaining > 0 && scratch.len() < (depth + 2) * BLOCK {
                        scratch.resize((depth + 2) * BLOCK, T::default());
                    }
                    let base = scratch.as_mut_ptr();
                    let find = |value| match value {
                        Value::Source(n) => at(n),
                        // SAFETY: only depths below the present top were ever pushed.
                        Value::Scratch(depth) => unsafe { base.add(depth * BLOCK).cast_const() },
                    };
                    // SAFETY: scratch has depth + 2 blocks.
                    let target = if remaining == 0 { out } else { unsafe { base.add(depth * BLOCK) } };
                    // SAFETY: all three are valid for `block` elements. The target may be the left
                    // operand itself (same depth, or `into` as a source), never a part of it.
                    unsafe { combine(target, find(left), find(right), block, op) };
                    stack.push(Value::Scratch(depth));
                }
            }
        }
        if let (0, Some(&Value::Source(n))) = (adds, stack.first())
            && !std::ptr::eq(at(n), out)
        {
            // SAFETY: a source other than `into` does not overlap it.
            unsafe { std::ptr::copy_nonoverlapping(at(n), out, block) };
        }
        if let Some(ranks) = divide_by {
            // SAFETY: `into` is writable for `len` elements.
            divide(unsafe { slice_mut(out, block) }, ranks);
        }
        start += block;
    }
}

/// # Safety
///
/// Same as [`fold`].
unsafe fn fold_widened<T: Element>(
    into: *mut T,
    sources: &[*const T],
    len: usize,
    program: &[Fold],
    op: Op,
    divide_by: Option<usize>,
) {
    // One block for each value on the stack.
    let mut scratch: Vec<T::Sum> = Vec::new();
    let mut start = 0;
    while start < len {
        let block = BLOCK.min(len - start);
        let mut depth = 0;
        for step in program {
            match *step {
                Fold::Push(n) => {
                    scratch.resize(scratch.len().max((depth + 1) * BLOCK), T::Sum::default());
                    // SAFETY: start + block ≤ len, and the caller promises `len` elements.
                    let source = unsafe { std::slice::from_raw_parts(sources[n].add(start), block) };
                    T::widen(source, &mut scratch[depth * BLOCK..][..block]);
                    depth += 1;
                }
                Fold::Add => {
                    depth -= 1;
                    let (left, right) = scratch.split_at_mut(depth * BLOCK);
                    let (left, right) = (&mut left[(depth - 1) * BLOCK..], &right[..block]);
                    // SAFETY: two blocks of the scratch memory; the target is the left one.
                    unsafe { combine(left.as_mut_ptr(), left.as_ptr(), right.as_ptr(), block, op) };
                }
            }
        }
        if let Some(ranks) = divide_by {
            divide(&mut scratch[..block], ranks);
        }
        if depth > 0 {
            // SAFETY: `into` is writable for `len` elements, and no source is borrowed any more.
            T::narrow(&scratch[..block], unsafe { slice_mut(into.add(start), block) });
        }
        start += block;
    }
}

fn divide<T: Number>(values: &mut [T], ranks: usize) {
    values.iter_mut().for_each(|value| *value = value.divide(ranks));
}

/// Computes `target = left ∘ right`; `target` may be one of the two operands.
///
/// # Safety
///
/// All are valid for `len` elements; `target` equals an operand or overlaps none.
unsafe fn combine<T: Number>(target: *mut T, left: *const T, right: *const T, len: usize, op: Op) {
    // SAFETY: the caller's promise.
    unsafe {
        match op {
            Op::Sum | Op::Average => apply(target, left, right, len, T::add),
            Op::Max => apply(target, left, right, len, T::larger),
            Op::Min => apply(target, left, right, len, T::smaller),
            Op::Product => apply(target, left, right, len, T::multiply),
        }
    }
}

/// Applies `f` as [`combine`] does. In place and out of place are separate loops over slices, so the
/// compiler can use vector instructions without a check for overlap.
///
/// # Safety
///
/// Same as [`combine`].
unsafe fn apply<T: Number>(
    target: *mut T,
    left: *const T,
    right: *const T,
    len: usize,
    f: impl Fn(T, T) -> T + Copy,
) {
    // SAFETY: valid for `len` elements, and no two of the slices made in one branch overlap.
    unsafe {
        if std::ptr::eq(target, left) {
            let (out, b) = (slice_mut(target, len), std::slice::from_raw_parts(right, len));
            out.iter_mut().zip(b).for_each(|(a, b)| *a = f(*a, *b));
        } else if std::ptr::eq(target, right) {
            let (out, a) = (slice_mut(target, len), std::slice::from_raw_parts(left, len));
            out.iter_mut().zip(a).for_each(|(b, a)| *b = f(*a, *b));
        } else {
            let (a, b) = (std::slice::from_raw_parts(left, len), std::slice::from_raw_parts(right, len));
            slice_mut(target, len).iter_mut().zip(a.iter().zip(b)).for_each(|(out, (a, b))| *out = f(*a, *b));
        }
    }
}

/// # Safety
///
/// Same as `std::slice::from_raw_parts_mut`.
unsafe fn slice_mut<'a, T>(data: *mut T, len: usize) -> &'a mut [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(data, len) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_schedule::tree::{Contributions, Node, fold as program};

    /// Tests all numbers of contributions, in place (the result lies on contribution `own`) and otherwise.
    #[test]
    fn sums_in_tree_order_at_any_length() {
        for count in [1usize, 2, 3, 4, 7, 8, 13] {
            for len in [0usize, 1, 5, BLOCK - 1, BLOCK, 3 * BLOCK + 17] {
                let data: Vec<Vec<f32>> = (0..count)
                    .map(|c| (0..len).map(|i| ((i * 31 + c * 977) as f32).sin() * 1e3).collect())
                    .collect();
                let program = Contributions::one_each(count).program();
                let expected: Vec<f32> = (0..len).map(|i| sum(&data, i, 0, count)).collect();
                for own in (0..count).map(Some).chain([None]) {
                    let mut out = own.map_or(vec![0.0; len], |own| data[own].clone());
                    let into = out.as_mut_ptr();
                    let sources: Vec<*const f32> = (0..count)
                        .map(|c| if Some(c) == own { into.cast_const() } else { data[c].as_ptr() })
                        .collect();
                    // SAFETY: all vectors have `len` elements.
                    unsafe { fold(into, &sources, len, &program, Op::Sum, None) };
                    assert_eq!(out, expected, "{count} contributions, {len} elements, own {own:?}");
                }
            }
        }
    }

    /// The tree sum by another definition: split at the largest power of two below the count.
    fn sum(data: &[Vec<f32>], i: usize, first: usize, count: usize) -> f32 {
        if count == 1 {
            return data[first][i];
        }
        let left = count.next_power_of_two() / 2;
        sum(data, i, first, left) + sum(data, i, first + left, count - left)
    }

    #[test]
    fn average_and_maximum() {
        let nodes = [Node::leaf(0), Node::leaf(1), Node::leaf(2)];
        let (a, b, c) = ([1i32, -5, 7], [2, -6, 7], [6, -1, 7]);
        let sources = [a.as_ptr(), b.as_ptr(), c.as_ptr()];
        let mut out = [0i32; 3];
        // SAFETY: all arrays have three elements.
        unsafe { fold(out.as_mut_ptr(), &sources, 3, &program(&nodes), Op::Average, Some(3)) };
        assert_eq!(out, [3, -4, 7]);
        // SAFETY: as above.
        unsafe { fold(out.as_mut_ptr(), &sources, 3, &program(&nodes), Op::Max, None) };
        assert_eq!(out, [6, -1, 7]);
    }
}
