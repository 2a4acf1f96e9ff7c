//! Every optimizer beside the equations of its paper, written out in double precision with one loop and no
//! flat memory: over steps whose gradients are sums over 1, 7, 33 or 64 samples, with rates that change,
//! groups, tensors of every kind, and every setting away from its default. Bits that are the same on all
//! workers can be wrong on all of them; this says what is right.

use std::ops::Range;

use kolo_optim::table::{Allowed, Entry, Value};
use kolo_optim::{GroupSettings, Kind, Layout, OPTIMIZERS, Optimizer, ParamSpec, Scope, Settings, Update};

const STEPS: u64 = 30;
/// Of the norm of a tensor's values.
const LIMIT: f64 = 1e-5;

/// Samples of a step.
fn count(step: u64) -> usize {
    [64, 1, 7, 64, 33, 1, 1, 7][step as usize % 8]
}

/// It rises, falls, and is 0 once.
fn rate(step: u64) -> f64 {
    match step {
        11 => 0.0,
        _ => 0.02 * (step as f64 / 5.0).min(1.0) * (1.0 - step as f64 / 40.0),
    }
}

/// A number of [-1, 1) with 11 bits, so that sums of some of them are exact.
fn noise(index: usize) -> f32 {
    let x = (index as u32 + 1).wrapping_mul(2_654_435_761);
    let x = (x ^ x >> 15).wrapping_mul(2_246_822_519);
    ((x ^ x >> 13) % 2048) as f32 / 1024.0 - 1.0
}

/// A tensor, as the equations see it.
struct Tensor {
    shape: Vec<usize>,
    w: Vec<f64>,
    /// The first moment, or the velocity.
    m: Vec<f64>,
    /// The second moment.
    v: Vec<f64>,
    /// Whether weight decay applies to it.
    decays: bool,
    group: usize,
}

/// Shape, weight decay and group of each tensor. Tensors without elements lie where the next one does.
fn shapes() -> Vec<(Vec<usize>, bool, usize)> {
    vec![
        (vec![0], true, 0),
        (vec![0, 8], true, 1),
        (vec![], true, 0),
        (vec![1], false, 1),
        (vec![6, 4], true, 0),
        (vec![8, 0], false, 0),
        (vec![4, 9], true, 1),
        (vec![17], false, 0),
        (vec![0, 3, 3, 3], true, 0),
        (vec![5, 3, 2, 2], true, 0),
        (vec![40, 3], false, 1),
        (vec![1, 1], true, 0),
        (vec![37], true, 1),
        (vec![3, 0], true, 0),
    ]
}

/// What is different in the second group.
fn groups(entry: &Entry<dyn Optimizer>) -> Vec<GroupSettings> {
    let mut settings = Settings::default();
    for (name, value) in [("weight_decay", 0.3), ("momentum", 0.5), ("beta1", 0.6), ("epsilon", 1e-2)] {
        if entry.setting(name).is_some() {
            settings = settings.with(name, value);
        }
    }
    let other = GroupSettings { tensors: "some".into(), lr_scale: 0.5, settings };
    vec![GroupSettings::default(), other]
}

/// Away from the defaults as far as possible, and with each flag the other way round.
fn variants(entry: &Entry<dyn Optimizer>) -> Vec<Settings> {
    let lively = |name: &str| match name {
        "weight_decay" => 0.1,
        "momentum" | "beta1" => 0.8,
        "beta2" => 0.95,
        "epsilon" => 1e-3,
        "trust_coefficient" => 0.05,
        "freeze_after" => 9.0,
        other => panic!("no other value for the setting `{other}` of {}: write one here", entry.name),
    };
    let numbers = entry.settings.iter().filter(|setting| setting.allowed != Allowed::Flag);
    let numbers: Settings =
        numbers.map(|setting| (setting.name.to_string(), Value::Number(lively(setting.name)))).collect();
    let mut all = vec![Settings::default(), numbers.clone()];
    for setting in entry.settings {
        match setting.default {
            Value::Flag(flag) => all.push(numbers.clone().with(setting.name, !flag)),
            Value::Number(_) => {
                all.push(Settings::default().with(setting.name, lively(setting.name)));
            }
        }
    }
    all
}

/// Settings as the equations read them: as the nearest `f32`, which is what optimizers compute with.
struct Read(Settings);

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

/// A rule: changes a tensor by the mean gradient in a step, counted from 1, with a rate.
type Rule = fn(&mut Tensor, &[f64], i32, f64, &Read);

/// The rule of each optimizer.
fn rule(name: &str) -> Rule {
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

/// Kingma & Ba 2015, algorithm 1, of the gradient with the L2 penalty.
fn adam(tensor: &mut Tensor, g: &[f64], t: i32, rate: f64, settings: &Read) {
    let lambda = decay(tensor, settings);
    let g: Vec<f64> = g.iter().zip(&tensor.w).map(|(g, w)| g + lambda * w).collect();
    let steps = adams(tensor, &g, t, settings);
    tensor.w.iter_mut().zip(steps).for_each(|(w, step)| *w -= rate * step);
}

/// Loshchilov & Hutter 2019, algorithm 2, where decay is multiplied by the rate as in PyTorch.
fn adamw(tensor: &mut Tensor, g: &[f64], t: i32, rate: f64, settings: &Read) {
    let lambda = decay(tensor, settings);
    let steps = adams(tensor, g, t, settings);
    tensor.w.iter_mut().zip(steps).for_each(|(w, step)| *w -= rate * lambda * *w + rate * step);
}

/// m̂ / (√v̂ + ε) of Kingma & Ba 2015, algorithm 1. After `freeze_after` steps v stays as it is (Tang et al. 2021,
/// algorithm 1).
fn adams(tensor: &mut Tensor, g: &[f64], t: i32, settings: &Read) -> Vec<f64> {
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
    let mut update = adams(tensor, g, t, settings);
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

/// Jordan et al. 2024, with the decay and the length of Liu et al. 2025, sections 2.1 and 2.2. What is no
/// matrix is stepped by AdamW.
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

/// Five steps of X ← aX + bAX + cA²X, A = XXᵀ, from X/‖X‖; of a matrix with more rows than columns the transposed
/// one's (Jordan et al. 2024).
fn orthogonalized(x: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let transposed = |x: &[f64], rows: usize, columns: usize| -> Vec<f64> {
        (0..columns).flat_map(|column| (0..rows).map(move |row| x[row * columns + column])).collect()
    };
    if rows > columns {
        return transposed(&orthogonalized(&transposed(x, rows, columns), columns, rows), columns, rows);
    }
    let product = |a: &[f64], b: &[f64], [rows, inner, columns]: [usize; 3]| -> Vec<f64> {
        let element = |row: usize, column: usize| {
            (0..inner).map(|k| a[row * inner + k] * b[k * columns + column]).sum::<f64>()
        };
        (0..rows).flat_map(|row| (0..columns).map(move |column| element(row, column))).collect()
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

fn norm(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// Sums of some samples' gradients, of elements of flat memory.
fn sums(step: u64, range: Range<usize>) -> Vec<f32> {
    let of_sample = |element: usize, sample: usize| noise(element + 997 * sample + 100_003 * step as usize);
    // One element has no gradient at first, as a unit that never fires.
    let value = |element: usize| match element == 20 && step < 5 {
        true => 0.0,
        false => (0..count(step)).map(|sample| of_sample(element, sample)).sum(),
    };
    range.map(value).collect()
}

/// The weights after each step, all tensors one after another, as the optimizer has them.
fn found(entry: &Entry<dyn Optimizer>, settings: &Settings, layout: &Layout) -> Vec<Vec<f32>> {
    let mut optimizer = entry.build(settings).unwrap();
    optimizer.set_groups(&groups(entry)).unwrap();
    optimizer.init(layout);
    let mut weights: Vec<f32> = (0..layout.len()).map(noise).collect();
    let step = |step: u64| {
        optimizer.begin(step, rate(step));
        for (span, (_, decays, group)) in layout.spans().iter().zip(shapes()) {
            // What sees no more than the element may be cut anywhere.
            let cut = match optimizer.scope() {
                Scope::Element => span.offset + span.len / 3,
                Scope::Tensor => span.offset,
            };
            for range in [cut..span.range().end, span.offset..cut] {
                if optimizer.scope() == Scope::Tensor && range.is_empty() && span.len > 0 {
                    continue;
                }
                let (parameters, gradient) = (&mut weights[range.clone()], &sums(step, range.clone())[..]);
                let scale = 1.0 / count(step) as f32;
                optimizer.update(Update { range, parameters, gradient, scale, decay: decays, group });
            }
        }
        weights.clone()
    };
    (1..=STEPS).map(step).collect()
}

/// The same by the equations.
fn expected(entry: &Entry<dyn Optimizer>, settings: &Settings, layout: &Layout) -> Vec<Vec<f64>> {
    let double = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<f64>>();
    let mut tensors: Vec<(Tensor, Range<usize>)> = (layout.spans().iter())
        .zip(shapes())
        .map(|(span, (shape, decays, group))| {
            let (w, zeros) = (double(span.range().map(noise).collect()), vec![0.0; span.len]);
            (Tensor { shape, w, m: zeros.clone(), v: zeros, decays, group }, span.range())
        })
        .collect();
    let of_group = groups(entry).into_iter().map(|group| {
        let all = settings.clone().into_iter().chain(group.settings).collect();
        (group.lr_scale, Read(entry.complete(&all).unwrap()))
    });
    let of_group: Vec<(f64, Read)> = of_group.collect();
    let step = |step: u64| {
        for (tensor, range) in &mut tensors {
            let (scale, settings) = &of_group[tensor.group];
            let mean: Vec<f64> =
                double(sums(step, range.clone())).iter().map(|sum| sum / count(step) as f64).collect();
            rule(entry.name)(tensor, &mean, step as i32, rate(step) * scale, settings);
        }
        tensors.iter().flat_map(|(tensor, _)| tensor.w.clone()).collect()
    };
    (1..=STEPS).map(step).collect()
}

#[test]
fn every_optimizer_goes_the_way_of_its_equations() {
    let specs = shapes()
        .into_iter()
        .enumerate()
        .map(|(n, (shape, decay, _))| ParamSpec::new(format!("p{n}"), shape, Kind::Parameter { decay }));
    let layout = Layout::new(specs.collect());
    let mut compared = 0;
    for entry in OPTIMIZERS {
        for settings in variants(entry) {
            let (found, expected) = (found(entry, &settings, &layout), expected(entry, &settings, &layout));
            for (step, (found, expected)) in (1..).zip(found.iter().zip(&expected)) {
                for span in layout.spans() {
                    let pairs = found[span.range()].iter().zip(&expected[span.range()]);
                    let distance = pairs.map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>().sqrt();
                    let size = norm(&expected[span.range()]);
                    let context =
                        || format!("{} with {settings}, step {step}, {:?}", entry.name, span.spec.shape);
                    assert!(distance <= LIMIT * size, "{}: {:e}", context(), distance / size);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 10_000, "{compared}");
}

/// What an optimizer sees of NaN it hands on: a step that swallows it trains on with numbers that mean nothing.
#[test]
fn nan_in_a_gradient_is_nan_in_the_parameter() {
    let layout = Layout::new(vec![ParamSpec::new("p", vec![7, 5], Kind::Parameter { decay: true })]);
    for entry in OPTIMIZERS {
        for settings in variants(entry) {
            for poison in [f32::NAN, f32::from_bits(0x7f80_0001), f32::INFINITY, f32::NEG_INFINITY] {
                let mut optimizer = entry.build(&settings).unwrap();
                optimizer.init(&layout);
                let mut weights: Vec<f32> = (0..35).map(noise).collect();
                for step in 1..=3 {
                    let mut gradient = sums(step, 0..35);
                    gradient[12] = poison;
                    optimizer.begin(step, 0.01);
                    let (parameters, gradient) = (&mut weights[..], &gradient[..]);
                    optimizer.update(Update {
                        range: 0..35,
                        parameters,
                        gradient,
                        scale: 1.0,
                        decay: true,
                        group: 0,
                    });
                }
                let context = format!("{} with {settings}, {poison}: {:?}", entry.name, weights[12]);
                // The sign of infinity is a number, and a step of it a finite one.
                let is_sign = entry.name == "lion" && poison.is_infinite();
                assert!(is_sign || !weights[12].is_finite(), "{context}");
            }
        }
    }
}
