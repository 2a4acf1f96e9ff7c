//! Buckets: elements that are reduced together. A bucket is made of whole spans and of slices of large ones.
//!
//! The backward pass computes the last layers' gradients first, so buckets are filled from the end of the
//! model. The first one is small: it starts communication early. The others are as large as the cap allows,
//! because every reduction costs its latency (Li et al. 2020, "PyTorch Distributed", section 3.2.3). The
//! last one is small again: when its gradients are ready the backward pass is over and can no longer hide
//! its reduction. A span that is larger than a bucket is cut, so that others can overtake the rest of it
//! (Jayarajan et al. 2019, section 4.1, "parameter slicing").

use std::ops::Range;

use kolo_comm::Group;

use crate::state::{StateName, StatePart, Visit};
use kolo_optim::{Kind, Layout, SpanId};

/// Size limits of buckets, in bytes of `f32`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketCaps {
    /// The first and the last bucket.
    pub first: usize,
    /// All others.
    pub other: usize,
}

impl BucketCaps {
    /// Caps of 1 MiB for the first and the last bucket, `mib` MiB for the others (and for those two, if that
    /// is less).
    pub fn of_mib(mib: f64) -> Self {
        const MIB: f64 = 1024.0 * 1024.0;
        BucketCaps { first: (mib.min(1.0) * MIB) as usize, other: (mib * MIB) as usize }
    }

    /// Caps that suit a group. Within one host, and wherever reductions take little of a backward pass, few
    /// large buckets: 25 MiB. Over sockets the network is the bottleneck and buckets overtake one another,
    /// which small ones can do sooner: 4 MiB, 35 ms at 1 Gbit/s, still many times the fixed cost of a
    /// reduction.
    pub fn for_group(group: &Group) -> Self {
        Self::of_mib(if group.reach() == kolo_comm::Distance::Network { 4.0 } else { 25.0 })
    }
}

/// Slices begin at multiples of this number of elements of their span. Sums over a span are computed in
/// blocks of that length, so that they do not depend on the cuts of the span.
pub const BLOCK: usize = 16 * 1024;
/// Bytes of the shortest slice of a span that is longer.
const LEAST_SLICE: usize = BLOCK * size_of::<f32>();

/// A run of elements reduced by one collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its slices, one after another.
    pub slices: Vec<Slice>,
    /// Number of elements.
    pub len: usize,
}

/// Elements of one span, often all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Their span.
    pub span: SpanId,
    /// Their range in the span.
    pub elements: Range<usize>,
    /// Their beginning in the bucket.
    pub offset: usize,
}

impl Slice {
    /// Its range of the bucket's elements.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.elements.len()
    }

    /// Splits the elements into runs of at most `len`.
    pub fn runs(&self, len: usize) -> impl Iterator<Item = Slice> {
        let Slice { span, ref elements, offset } = *self;
        let (first, end) = (elements.start, elements.end);
        elements.clone().step_by(len).map(move |start| {
            let elements = start..end.min(start + len);
            Slice { span, elements, offset: offset + (start - first) }
        })
    }

    /// Its range of flat memory.
    pub fn place(&self, layout: &Layout) -> Range<usize> {
        let start = layout.span(self.span).offset;
        start + self.elements.start..start + self.elements.end
    }
}

impl Bucket {
    fn push(&mut self, span: SpanId, elements: Range<usize>) {
        let offset = self.len;
        self.len += elements.len();
        self.slices.push(Slice { span, elements, offset });
    }

    fn bytes(&self) -> usize {
        self.len * size_of::<f32>()
    }

    /// Copies values of its elements to their places in flat memory.
    pub fn to_flat(&self, layout: &Layout, values: &[f32], flat: &mut [f32]) {
        let copy = |slice: &Slice| flat[slice.place(layout)].copy_from_slice(&values[slice.range()]);
        self.slices.iter().for_each(copy);
    }

    /// Visits an array of state, of which `values` are those of its elements.
    pub fn visit_state(&self, layout: &Layout, name: &StateName, values: &mut [f32], visit: &mut Visit<'_>) {
        for slice in &self.slices {
            let (name, place) = (name.clone(), slice.place(layout));
            visit(StatePart { name, place, values: &mut values[slice.range()] });
        }
    }
}

/// The slices of trained tensors: gradients, without running statistics.
pub fn trained<'a>(layout: &Layout, slices: &'a [Slice]) -> impl Iterator<Item = &'a Slice> {
    slices.iter().filter(|slice| layout.span(slice.span).spec.kind.is_trained())
}

/// The expected order of gradients before the first backward pass has shown it: the model's, reversed.
pub fn reversed(layout: &Layout) -> Vec<SpanId> {
    (0..layout.spans().len()).rev().map(SpanId).collect()
}

/// Fills buckets with spans in the order in which they become ready. Statistics come last: they are known
/// only when a pass is over. Frozen tensors are in no bucket.
///
/// Every other element is in exactly one bucket. A span larger than the cap fills consecutive ones, unless
/// `whole` forbids cuts; the last of them has room for others.
pub fn plan(layout: &Layout, ready: &[SpanId], caps: BucketCaps, whole: bool) -> Vec<Bucket> {
    plan_sliced(layout, ready, caps, caps.other, whole)
}

/// Plans buckets as [`plan`] does, with slices of at most `slice` bytes, or one [`BLOCK`] if that is more.
/// So the limit for cutting tensors may be smaller or larger than the cap for joining small ones.
pub fn plan_sliced(
    layout: &Layout,
    ready: &[SpanId],
    caps: BucketCaps,
    slice: usize,
    whole: bool,
) -> Vec<Bucket> {
    let kind = |id: &SpanId| layout.span(*id).spec.kind;
    let parameters = ready.iter().filter(|id| kind(id).is_trained());
    let statistics = ready.iter().filter(|id| kind(id) == Kind::Statistic);
    let order: Vec<SpanId> = parameters.chain(statistics).copied().collect();
    let bytes = |id: &SpanId| layout.span(*id).len * size_of::<f32>();

    // The last bucket takes from the end all spans that fit, but never the very first span.
    let mut tail = order.len();
    let mut size = 0;
    while tail > 1 && size + bytes(&order[tail - 1]) <= caps.first {
        tail -= 1;
        size += bytes(&order[tail]);
    }
    let longest = if whole { usize::MAX } else { (slice / size_of::<f32>() / BLOCK).max(1) * BLOCK };
    let mut buckets: Vec<Bucket> = Vec::new();
    for (index, id) in order.iter().enumerate() {
        let cap = if buckets.len() <= 1 { caps.first } else { caps.other };
        let fits = |bucket: &Bucket| bytes(id) <= slice.max(LEAST_SLICE) && bucket.bytes() + bytes(id) <= cap;
        let joins = |bucket: &Bucket| index > tail || (index < tail && fits(bucket));
        let len = layout.span(*id).len;
        match buckets.last_mut() {
            Some(bucket) if joins(bucket) => bucket.push(*id, 0..len),
            // A bucket for each slice, and one for a span of no elements.
            _ => (0..len.max(1)).step_by(longest).for_each(|start| {
                let mut bucket = Bucket { slices: Vec::new(), len: 0 };
                bucket.push(*id, start..len.min(start.saturating_add(longest)));
                buckets.push(bucket);
            }),
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_optim::ParamSpec;

    fn layout(lens: &[usize]) -> Layout {
        let spec = |(i, &len): (usize, &usize)| {
            ParamSpec::new(
                format!("p{i}"),
                vec![len],
                if i == 0 { Kind::Statistic } else { Kind::Parameter { decay: true } },
            )
        };
        Layout::new(lens.iter().enumerate().map(spec).collect())
    }

    fn ids(buckets: &[Bucket]) -> Vec<Vec<usize>> {
        buckets.iter().map(|bucket| bucket.slices.iter().map(|slice| slice.span.0).collect()).collect()
    }

    #[test]
    fn fills_from_the_end_with_a_small_first_and_a_small_last_bucket() {
        let layout = layout(&[5, 10, 30, 25, 200, 40, 10, 20]);
        let caps = BucketCaps { first: 30 * 4, other: 80 * 4 };
        let buckets = plan(&layout, &reversed(&layout), caps, false);
        assert_eq!(ids(&buckets), [vec![7, 6], vec![5], vec![4], vec![3, 2], vec![1, 0]]);
        assert_eq!(buckets.iter().map(|bucket| bucket.len).sum::<usize>(), layout.len());
        assert_eq!(buckets[4].slices[1], Slice { span: SpanId(0), elements: 0..5, offset: 10 });
    }

    #[test]
    fn cuts_what_is_larger_than_a_bucket() {
        let large = 2 * BLOCK + 5;
        let layout = layout(&[1, 10, large, 20, 10]);
        let caps = BucketCaps { first: 20 * 4, other: (BLOCK + 100) * 4 };
        let buckets = plan(&layout, &reversed(&layout), caps, false);
        assert_eq!(ids(&buckets), [vec![4], vec![3], vec![2], vec![2], vec![2], vec![1, 0]]);
        let cut: Vec<Range<usize>> = buckets[2..5].iter().map(|b| b.slices[0].elements.clone()).collect();
        assert_eq!(cut, [0..BLOCK, BLOCK..2 * BLOCK, 2 * BLOCK..large]);
        let wide = BucketCaps { other: 1 << 20, ..caps };
        assert_eq!(
            plan_sliced(&layout, &reversed(&layout), wide, 4 * BLOCK, false),
            buckets,
            "finer than the cap"
        );
        let none = BucketCaps { first: 4, other: 4 };
        let long = plan_sliced(&layout, &reversed(&layout), none, 4 * large, false);
        assert_eq!(ids(&long), [vec![4], vec![3], vec![2], vec![2], vec![1], vec![0]], "less finely");
        // The rest of a slice's bucket takes the spans that follow, if they are not the last ones.
        let caps = BucketCaps { first: 4 * 4, ..caps };
        assert_eq!(ids(&plan(&layout, &reversed(&layout), caps, false))[4..], [vec![2, 1], vec![0]]);
    }
}
