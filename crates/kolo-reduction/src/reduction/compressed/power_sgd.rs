//! Matrices of low rank, computed by one step of the power method.
//!
//! A tensor is a matrix: its outer axes in memory, and the others. For shard i, Mᵢ = gᵢ + C·eᵢ in a step of
//! C samples ([`feedback`](super::feedback)). The shard sends Pᵢ = MᵢQ, with the Q of the last step; P = ΣPᵢ
//! is made orthonormal; it sends Qᵢ = MᵢᵀP; Q = ΣQᵢ; the optimizer sees PQᵀ = PPᵀΣMᵢ. Both sums are linear,
//! so they are added on their way, in tree order. On the wire 4r(n+m) bytes for n·m elements, for any number
//! of shards.
//!
//! A shard keeps eᵢ = (Mᵢ − PQᵢᵀ)/C. The paper's Mᵢ − M̂ has the same sum over the shards, and only that sum
//! has an effect. This one is shorter, and less is lost with a shard's state.

use std::ops::Range;

use kolo_comm::schedule::{Travel, WireCost};
use kolo_comm::{Error as CommError, Group};

use super::feedback::{keep, keep_more, recall};
use super::matrix::{add_products, orthonormalize, shape, times, transposed_times};
use super::parts::Parts;
use super::{Compressed, Compressor, DENSE_BELOW, SEED, Shard, Wire, key};
use crate::buckets::Slice;
use crate::error::Error;
use crate::reduction::interface::{Context, Reducer, Reduction};
use crate::shard_sum::ShardSum;
use kolo_optim::Settings;
use kolo_optim::table::{Entry, Setting};
use kolo_optim::typed_settings;
use kolo_optim::{Layout, Span};

pub(in crate::reduction) const ENTRY: Entry<dyn Reducer> = Entry {
    name: "powersgd",
    about: "matrices of low rank with error feedback for each shard (Vogels et al. 2019, algorithms 1 and 2)",
    settings: &[
        Setting::whole("rank", 4, 1..65, "Rank of the matrices that travel"),
        Setting::number("min_rate", 2.0, 1.0..f64::INFINITY, "Matrices that shrink less travel as they are"),
        DENSE_BELOW,
        SEED,
    ],
    make: |settings| Box::new(PowerSgd::read(settings)),
};

typed_settings! {
    /// Matrices of low rank (`powersgd`).
    pub struct PowerSgd of ENTRY: dyn Reducer {
        /// Rank of what is sent of a matrix.
        rank: u64,
        /// Matrices that shrink less travel as they are.
        min_rate: f64,
        /// Tensors of fewer elements travel as they are.
        dense_below: u64,
        /// Seed of the random numbers.
        seed: u64,
    }
}

impl Reducer for PowerSgd {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn settings(&self) -> Settings {
        PowerSgd::settings(self)
    }

    fn wire_cost(&self) -> Option<WireCost> {
        Some(WireCost { travel: Travel::Summed { rounds: 2 }, bytes_per_element: None, is_exact: false })
    }

    fn shard_state(&self) -> &'static [&'static str] {
        &["mean_residual"]
    }

    fn common_state(&self) -> &'static [&'static str] {
        &["right_factor"]
    }

    fn needs_whole_tensors(&self) -> bool {
        true
    }

    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        let PowerSgd { rank, min_rate, dense_below, seed } = *self;
        let gains_nothing = |span: &Span| {
            let (n, m) = shape(span);
            (n + m) as f64 * rank as f64 * min_rate >= (n * m) as f64
        };
        let parts = Parts::new(context, dense_below, gains_nothing);
        let matrices = Matrices::new(&parts.compressed, context.layout, rank as usize);
        let shards = context.assignment.shards.clone();
        let low_rank = LowRank::new(context.group, matrices, seed, context.bucket.len, shards)?;
        Compressed::build(context, parts, low_rank)
    }
}

/// One tensor as a matrix.
struct Matrix {
    slice: Slice,
    /// Rows and columns.
    shape: (usize, usize),
    /// Ranges of its vectors among those on the left and on the right of all matrices.
    left: Range<usize>,
    right: Range<usize>,
}

/// The matrices of one bucket, and the total lengths of their vectors.
struct Matrices {
    all: Vec<Matrix>,
    left: usize,
    right: usize,
}

impl Matrices {
    fn new(tensors: &[Slice], layout: &Layout, rank: usize) -> Self {
        let mut matrices = Matrices { all: Vec::new(), left: 0, right: 0 };
        for slice in tensors {
            let (n, m) = shape(layout.span(slice.span));
            let (left, right) = (matrices.left + rank * n, matrices.right + rank * m);
            matrices.all.push(Matrix {
                slice: slice.clone(),
                shape: (n, m),
                left: matrices.left..left,
                right: matrices.right..right,
            });
            (matrices.left, matrices.right) = (left, right);
        }
        matrices
    }
}

/// The matrices of one bucket in low rank.
struct LowRank {
    matrices: Matrices,
    seed: u64,
    /// For each of this rank's shards: eᵢ.
    residuals: Vec<Vec<f32>>,
    /// For each of this rank's shards: gᵢ, then Mᵢ.
    gradients: Vec<Vec<f32>>,
    /// Samples of the current step.
    samples: f32,
    /// ΣPᵢ, then P.
    left: ShardSum,
    /// ΣQᵢ.
    right: ShardSum,
    /// The vectors with which the next step multiplies, as they were summed in the last one. Those of each
    /// matrix lie at the beginning of its range in the bucket, because a state has one value for each
    /// element.
    warm: Vec<f32>,
    /// Those vectors of all matrices one after another, for the current step.
    factors: Vec<f32>,
    /// The step to which they belong.
    step: Option<u64>,
    /// Vectors of one shard.
    vectors: Vec<f32>,
}

impl LowRank {
    fn new(
        group: &Group,
        matrices: Matrices,
        seed: u64,
        len: usize,
        shards: Range<usize>,
    ) -> Result<Self, Error> {
        Ok(LowRank {
            seed,
            residuals: vec![vec![0.0; len]; shards.len()],
            gradients: vec![vec![0.0; len]; shards.len()],
            samples: 0.0,
            left: ShardSum::new(group, matrices.left, shards.clone())?,
            right: ShardSum::new(group, matrices.right, shards)?,
            warm: vec![0.0; len],
            factors: vec![0.0; matrices.right],
            step: None,
            vectors: Vec::new(),
            matrices,
        })
    }

    /// Copies the vectors of the last step. Random ones, the same on all ranks, replace those that are zero,
    /// as all are before the first step.
    fn begin(&mut self, step: u64) {
        if self.step.replace(step) == Some(step) {
            return;
        }
        for Matrix { slice, shape: (_, m), right, .. } in &self.matrices.all {
            let factors = &mut self.factors[right.clone()];
            factors.copy_from_slice(&self.warm[slice.range()][..right.len()]);
            let key = key::of_block(self.seed, step, slice.span, 0);
            for (k, vector) in (0u64..).zip(factors.chunks_exact_mut(*m)) {
                if vector.iter().all(|x| *x == 0.0) {
                    let key = key.with(k);
                    (0u64..).zip(vector).for_each(|(j, x)| *x = key.with(j).normal() as f32);
                }
            }
        }
    }
}

impl Compressor for LowRank {
    fn bytes(&self) -> usize {
        4 * (self.matrices.left + self.matrices.right)
    }

    fn take(&mut self, shard: Shard, gradient: &mut Vec<f32>) {
        std::mem::swap(&mut self.gradients[shard.own], gradient);
    }

    fn exchange(&mut self, wire: &Wire<'_>) -> Result<(), CommError> {
        self.begin(wire.step);
        self.samples = wire.samples;
        let LowRank { matrices, residuals, gradients, left, right, factors, vectors, samples, .. } = self;
        vectors.resize(matrices.left, 0.0);
        for ((shard, gradient), residual) in
            wire.assignment.shards.clone().zip(&mut *gradients).zip(&*residuals)
        {
            for Matrix { slice, shape, left: p, right: q, .. } in &matrices.all {
                let (gradient, residual) = (&mut gradient[slice.range()], &residual[slice.range()]);
                match *samples > 0.0 {
                    true => recall(gradient, residual, *samples),
                    // Nothing will be applied, so zeros are sent, and the state stays.
                    false => gradient.fill(0.0),
                }
                times(gradient, *shape, &factors[q.clone()], &mut vectors[p.clone()]);
            }
            left.put(0, vectors, true);
            left.end_shard(shard);
        }
        wire.sum(left, matrices.left)?;
        let left = left.result();
        for matrix in &matrices.all {
            orthonormalize(&mut left[matrix.left.clone()], matrix.shape.0);
        }
        vectors.resize(matrices.right, 0.0);
        for ((shard, gradient), residual) in wire.assignment.shards.clone().zip(gradients).zip(residuals) {
            for Matrix { slice, shape, left: p, right: q, .. } in &matrices.all {
                let (gradient, p, q) =
                    (&mut gradient[slice.range()], &left[p.clone()], &mut vectors[q.clone()]);
                transposed_times(gradient, *shape, p, q);
                add_products(gradient, *shape, -1.0, p, q);
                if *samples > 0.0 {
                    keep(&mut residual[slice.range()], gradient, *samples);
                }
            }
            right.put(0, vectors, true);
            right.end_shard(shard);
        }
        wire.sum(right, matrices.right)
    }

    fn decompress(&mut self, gradient: &mut [f32]) {
        let LowRank { matrices, left, right, warm, samples, .. } = self;
        let (left, right) = (left.result(), right.result());
        for Matrix { slice, shape, left: p, right: q, .. } in &matrices.all {
            let (p, q) = (&left[p.clone()], &right[q.clone()]);
            let gradient = &mut gradient[slice.range()];
            gradient.fill(0.0);
            add_products(gradient, *shape, 1.0, p, q);
            if *samples > 0.0 {
                warm[slice.range()][..q.len()].copy_from_slice(q);
            }
        }
    }

    fn keeps_late(&self) -> bool {
        true
    }

    fn keep_late(&mut self, own: usize, offset: usize, gradient: &[f32]) {
        if self.samples > 0.0 {
            keep_more(&mut self.residuals[own][offset..offset + gradient.len()], gradient, self.samples);
        }
    }

    fn reset(&mut self) {
        self.left.reset();
        self.right.reset();
    }

    fn shard_state(&mut self) -> Vec<&mut [Vec<f32>]> {
        vec![&mut self.residuals]
    }

    fn common_state(&mut self) -> Vec<&mut [f32]> {
        // The next step begins with the state that is set here, also if that step has the same number.
        self.step = None;
        vec![&mut self.warm]
    }
}

#[cfg(test)]
mod tests {
    use kolo_comm::Rank;
    use kolo_optim::norm::sum_of_squares;
    use kolo_optim::{Kind, ParamSpec, SpanId};

    use super::*;
    use crate::reduction::interface::FinishedShard;
    use kolo_sampler::Assignment;

    const SHAPE: (usize, usize) = (30, 48);
    const LEN: usize = SHAPE.0 * SHAPE.1;

    fn low_rank(rank: usize, shards: usize) -> (LowRank, Assignment) {
        let spec = ParamSpec::new("matrix", vec![SHAPE.0, SHAPE.1], Kind::Parameter { decay: true });
        let tensor = Slice { span: SpanId(0), elements: 0..LEN, offset: 0 };
        let matrices = Matrices::new(&[tensor], &Layout::new(vec![spec]), rank);
        let low_rank = LowRank::new(&Group::alone(), matrices, 3, LEN, 0..shards).unwrap();
        (low_rank, Assignment::new(&[shards], Rank(0)))
    }

    /// Runs a step with these gradients of the shards; returns the reduced one.
    fn step(low_rank: &mut LowRank, assignment: &Assignment, step: u64, gradients: &[Vec<f32>]) -> Vec<f32> {
        for (number, gradient) in gradients.iter().enumerate() {
            let finished = FinishedShard { number, step, count: 1.0 };
            low_rank.take(Shard { finished, own: number }, &mut gradient.clone());
        }
        low_rank.exchange(&Wire { stages: None, assignment, step, samples: 1.0 }).unwrap();
        let mut seen = vec![0.0; LEN];
        low_rank.decompress(&mut seen);
        low_rank.reset();
        seen
    }

    fn noise(seed: usize, i: usize) -> f32 {
        ((seed * 7_919 + i * 104_729 + 13) as f32 * 0.37).sin()
    }

    /// Σ aₖbₖᵀ of `rank` products, each smaller than the one before.
    fn of_rank(rank: usize, seed: usize) -> Vec<f32> {
        let vectors =
            |len: usize, seed: usize| -> Vec<f32> { (0..rank * len).map(|i| noise(seed, i)).collect() };
        let (left, mut right) = (vectors(SHAPE.0, seed), vectors(SHAPE.1, seed + 1));
        right.chunks_mut(SHAPE.1).zip(1..).for_each(|(vector, k)| {
            vector.iter_mut().for_each(|x| *x /= k as f32);
        });
        let mut matrix = vec![0.0; LEN];
        add_products(&mut matrix, SHAPE, 1.0, &left, &right);
        matrix
    }

    fn distance(a: &[f32], b: &[f32]) -> f64 {
        let difference: Vec<f32> = a.iter().zip(b).map(|(a, b)| a - b).collect();
        sum_of_squares(&difference).sqrt()
    }

    #[test]
    fn a_matrix_of_that_rank_is_sent_whole() {
        let (mut low_rank, assignment) = low_rank(3, 2);
        let gradients = [of_rank(1, 1), of_rank(2, 5)];
        let sum: Vec<f32> = gradients[0].iter().zip(&gradients[1]).map(|(a, b)| a + b).collect();
        let seen = step(&mut low_rank, &assignment, 0, &gradients);
        assert!(distance(&seen, &sum) < 1e-5 * sum_of_squares(&sum).sqrt());
    }

    /// Both products are linear in the gradients, so many shards yield the same as one with their sum.
    #[test]
    fn many_shards_are_one_with_their_sum_and_nothing_is_lost() {
        let (mut many, apart) = low_rank(2, 3);
        let (mut one, together) = low_rank(2, 1);
        let (mut applied, mut computed) = (vec![0.0f64; LEN], vec![0.0f64; LEN]);
        for n in 0..20 {
            let gradients: Vec<Vec<f32>> =
                (0..3).map(|shard| (0..LEN).map(|i| noise(n * 3 + shard, i)).collect()).collect();
            let sum: Vec<f32> = (0..LEN).map(|i| gradients.iter().map(|g| g[i]).sum()).collect();
            let seen = step(&mut many, &apart, n as u64, &gradients);
            let expected = step(&mut one, &together, n as u64, std::slice::from_ref(&sum));
            assert!(distance(&seen, &expected) < 2e-3 * sum_of_squares(&expected).sqrt(), "step {n}");
            applied.iter_mut().zip(&seen).for_each(|(sum, x)| *sum += f64::from(*x));
            computed.iter_mut().zip(&sum).for_each(|(sum, x)| *sum += f64::from(*x));
        }
        let kept = |i: usize| many.residuals.iter().map(|residual| f64::from(residual[i])).sum::<f64>();
        assert!((0..LEN).all(|i| (applied[i] + kept(i) - computed[i]).abs() < 1e-3));
    }

    /// ‖M − M̂‖² = ‖M‖² − ‖PᵀM‖², and with warm starts M̂ converges to the best approximation of that rank.
    #[test]
    fn the_error_is_what_the_projection_leaves_and_warm_starts_find_the_best_one() {
        let (mut low_rank, assignment) = low_rank(2, 1);
        // Without feedback: the same matrix again and again, whose third product is the smallest.
        let matrix = of_rank(3, 7);
        let mut errors = Vec::new();
        for n in 0..30 {
            low_rank.residuals[0].fill(0.0);
            let seen = step(&mut low_rank, &assignment, n, std::slice::from_ref(&matrix));
            let error = distance(&seen, &matrix);
            let projected = sum_of_squares(&low_rank.right.result()[..2 * SHAPE.1]);
            let expected = sum_of_squares(&matrix) - projected;
            assert!((error * error - expected).abs() < 1e-3 * sum_of_squares(&matrix), "step {n}");
            errors.push(error);
        }
        // It has converged.
        assert!(errors[29] <= errors[0] && (errors[29] - errors[20]).abs() < 1e-3 * errors[29], "{errors:?}");
        // PᵀP = I.
        let left = low_rank.left.result()[..2 * SHAPE.0].to_vec();
        let mut products = [0.0; 4];
        times(&left, (2, SHAPE.0), &left, &mut products);
        assert!(products.iter().zip([1.0, 0.0, 0.0, 1.0]).all(|(x, one)| (x - one).abs() < 1e-6));
    }

    #[test]
    fn a_gradient_of_zeros_is_seen_as_zeros_and_does_not_end_the_matrix() {
        let (mut low_rank, assignment) = low_rank(2, 1);
        assert!(step(&mut low_rank, &assignment, 0, &[vec![0.0; LEN]]).iter().all(|x| *x == 0.0));
        let gradient = of_rank(2, 9);
        let seen = step(&mut low_rank, &assignment, 1, std::slice::from_ref(&gradient));
        assert!(distance(&seen, &gradient) < 1e-4 * sum_of_squares(&gradient).sqrt());
    }
}
