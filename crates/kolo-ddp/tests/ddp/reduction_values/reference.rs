//! The references: every shard's arithmetic in plain loops in double precision.

/// Steps in which 1-bit Adam sums exactly, and over which the density of DGC falls; as in
/// `lively_reduction`, with its other settings below.
pub const WARM_UP: usize = 2;
const DENSITY: f64 = 0.1;
const DGC_MOMENTUM: f64 = 0.9;
const QSGD_LEVELS: f64 = 7.0;
const BETA: (f64, f64) = (0.9, 0.999);
const EPSILON: f64 = 0.1;

/// A reduction's treatment of a tensor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Method {
    Sum,
    /// Each shard's part and the sum are rounded to this number of bits after the first.
    Rounded(i32),
    Qsgd,
    EfSign,
    TopK,
    RandomK,
    Dgc,
    PowerSgd,
    OnebitAdam,
}

impl Method {
    pub fn of(name: &str, is_statistic: bool, shape: &[usize]) -> Method {
        match name {
            _ if is_statistic => Method::Sum,
            "sum" => Method::Sum,
            "bf16" => Method::Rounded(7),
            "f16" => Method::Rounded(10),
            "qsgd" => Method::Qsgd,
            "ef-sign" => Method::EfSign,
            "top-k" => Method::TopK,
            "random-k" => Method::RandomK,
            "dgc" => Method::Dgc,
            // A vector has no lower rank.
            "powersgd" if shape.len() < 2 => Method::Sum,
            "powersgd" => Method::PowerSgd,
            "onebit-adam" => Method::OnebitAdam,
            other => panic!("the reduction {other} has no reference; write it here"),
        }
    }
}

/// The expected state of one tensor.
pub struct Shadow {
    method: Method,
    is_adam: bool,
    step: usize,
    values: Vec<f64>,
    /// The replica's values after the last step.
    seen: Vec<f64>,
    /// Permitted error of the values, if a method does not determine them.
    slack: Vec<f64>,
    /// State of each shard, as a part of the mean: e, or u and v of DGC.
    kept: Vec<Vec<f64>>,
    velocity: Vec<Vec<f64>>,
    /// 1-bit Adam: the error of the owner, and m of all ranks.
    server: Vec<f64>,
    momentum: Vec<f64>,
    /// Adam's own moments.
    moments: (Vec<f64>, Vec<f64>),
}

fn sign(x: f64) -> f64 {
    if x >= 0.0 { 1.0 } else { -1.0 }
}

/// Δ = (‖p‖₁/d)·sign(p), Karimireddy et al. 2019, algorithm 2.
fn scaled_signs(p: &[f64]) -> Vec<f64> {
    let scale = p.iter().map(|p| p.abs()).sum::<f64>() / p.len() as f64;
    p.iter().map(|p| scale * sign(*p)).collect()
}

/// Indices of the ⌈density·d⌉ largest elements.
fn largest(p: &[f64], density: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*b].abs().total_cmp(&p[*a].abs()));
    order.truncate((p.len() as f64 * density).ceil() as usize);
    order
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|x| x * x).sum::<f64>().sqrt()
}

impl Shadow {
    pub fn new(method: Method, is_adam: bool, shards: usize, len: usize) -> Shadow {
        let zeros = || vec![0.0; len];
        Shadow {
            method,
            is_adam,
            step: 0,
            values: zeros(),
            seen: zeros(),
            slack: zeros(),
            kept: vec![zeros(); shards],
            velocity: vec![zeros(); shards],
            server: zeros(),
            momentum: zeros(),
            moments: (zeros(), zeros()),
        }
    }

    /// A step in which each shard has the sum of its gradients over its number of samples, and its late
    /// part. `seen` are the values after it, which show a method's random choices.
    pub fn step(&mut self, sums: &[Vec<f64>], late: &[Vec<f64>], counts: &[f64], rate: f64, seen: &[f64]) {
        let samples: f64 = counts.iter().sum();
        let parts = |all: &[Vec<f64>]| -> Vec<Vec<f64>> {
            all.iter().map(|sum| sum.iter().map(|g| g / samples).collect()).collect()
        };
        let (mut means, late) = (parts(sums), parts(late));
        let keeps_late = match self.method {
            Method::Sum | Method::Rounded(_) | Method::Qsgd => false,
            Method::OnebitAdam => self.step >= WARM_UP,
            _ => true,
        };
        let len = seen.len();
        // The applied gradient, for methods with random choices.
        let observed: Vec<f64> = (0..len).map(|i| (self.seen[i] - seen[i]) / rate).collect();
        self.seen = seen.to_vec();
        let is_exact = matches!(self.method, Method::Sum)
            || (matches!(self.method, Method::OnebitAdam) && self.step < WARM_UP);
        if is_exact {
            means.iter_mut().zip(&late).for_each(|(mean, late)| {
                mean.iter_mut().zip(late).for_each(|(mean, late)| *mean += late);
            });
        }
        let mut applied: Vec<f64> = match self.method {
            Method::Sum => sum(&means),
            Method::Rounded(bits) => {
                let unit = 2.0f64.powi(-bits - 1);
                for i in 0..len {
                    let parts: f64 = means.iter().map(|mean| mean[i].abs()).sum();
                    // Each part once, and their sum.
                    self.slack[i] += rate * parts * unit * 2.5;
                }
                sum(&means)
            }
            Method::Qsgd => {
                for mean in &means {
                    for first in (0..len).step_by(100) {
                        let run = first..len.min(first + 100);
                        let level = norm(&mean[run.clone()]) / QSGD_LEVELS;
                        run.for_each(|i| self.slack[i] += rate * level);
                    }
                }
                sum(&means)
            }
            Method::EfSign => self.with_feedback(&means, scaled_signs),
            Method::TopK => self.with_feedback(&means, |p| only(p, &largest(p, DENSITY))),
            Method::RandomK => {
                let sent: Vec<usize> = (0..len).filter(|i| observed[*i].abs() > 1e-12).collect();
                assert_eq!(sent.len(), (len as f64 * DENSITY).ceil() as usize);
                self.with_feedback(&means, |p| only(p, &sent))
            }
            Method::Dgc => self.dgc(&means),
            Method::PowerSgd => self.project(&means, observed),
            Method::OnebitAdam => self.onebit_adam(&means, counts, samples),
        };
        if keeps_late {
            let scale = if self.method == Method::OnebitAdam { 1.0 - BETA.0 } else { 1.0 };
            for (shard, late) in late.iter().enumerate() {
                // For the projection the sum over the shards is kept here.
                let shard = if self.method == Method::PowerSgd { 0 } else { shard };
                let kept = self.kept[shard].iter_mut().zip(&mut self.velocity[shard]);
                kept.zip(late).for_each(|((kept, velocity), late)| {
                    *kept += scale * late;
                    *velocity += late;
                });
            }
        } else if !is_exact {
            applied.iter_mut().zip(sum(&late)).for_each(|(applied, late)| *applied += late);
        }
        match self.is_adam {
            true => self.adam(&applied, rate),
            false => self.values.iter_mut().zip(&applied).for_each(|(value, g)| *value -= rate * g),
        }
        self.step += 1;
    }

    /// p = g + e; Δ = C(p); e = p − Δ, for each shard.
    fn with_feedback(&mut self, means: &[Vec<f64>], compress: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
        let mut applied = vec![0.0; means[0].len()];
        for (kept, mean) in self.kept.iter_mut().zip(means) {
            let p: Vec<f64> = kept.iter().zip(mean).map(|(e, g)| e + g).collect();
            let sent = compress(&p);
            for i in 0..p.len() {
                applied[i] += sent[i];
                kept[i] = p[i] - sent[i];
            }
        }
        applied
    }

    /// Lin et al. 2018, algorithm 4: u = m·u + g; v = v + u; the largest of v are sent, and both cleared
    /// there.
    fn dgc(&mut self, means: &[Vec<f64>]) -> Vec<f64> {
        // A quarter of the elements in the first stage of the warm-up, and so on.
        let stage = (4 * self.step / WARM_UP) as i32;
        let density = if stage < 4 { 0.25f64.powi(stage + 1).max(DENSITY) } else { DENSITY };
        let mut applied = vec![0.0; means[0].len()];
        for (shard, mean) in means.iter().enumerate() {
            let (u, v) = (&mut self.velocity[shard], &mut self.kept[shard]);
            for i in 0..mean.len() {
                u[i] = DGC_MOMENTUM * u[i] + mean[i];
                v[i] += u[i];
            }
            for i in largest(v, density) {
                applied[i] += v[i];
                (u[i], v[i]) = (0.0, 0.0);
            }
        }
        applied
    }

    /// Vogels et al. 2019, algorithm 1: M̂ = PPᵀM is a projection of M = Σ (g + e), so that M̂ and M − M̂
    /// are orthogonal; its subspace is random.
    fn project(&mut self, means: &[Vec<f64>], observed: Vec<f64>) -> Vec<f64> {
        let (all, kept) = (sum(means), &mut self.kept[0]);
        let m: Vec<f64> = all.iter().zip(&*kept).map(|(g, e)| g + e).collect();
        kept.iter_mut().zip(m.iter().zip(&observed)).for_each(|(e, (m, sent))| *e = m - sent);
        let product: f64 = kept.iter().zip(&observed).map(|(rest, sent)| rest * sent).sum();
        let bound = 1e-4 * norm(&m) * norm(&observed);
        assert!(product.abs() <= bound, "step {}: no projection, {product} of {bound}", self.step);
        assert!(norm(&observed) > 0.05 * norm(&m), "step {}: hardly anything is said", self.step);
        observed
    }

    /// Tang et al. 2021, algorithm 1, with means over samples in the place of means over workers; returns
    /// the gradient that moves m to the one that all ranks have received.
    fn onebit_adam(&mut self, means: &[Vec<f64>], counts: &[f64], samples: f64) -> Vec<f64> {
        let (beta, len) = (BETA.0, means[0].len());
        if self.step < WARM_UP {
            let g = sum(means);
            self.momentum.iter_mut().zip(&g).for_each(|(m, g)| *m = beta * *m + (1.0 - beta) * g);
            return g;
        }
        let mut received = self.server.clone();
        for (shard, mean) in means.iter().enumerate() {
            let own = |i: usize| {
                counts[shard] / samples * beta * self.momentum[i]
                    + (1.0 - beta) * mean[i]
                    + self.kept[shard][i]
            };
            let p: Vec<f64> = (0..len).map(own).collect();
            let sent = scaled_signs(&p);
            for i in 0..len {
                self.kept[shard][i] = p[i] - sent[i];
                received[i] += sent[i];
            }
        }
        let sent = scaled_signs(&received);
        self.server = received.iter().zip(&sent).map(|(all, sent)| all - sent).collect();
        let moved = |i: usize| (sent[i] - beta * self.momentum[i]) / (1.0 - beta);
        let gradient = (0..len).map(moved).collect();
        self.momentum = sent;
        gradient
    }

    /// Kingma and Ba 2015, algorithm 1, whose second moment stays as it is after the warm-up.
    fn adam(&mut self, gradient: &[f64], rate: f64) {
        let (m, v) = &mut self.moments;
        let (t, frozen) = ((self.step + 1) as i32, (self.step + 1).min(WARM_UP) as i32);
        for i in 0..gradient.len() {
            m[i] = BETA.0 * m[i] + (1.0 - BETA.0) * gradient[i];
            if self.step < WARM_UP {
                v[i] = BETA.1 * v[i] + (1.0 - BETA.1) * gradient[i] * gradient[i];
            }
            let (first, second) = (m[i] / (1.0 - BETA.0.powi(t)), v[i] / (1.0 - BETA.1.powi(frozen)));
            self.values[i] -= rate * first / (second.sqrt() + EPSILON);
        }
    }

    /// The largest error of the values, as a multiple of the permitted one.
    pub fn worst(&self, values: &[f64]) -> f64 {
        let size = values.iter().map(|value| value.abs()).fold(1.0, f64::max);
        let off = |i: usize| (values[i] - self.values[i]).abs() / (self.slack[i] + 2e-5 * size);
        (0..values.len()).map(off).fold(0.0, f64::max)
    }

    /// Checks the size of the shards' state, by the sums of its magnitudes.
    pub fn expect_kept(&self, name: &str, sums: &[f64]) {
        let sum = |all: &[Vec<f64>]| all.iter().flatten().map(|x| x.abs()).sum::<f64>();
        let expected = match self.method {
            Method::EfSign | Method::TopK | Method::RandomK => vec![sum(&self.kept)],
            Method::Dgc => vec![sum(&self.velocity), sum(&self.kept)],
            Method::OnebitAdam => vec![sum(&self.kept), self.server.iter().map(|x| x.abs()).sum()],
            // Only the sum over the shards is known, which may be less than the shards' own.
            Method::PowerSgd => return assert!(sums[0] > 0.99 * sum(&self.kept[..1])),
            Method::Sum | Method::Rounded(_) | Method::Qsgd => vec![0.0; sums.len()],
        };
        for (sum, expected) in sums.iter().zip(&expected) {
            assert!((sum - expected).abs() <= 1e-3 * expected, "{name} keeps {sum}, not {expected}");
        }
        assert_eq!(sums.len(), expected.len(), "{name}");
    }
}

fn sum(all: &[Vec<f64>]) -> Vec<f64> {
    (0..all[0].len()).map(|i| all.iter().map(|one| one[i]).sum()).collect()
}

fn only(p: &[f64], sent: &[usize]) -> Vec<f64> {
    let mut all = vec![0.0; p.len()];
    sent.iter().for_each(|i| all[*i] = p[*i]);
    all
}
