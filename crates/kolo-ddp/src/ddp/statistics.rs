//! Changes of a model's statistics by the forward passes of the shards.

use crate::shard_pass::{Access, ShardPass};
use kolo_optim::{Kind, Layout, SpanId};
use kolo_sync::Statistics;

/// Reports how far each shard's forward pass has moved the statistics.
///
/// Every shard starts from the same statistics, and the step moves them by the weighted mean. With
/// [`Statistics::Local`], the next shard of this rank continues from the statistics of this one.
pub(super) struct StatisticsReport {
    spans: Vec<SpanId>,
    policy: Statistics,
}

impl StatisticsReport {
    pub(super) fn new(layout: &Layout, policy: Statistics) -> Self {
        let spans = (0..layout.spans().len()).map(SpanId);
        let spans = spans.filter(|id| layout.span(*id).spec.kind == Kind::Statistic).collect();
        StatisticsReport { spans, policy }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Reports `moved`: the statistics after the forward pass, one after another.
    pub(super) fn report(
        &self,
        layout: &Layout,
        pass: &mut ShardPass<impl Access>,
        mut moved: &[f32],
        count: f64,
    ) {
        for &id in &self.spans {
            let (end, rest) = moved.split_at(layout.span(id).len);
            moved = rest;
            let change: Option<Vec<f32>> = pass.with_replica(|replica| {
                let start = replica.latest(id);
                if end == start {
                    return None;
                }
                if self.policy == Statistics::Local {
                    replica.keep_statistic(id, end);
                    return None;
                }
                Some(end.iter().zip(start).map(|(end, start)| (end - start) * count as f32).collect())
            });
            if let Some(change) = change {
                pass.ready(id, &change);
            }
        }
    }
}
