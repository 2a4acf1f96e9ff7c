//! How a bucket's summed gradient changes the values.

use std::ops::Range;

use super::undo::Undo;
use crate::buckets::{Bucket, Slice};
use crate::layout::{Kind, Layout};
use crate::optimizer::Optimizer;

/// What an update touches.
pub(super) struct Update<'a> {
    pub(super) layout: &'a Layout,
    pub(super) values: &'a mut [f32],
    pub(super) undo: Option<&'a mut Undo>,
    pub(super) optimizer: &'a mut dyn Optimizer,
}

impl Update<'_> {
    pub(super) fn bucket(&mut self, bucket: &Bucket, gradient: &[f32], scale: f64, clip: f64) {
        for slice in &bucket.slices {
            self.slice(slice, &gradient[slice.range()], scale, clip);
        }
    }

    fn slice(&mut self, slice: &Slice, gradient: &[f32], scale: f64, clip: f64) {
        let span = self.layout.span(slice.span);
        let start = span.offset + slice.elements.start;
        let mut update = |range: Range<usize>, values: &mut [f32]| {
            let gradient = &gradient[range.start - start..range.end - start];
            match span.spec.kind {
                Kind::Parameter { decay } => {
                    self.optimizer.update(range, values, gradient, (scale * clip) as f32, decay);
                }
                Kind::Statistic => {
                    let scale = scale as f32;
                    values.iter_mut().zip(gradient).for_each(|(value, change)| *value += change * scale);
                }
            }
        };
        match &mut self.undo {
            Some(undo) => undo.update(slice, self.values, update),
            None => {
                let range = start..start + slice.elements.len();
                update(range.clone(), &mut self.values[range]);
            }
        }
    }
}
