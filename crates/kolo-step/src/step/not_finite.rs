//! Values that are not finite: what a step looks at, and the error that all ranks return.

use super::Step;
use super::finiteness::{Culprit, SumSeen};
use kolo_optim::{Kind, SpanId};
use kolo_reduction::{Error, Origin};

impl Step {
    /// Checks the values of a statistic that this rank alone has computed in the current pass.
    pub fn look_at_statistic(&mut self, id: SpanId, values: &[f32]) {
        self.incoming.watch.look(Kind::Statistic, id, self.pass.shard.number, f32::INFINITY, values);
    }

    /// Upper bound of a contribution to a tensor that is used `uses` times in a shard.
    pub(super) fn limit(&self, uses: u32) -> f32 {
        self.incoming.limits.of(uses)
    }

    /// Returns the error, the same on all ranks, after the agreement that a contribution is not finite.
    /// Belongs to `Reducing`.
    pub(super) fn contribution_not_finite(&self, step: u64) -> Result<Error, Error> {
        let rank = self.ranks.group.rank();
        let own = self.incoming.watch.first;
        let own = own.map(|(SpanId(span), shard, value)| Culprit { span, shard, rank, value });
        let all = match self.options.synchronize {
            true => self.ranks.group.all_gather_value::<_, Option<Culprit>>(&own)?,
            false => vec![own],
        };
        let first = all.into_iter().flatten().min_by_key(|culprit| (culprit.span, culprit.shard));
        let Some(Culprit { span, shard, rank, value }) = first else { return Err(Error::Lost) };
        let origin = Origin::Shard { shard, rank };
        Ok(self.not_finite_in(step, SpanId(span), f64::from(value), origin))
    }

    /// Waits for the reduced gradient and checks what this rank steps of it. Belongs to `Reducing`. Fails if
    /// a collective fails (naming the rank).
    pub fn look_at_sum(&mut self) -> Result<SumSeen, Error> {
        let mut seen = SumSeen::default();
        for bucket in self.order() {
            // The result borrows the whole step for the bucket's lifetime, so the layout is cloned first.
            let layout = self.layout.clone();
            let (slices, reduced) = self.collect_own(bucket)?;
            let gradient = reduced.result();
            for slice in slices {
                seen.see(layout.span(slice.span).spec.kind, slice, &gradient[slice.range()]);
            }
        }
        Ok(seen)
    }

    /// Returns the error of a step whose checked reduced gradient is not finite.
    pub fn refuse_sum(&self, step: u64, seen: SumSeen) -> Result<(), Error> {
        match seen.first() {
            Some((id, value)) => Err(self.not_finite_in(step, id, f64::from(value), Origin::Sum)),
            None => Ok(()),
        }
    }

    fn not_finite_in(&self, step: u64, id: SpanId, value: f64, origin: Origin) -> Error {
        let spec = &self.layout.span(id).spec;
        match spec.kind {
            Kind::Statistic => {
                Error::StatisticNotFinite { step, statistic: spec.name.clone(), value, origin }
            }
            Kind::Parameter { .. } | Kind::Frozen => {
                Error::GradientNotFinite { step, parameter: spec.name.clone(), value, origin }
            }
        }
    }
}
