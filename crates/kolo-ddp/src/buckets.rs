//! Which spans are reduced together.
//!
//! The backward pass computes the last layers' gradients first, so buckets are filled from the end of the model.
//! The first one is small: it starts communication early. The others are as large as the cap allows, because every
//! reduction costs its latency (Li et al. 2020, "PyTorch Distributed", section 3.2.3). The last one is small again: when
//! its gradients are ready the backward pass is over, so nothing is left to hide its reduction behind.

use std::ops::Range;

use kolo_comm::Group;

use crate::layout::{Kind, Layout, SpanId};

/// How large buckets may be, in bytes of `f32`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketCaps {
    /// The first and the last bucket.
    pub first: usize,
    /// All others.
    pub other: usize,
}

impl BucketCaps {
    /// 1 MiB for the first and the last, `mib` MiB for the others (and for those two, if that is less).
    pub fn of_mib(mib: f64) -> Self {
        const MIB: f64 = 1024.0 * 1024.0;
        BucketCaps { first: (mib.min(1.0) * MIB) as usize, other: (mib * MIB) as usize }
    }

    /// What suits a group. Within one host, and wherever reductions take little of a backward pass, few large buckets: 25
    /// MiB. Over sockets the wire is the narrow place and buckets overtake one another, which small ones can do sooner: 2
    /// MiB, 17 ms at 1 Gbit/s, still many times what a reduction costs by itself.
    pub fn for_group(group: &Group) -> Self {
        Self::of_mib(if group.transport().contains("tcp") { 2.0 } else { 25.0 })
    }
}

/// A run of spans reduced by one collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its spans and where each begins in the bucket, in elements.
    pub spans: Vec<(SpanId, usize)>,
    /// Number of elements.
    pub len: usize,
}

impl Bucket {
    /// Its spans and which elements of the bucket they are.
    pub fn ranges(&self, layout: &Layout) -> impl Iterator<Item = (SpanId, Range<usize>)> {
        self.spans.iter().map(|&(id, offset)| (id, offset..offset + layout.span(id).len))
    }
}

/// The order in which gradients are expected before the first backward pass has shown it: the model's, reversed.
pub(crate) fn reversed(layout: &Layout) -> Vec<SpanId> {
    (0..layout.spans().len()).rev().map(SpanId).collect()
}

/// Fills buckets with spans in the order in which they become ready. Statistics come last of all: they are known
/// only when a pass is over.
///
/// A span larger than the cap gets a bucket of its own. Every span is in exactly one bucket.
pub fn plan(layout: &Layout, ready: &[SpanId], caps: BucketCaps) -> Vec<Bucket> {
    let statistic = |id: &&SpanId| layout.span(**id).spec.kind == Kind::Statistic;
    let parameters = ready.iter().filter(|id| !statistic(id));
    let order: Vec<SpanId> = parameters.chain(ready.iter().filter(statistic)).copied().collect();
    let bytes = |id: &SpanId| layout.span(*id).len * size_of::<f32>();

    // The last bucket takes from the end what fits; the one span that comes first never belongs to it.
    let mut tail = order.len();
    let mut size = 0;
    while tail > 1 && size + bytes(&order[tail - 1]) <= caps.first {
        tail -= 1;
        size += bytes(&order[tail]);
    }
    let mut buckets: Vec<Bucket> = Vec::new();
    for (index, id) in order.iter().enumerate() {
        let cap = if buckets.len() <= 1 { caps.first } else { caps.other };
        match buckets.last_mut().filter(|_| index != tail) {
            Some(bucket) if index > tail || bucket.len * size_of::<f32>() + bytes(id) <= cap => {
                bucket.spans.push((*id, bucket.len));
                bucket.len += layout.span(*id).len;
            }
            _ => buckets.push(Bucket { spans: vec![(*id, 0)], len: layout.span(*id).len }),
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::ParamSpec;

    fn layout(lens: &[usize]) -> Layout {
        let spec = |(i, &len): (usize, &usize)| ParamSpec {
            name: format!("p{i}"),
            shape: vec![len],
            kind: if i == 0 { Kind::Statistic } else { Kind::Parameter { decay: true } },
        };
        Layout::new(lens.iter().enumerate().map(spec).collect())
    }

    #[test]
    fn fills_from_the_end_with_a_small_first_and_a_small_last_bucket() {
        let layout = layout(&[5, 10, 30, 25, 200, 40, 10, 20]);
        let caps = BucketCaps { first: 30 * 4, other: 80 * 4 };
        let buckets = plan(&layout, &reversed(&layout), caps);
        let ids: Vec<Vec<usize>> =
            buckets.iter().map(|bucket| bucket.spans.iter().map(|(id, _)| id.0).collect()).collect();
        assert_eq!(ids, [vec![7, 6], vec![5], vec![4], vec![3, 2], vec![1, 0]]);
        assert_eq!(buckets.iter().map(|bucket| bucket.len).sum::<usize>(), layout.len());
        assert_eq!(buckets[4].spans[1], (SpanId(0), 10));
    }
}
