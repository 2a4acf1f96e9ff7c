//! Muon: momentum with orthogonalized matrices; AdamW for all other tensors.

mod matrix;
mod newton_schulz;
mod product;

use crate::adam_rule::{AdamRule, AdamSettings, BETA1, BETA2, EPSILON, WeightDecay};
use crate::layout::Layout;
use crate::optimizer::{Optimizer, Scope, Update, UsualRates};
use crate::rule::{Rule, optimizer};
use crate::table::{Entry, Setting};
use matrix::Matrix;
use newton_schulz::NewtonSchulz;

pub(crate) const ENTRY: Entry<dyn Optimizer> = Entry {
    name: "muon",
    about: "Muon, orthogonalized momentum for matrices, AdamW for all else (Jordan et al. 2024; see --group)",
    settings: &[
        Setting::number("weight_decay", 0.1, 0.0..f64::INFINITY, "Weight decay"),
        Setting::number("momentum", 0.95, 0.0..1.0, "Momentum; 0 is none"),
        Setting::flag("nesterov", "Nesterov's form of momentum").on(),
        Setting::flag(
            "match_rms_adamw",
            "Steps as long as AdamW's, so that its rates fit; else the author's length",
        )
        .on(),
        Setting::flag("inputs_first", "Matrices are inputs × outputs, as those of Burn's linear layers"),
        Setting::flag("adamw", "AdamW also for matrices; for groups: embeddings and the last layer"),
        BETA1,
        BETA2,
        EPSILON,
    ],
    make: |settings| {
        optimizer(&ENTRY, settings, |scale, settings| MuonRule::new(scale, Muon::read(settings)))
    },
};

typed_settings! {
    /// Settings of Muon (`muon`).
    pub struct Muon of ENTRY: dyn Optimizer {
        /// Weight decay λ.
        weight_decay: f32,
        /// Momentum μ; 0 is none.
        momentum: f32,
        /// Nesterov's form of momentum.
        nesterov: bool,
        /// Steps as long as AdamW's; else of the author's length.
        match_rms_adamw: bool,
        /// Matrices are inputs × outputs, as those of Burn's linear layers.
        inputs_first: bool,
        /// AdamW for matrices, too.
        adamw: bool,
        /// Decay β₁ of AdamW's first moment.
        beta1: f32,
        /// Decay β₂ of AdamW's second moment.
        beta2: f32,
        /// Number ε, added to the root of AdamW's second moment.
        epsilon: f32,
    }
}

/// For each tensor of at least two dimensions, as a matrix ([`Matrix`]) of r rows and c columns: B = μB +
/// (1−μ)g; O = NS(B), or with Nesterov NS(μB + (1−μ)g); θ −= η·λ·θ; θ −= η·s·O. NS is five steps of the
/// Newton-Schulz iteration, which brings all singular values near 1 ([`NewtonSchulz`]). All as in PyTorch's
/// `torch.optim.Muon`, except that NS computes in f32.
///
/// s compensates for the matrix's shape. By default s = 0.2·√max(r, c), which makes a step as long as AdamW's
/// (Liu et al. 2025, section 2.2). Without `match_rms_adamw` s = √max(1, r/c) with r outputs and c inputs,
/// which is the author's and PyTorch's choice. The default is the same for a transposed matrix, and thus for
/// libraries that lay out matrices as inputs × outputs.
///
/// AdamW steps tensors of fewer than two dimensions, and groups with `adamw`. The author recommends the
/// latter for embeddings and the last layer.
///
/// Memory: `momentum` (B, or AdamW's first moment), `second_moment` (0 for matrices), and the buffers of
/// [`NewtonSchulz`] for the largest matrix.
struct MuonRule {
    settings: Muon,
    adamw: AdamRule,
    lr_scale: f64,
    /// η of the step
    rate: f64,
}

impl MuonRule {
    fn new(lr_scale: f64, settings: Muon) -> Self {
        let Muon { weight_decay, beta1, beta2, epsilon, .. } = settings;
        let adamw = AdamSettings { weight_decay, beta1, beta2, epsilon, freeze_after: 0 };
        let adamw = AdamRule::new(WeightDecay::Decoupled, lr_scale, adamw);
        MuonRule { settings, adamw, lr_scale, rate: 0.0 }
    }

    /// Returns s of a matrix.
    fn adjustment(&self, matrix: &Matrix) -> f64 {
        let (rows, columns) = (matrix.rows as f64, matrix.columns as f64);
        let is_transposed = self.settings.inputs_first && !matrix.is_kernel;
        match (self.settings.match_rms_adamw, is_transposed) {
            (true, _) => 0.2 * rows.max(columns).sqrt(),
            (false, false) => (rows / columns).max(1.0).sqrt(),
            (false, true) => (columns / rows).max(1.0).sqrt(),
        }
    }

    fn step_matrix(
        &self,
        update: Update<'_>,
        matrix: &Matrix,
        momentum: &mut [f32],
        iteration: &mut NewtonSchulz,
    ) {
        let Update { parameters, gradient, scale, decay, .. } = update;
        let Muon { weight_decay, momentum: mu, nesterov, .. } = self.settings;
        let (rows, columns) = matrix.sides();
        iteration.x.resize(rows * columns, 0.0);
        for (range, place, distance) in matrix.runs() {
            let places = iteration.x[place..].iter_mut().step_by(distance);
            for ((x, b), g) in places.zip(&mut momentum[range.clone()]).zip(&gradient[range]) {
                let g = g * scale;
                *b = mu * *b + (1.0 - mu) * g;
                *x = if nesterov { mu * *b + (1.0 - mu) * g } else { *b };
            }
        }
        iteration.run(rows, columns);
        let weight_decay = if decay { f64::from(weight_decay) } else { 0.0 };
        let (left, rate) =
            ((1.0 - self.rate * weight_decay) as f32, (self.rate * self.adjustment(matrix)) as f32);
        for (range, place, distance) in matrix.runs() {
            let places = iteration.x[place..].iter().step_by(distance);
            parameters[range].iter_mut().zip(places).for_each(|(p, o)| *p = *p * left - rate * *o);
        }
    }
}

/// Scratch memory that the rules of all groups share.
#[derive(Default)]
struct Matrices {
    /// Offset in flat memory of each trained matrix, in ascending order.
    places: Vec<(usize, Matrix)>,
    iteration: NewtonSchulz,
}

impl Rule<2> for MuonRule {
    type Scratch = Matrices;

    const SCOPE: Scope = Scope::Tensor;
    const STATE: [&'static str; 2] = ["momentum", "second_moment"];
    const USUAL_RATES: Option<UsualRates> = Some(UsualRates {
        least: 1e-6,
        most: 0.2,
        source: "A step of Muon is orthogonal, of the rate's size in every direction; 0.02 is usual (Jordan et al. 2024)",
    });

    fn scratch(layout: &Layout) -> Matrices {
        let trained = layout.spans().iter().filter(|span| span.spec.kind.is_trained());
        let places = trained.filter_map(|span| Some((span.offset, Matrix::of(span)?))).collect();
        Matrices { places, iteration: NewtonSchulz::default() }
    }

    fn begin(&mut self, step: u64, learning_rate: f64) {
        self.adamw.begin(step, learning_rate);
        self.rate = learning_rate * self.lr_scale;
    }

    fn update(&self, update: Update<'_>, state: [&mut [f32]; 2], matrices: &mut Matrices) {
        // A tensor without elements has the offset of the next one, which may be a matrix.
        if update.range.is_empty() {
            return;
        }
        let Matrices { places, iteration } = matrices;
        match places.binary_search_by_key(&update.range.start, |(offset, _)| *offset) {
            Ok(n) if !self.settings.adamw => {
                let [momentum, _] = state;
                self.step_matrix(update, &places[n].1, momentum, iteration);
            }
            _ => self.adamw.update(update, state, &mut ()),
        }
    }
}
