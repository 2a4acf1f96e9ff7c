//! Equations of the optimizers, from their papers, in double precision: one loop over a tensor, no flat
//! memory, no vectors. Tests of Kolo's training step use them as well.

use kolo_optim::Settings;
use kolo_optim::table::Value;

/// Tensor with its state, as the equations see it.
pub struct Tensor {
    pub shape: Vec<usize>,
    pub w: Vec<f64>,
    /// First moment, or velocity.
    pub m: Vec<f64>,
    /// Second moment.
    pub v: Vec<f64>,
    /// True if weight decay applies.
    pub decays: bool,
}

impl Tensor {
    /// Creates the state before the first step.
    pub fn new(shape: Vec<usize>, w: Vec<f64>, decays: bool) -> Self {
        let zeros = vec![0.0; w.len()];
        Tensor { shape, w, m: zeros.clone(), v: zeros, decays }
    }
}

/// Settings as the equations read them: rounded to `f32`, with which the optimizers compute.
pub struct Read(pub Settings);

impl Read {
    fn number(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some(Value::Number(number)) if name == "trust_coefficient" => number,
            Some(Value::Number(number)) => f64::from(number as f32),
            other => panic!("{name} is {other:?}"),
        }
    }

    fn flag(&self, name: &str) -> bool {
        self.0.get(name) == Some(Value::Flag(true))
    }
}

/// Rule that changes a tensor. Its arguments are the tensor, the mean gradient, the step from 1, the rate and
/// the settings.
pub type Rule = fn(&mut Tensor, &[f64], i32, f64, &Read);

pub fn rule(name: &str) -> Rule {
    match name {
        "sgd" => sgd,
        "adam" => adam,
        "adamw" => adamw,
        "lars" => lars,
        "lamb" => lamb,
        "lion" => lion,
        "muon" => muon,
        other => panic!("no equations for `{other}`: write them here, from its paper"),
    }
}

/// PyTorch's `torch.optim.SGD`: Polyak's momentum, or Nesterov's as Sutskever et al. 2013 have it.
fn sgd(tensor: &mut Tensor, g: &[f64], _: i32, rate: f64, settings: &Read) {
    let (mu, lambda) = (settings.number("momentum"), decay(tensor, settings));
    for (i, g) in g.iter().enumerate() {
        let g = g + lambda * tensor.w[i];
        tensor.m[i] = mu * tensor.m[i] + g;
        tensor.w[i] -= rate * if settings.flag("nesterov") { g + mu * tensor.m[i] } else { tensor.m[i] };
    }
}

/// Kingma & Ba 2015, algorithm 1, with the L2 penalty in the gradient.
fn adam(tensor: &mut Tensor, g: &[f64], t: i32, rate: f64, settings: &Read) {
    let lambda = decay(tensor, settings);
    let g: Vec<f64> = g.iter().zip(&tensor.w).map(|(g, w)| g + lambda * w).collect();
    let steps = adam_directions(tensor, &g, t, settings);
    tensor.w.iter_mut().zip(steps).for_each(|(w, step)| *w -= rate * step);
}

/// Loshchilov & Hutter 2019, algorithm 2, with the decay multiplied by the rate, as in PyTorch.
fn adamw(tensor: &mut Tensor, g: &[f64], t: i32, rate: f64, settings: &Read) {
    let lambda = decay(tensor, settings);
    let steps = adam_directions(tensor, g, t, settings);
    tensor.w.iter_mut().zip(steps).for_each(|(w, step)| *w -= rate * lambda * *w + rate * step);
}

/// Returns m̂ / (√v̂ + ε) of Kingma & Ba 2015, algorithm 1. After `freeze_after` steps v stays constant (Tang
/// et al. 2021, algorithm 1).
fn adam_directions(tensor: &mut Tensor, g: &[f64], t: i32, settings: &Read) -> Vec<f64> {
    let [beta1, beta2, epsilon] = ["beta1", "beta2", "epsilon"].map(|name| settings.number(name));
    let last = match settings.0.get("freeze_after") {
        Some(Value::Number(steps)) if steps > 0.0 => steps as i32,
        _ => i32::MAX,
    };
    let step = |(i, g): (usize, &f64)| {
        tensor.m[i] = beta1 * tensor.m[i] + (1.0 - beta1) * g;
        if t <= last {
            tensor.v[i] = beta2 * tensor.v[i] + (1.0 - beta2) * g * g;
        }
        let m = tensor.m[i] / (1.0 - beta1.powi(t));
        let v = tensor.v[i] / (1.0 - beta2.powi(t.min(last)));
        m / (v.sqrt() + epsilon)
    };
    g.iter().enumerate().map(step).collect()
}

/// You, Gitman & Ginsburg 2017, algorithm 1.
fn lars(tensor: &mut Tensor, g: &[f64], _: i32, rate: f64, settings: &Read) {
    let (m, eta, beta) =
        (settings.number("momentum"), settings.number("trust_coefficient"), decay(tensor, settings));
    let (of_w, of_g) = (norm(&tensor.w), norm(g));
    let local = match settings.flag("trust_ratio") && of_w > 0.0 && of_g > 0.0 {
        true => eta * of_w / (of_g + beta * of_w),
        false => 1.0,
    };
    for (i, g) in g.iter().enumerate() {
        tensor.m[i] = m * tensor.m[i] + rate * local * (g + beta * tensor.w[i]);
        tensor.w[i] -= tensor.m[i];
    }
}

/// You et al. 2020, algorithm 2, with φ(z) = z.
fn lamb(tensor: &mut Tensor, g: &[f64], t: i32, rate: f64, settings: &Read) {
    let lambda = decay(tensor, settings);
    let mut update = adam_directions(tensor, g, t, settings);
    update.iter_mut().zip(&tensor.w).for_each(|(update, w)| *update += lambda * w);
    let (of_w, of_update) = (norm(&tensor.w), norm(&update));
    let ratio = match settings.flag("trust_ratio") && of_w > 0.0 && of_update > 0.0 {
        true => of_w / of_update,
        false => 1.0,
    };
    tensor.w.iter_mut().zip(&update).for_each(|(w, update)| *w -= rate * ratio * update);
}

/// Chen et al. 2023, algorithm 2.
fn lion(tensor: &mut Tensor, g: &[f64], _: i32, rate: f64, settings: &Read) {
    let ([beta1, beta2], lambda) =
        (["beta1", "beta2"].map(|name| settings.number(name)), decay(tensor, settings));
    for (i, g) in g.iter().enumerate() {
        let c = beta1 * tensor.m[i] + (1.0 - beta1) * g;
        let sign = if c == 0.0 { 0.0 } else { c.signum() };
        tensor.w[i] -= rate * (sign + lambda * tensor.w[i]);
        tensor.m[i] = beta2 * tensor.m[i] + (1.0 - beta2) * g;
    }
}

/// Jordan et al. 2024, with the decay and the length of Liu et al. 2025, sections 2.1 and 2.2. AdamW steps
/// all other tensors.
fn muon(tensor: &mut Tensor, g: &[f64], t: i32, rate: f64, settings: &Read) {
    if settings.flag("adamw") || tensor.shape.len() < 2 {
        return adamw(tensor, g, t, rate, settings);
    }
    if g.is_empty() {
        return;
    }
    let (mu, lambda) = (settings.number("momentum"), decay(tensor, settings));
    let (rows, columns) = (tensor.shape[0], g.len() / tensor.shape[0]);
    let mut direction = Vec::new();
    for (i, g) in g.iter().enumerate() {
        tensor.m[i] = mu * tensor.m[i] + (1.0 - mu) * g;
        let nesterov = settings.flag("nesterov");
        direction.push(if nesterov { mu * tensor.m[i] + (1.0 - mu) * g } else { tensor.m[i] });
    }
    let direction = orthogonalized(&direction, rows, columns);
    let (r, c) = match settings.flag("inputs_first") && tensor.shape.len() == 2 {
        true => (columns as f64, rows as f64),
        false => (rows as f64, columns as f64),
    };
    let length =
        if settings.flag("match_rms_adamw") { 0.2 * r.max(c).sqrt() } else { (r / c).max(1.0).sqrt() };
    for (w, o) in tensor.w.iter_mut().zip(direction) {
        *w -= rate * lambda * *w + rate * length * o;
    }
}

/// Five steps of X ← aX + bAX + cA²X, A = XXᵀ, from X/‖X‖; on the transpose if the matrix has more rows than
/// columns (Jordan et al. 2024).
fn orthogonalized(x: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let transposed = |x: &[f64], rows: usize, columns: usize| -> Vec<f64> {
        (0..columns).flat_map(|column| (0..rows).map(move |row| x[row * columns + column])).collect()
    };
    if rows > columns {
        return transposed(&orthogonalized(&transposed(x, rows, columns), columns, rows), columns, rows);
    }
    let product = |a: &[f64], b: &[f64], [rows, inner, columns]: [usize; 3]| -> Vec<f64> {
        let mut out = vec![0.0; rows * columns];
        for (a, out) in a.chunks(inner).zip(out.chunks_mut(columns)) {
            for (a, b) in a.iter().zip(b.chunks(columns)) {
                out.iter_mut().zip(b).for_each(|(out, b)| *out += a * b);
            }
        }
        out
    };
    let size = norm(x).max(1e-7);
    let mut x: Vec<f64> = x.iter().map(|x| x / size).collect();
    for _ in 0..5 {
        let a = product(&x, &transposed(&x, rows, columns), [rows, columns, rows]);
        let ax = product(&a, &x, [rows, rows, columns]);
        let aax = product(&a, &ax, [rows, rows, columns]);
        x = (0..x.len()).map(|i| 3.4445 * x[i] - 4.7750 * ax[i] + 2.0315 * aax[i]).collect();
    }
    x
}

fn decay(tensor: &Tensor, settings: &Read) -> f64 {
    if tensor.decays { settings.number("weight_decay") } else { 0.0 }
}

pub fn norm(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}
