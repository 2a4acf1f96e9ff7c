//! Groups of parameters: each optimizer steps the tensors of each group by its paper's rule with that
//! group's settings.

use crate::common::groups::{RATE, SHARDS, choices, config, gradient, groups, layout, replica, steps};
use crate::common::noise;
use kolo_comm::threads;
use kolo_ddp::Span;
use kolo_ddp::optimizer;
use kolo_ddp::table::Value;

const STEPS: u64 = 20;

fn norm(vector: &[f64]) -> f64 {
    vector.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// The rules of the papers and of PyTorch's documentation, in double precision, for one tensor; `setting`
/// returns a setting of its group.
fn by_the_formulas(optimizer: &str, span: &Span, x: &mut [f64], rate: f64, setting: impl Fn(&str) -> f64) {
    let decay = setting("weight_decay");
    let by_momentum = match optimizer {
        "muon" => span.spec.shape.len() > 1 && setting("adamw") == 0.0,
        _ => ["sgd", "lars"].contains(&optimizer),
    };
    let (mut m, mut v) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    for t in 1..=STEPS as i32 {
        let shards = |value: f64, i| (0..SHARDS).map(move |shard| gradient(value, i, t as u64 - 1, shard));
        let gradient = |i: usize, x: f64| shards(x, span.offset + i).sum::<f64>() / SHARDS as f64;
        let mut g: Vec<f64> = x.iter().enumerate().map(|(i, x)| gradient(i, *x)).collect();
        if by_momentum {
            let trust_ratio = match optimizer == "lars" && setting("trust_ratio") == 1.0 {
                true => setting("trust_coefficient") * norm(x) / (norm(&g) + decay * norm(x)),
                false => 1.0,
            };
            let (momentum, nesterov) =
                (setting("momentum"), optimizer != "lars" && setting("nesterov") == 1.0);
            let share = if optimizer == "muon" { 1.0 - momentum } else { rate * trust_ratio };
            for i in 0..x.len() {
                let decayed = g[i] + if optimizer == "muon" { 0.0 } else { decay * x[i] };
                m[i] = momentum * m[i] + share * decayed;
                g[i] = if nesterov { share * decayed + momentum * m[i] } else { m[i] };
            }
            if optimizer == "muon" {
                let shape = [span.spec.shape[0], span.len / span.spec.shape[0]];
                let adjusted = match setting("match_rms_adamw") == 1.0 {
                    true => 0.2 * (shape[0].max(shape[1]) as f64).sqrt(),
                    false => (shape[0] as f64 / shape[1] as f64).max(1.0).sqrt(),
                };
                let g = orthogonalized(&g, shape);
                x.iter_mut().zip(g).for_each(|(x, o)| *x -= rate * (decay * *x + adjusted * o));
            } else {
                x.iter_mut().zip(&g).for_each(|(x, moved)| *x -= moved);
            }
            continue;
        }
        if optimizer == "lion" {
            let (beta1, beta2) = (setting("beta1"), setting("beta2"));
            for i in 0..x.len() {
                let c = beta1 * m[i] + (1.0 - beta1) * g[i];
                x[i] -= rate * (if c == 0.0 { 0.0 } else { c.signum() } + decay * x[i]);
                m[i] = beta2 * m[i] + (1.0 - beta2) * g[i];
            }
            continue;
        }
        for i in 0..x.len() {
            if optimizer == "adam" {
                g[i] += decay * x[i];
            }
            let (beta1, beta2) = (setting("beta1"), setting("beta2"));
            m[i] = beta1 * m[i] + (1.0 - beta1) * g[i];
            v[i] = beta2 * v[i] + (1.0 - beta2) * g[i] * g[i];
            let (m_hat, v_hat) = (m[i] / (1.0 - beta1.powi(t)), v[i] / (1.0 - beta2.powi(t)));
            let decay = if optimizer == "adam" { 0.0 } else { decay };
            g[i] = m_hat / (v_hat.sqrt() + setting("epsilon")) + decay * x[i];
        }
        let has_ratio = optimizer == "lamb" && setting("trust_ratio") == 1.0;
        let trust_ratio = if has_ratio { norm(x) / norm(&g) } else { 1.0 };
        x.iter_mut().zip(&g).for_each(|(x, moved)| *x -= rate * trust_ratio * moved);
    }
}

/// Five steps of Newton and Schulz (Jordan et al. 2024) for a matrix of that shape.
fn orthogonalized(g: &[f64], [rows, columns]: [usize; 2]) -> Vec<f64> {
    let transposed = |x: &[f64], [rows, columns]: [usize; 2]| -> Vec<f64> {
        (0..x.len()).map(|i| x[i % rows * columns + i / rows]).collect()
    };
    if rows > columns {
        let turned = orthogonalized(&transposed(g, [rows, columns]), [columns, rows]);
        return transposed(&turned, [columns, rows]);
    }
    let product = |a: &[f64], b: &[f64], inner: usize, columns: usize| {
        let mut out = vec![0.0; a.len() / inner * columns];
        for (a, out) in a.chunks(inner).zip(out.chunks_mut(columns)) {
            for (a, b) in a.iter().zip(b.chunks(columns)) {
                out.iter_mut().zip(b).for_each(|(out, b)| *out += a * b);
            }
        }
        out
    };
    let length = norm(g);
    let mut x: Vec<f64> = g.iter().map(|g| g / length).collect();
    for _ in 0..5 {
        let gram = product(&x, &transposed(&x, [rows, columns]), columns, rows);
        let square = product(&gram, &gram, rows, rows);
        let polynomial: Vec<f64> = gram.iter().zip(&square).map(|(a, s)| -4.7750 * a + 2.0315 * s).collect();
        let next = product(&polynomial, &x, rows, columns);
        x.iter_mut().zip(next).for_each(|(x, next)| *x = 3.4445 * *x + next);
    }
    x
}

#[test]
fn each_group_is_stepped_by_the_formulas_with_its_own_settings() {
    for (choice, of_block) in choices() {
        let entry = optimizer::find(&choice.name).unwrap();
        let train = |group| {
            let mut replica = replica(group, &config(groups(&of_block), 0.0625), &choice);
            steps(&mut replica, 0..STEPS);
            replica.values().unwrap().to_vec()
        };
        for weights in threads::spawn(2, train).unwrap() {
            for span in layout().spans() {
                let name = span.spec.name.as_str();
                let (block, small) = (name.starts_with("block."), span.spec.shape.len() == 1);
                let setting = |wanted: &str| {
                    if small && wanted == "weight_decay" {
                        return 0.0;
                    }
                    let own = of_block.get(wanted).filter(|_| block).or(choice.settings.get(wanted));
                    match own.unwrap_or(entry.setting(wanted).unwrap().default) {
                        Value::Number(number) => number,
                        Value::Flag(flag) => f64::from(u8::from(flag)),
                    }
                };
                let scale = match name.split('.').next() {
                    Some("embed") => 0.0,
                    Some("block") => 0.1,
                    Some("head") => 10.0,
                    _ => 1.0,
                };
                let mut expected: Vec<f64> = span.range().map(|i| f64::from(1.5 * noise(1, i))).collect();
                by_the_formulas(&choice.name, span, &mut expected, RATE * scale, setting);
                let pairs = expected.iter().zip(&weights[span.range()]);
                let most = pairs.map(|(a, b)| (a - f64::from(*b)).abs()).fold(0.0, f64::max);
                // A normalized direction has few digits if its gradient is close to 0.
                assert!(most <= 1e-4, "{choice:?}, {name}: {most:e}");
            }
        }
    }
}
