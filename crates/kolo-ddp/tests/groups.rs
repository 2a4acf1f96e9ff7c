//! Groups of parameters: each tensor is stepped as its group says, in the same bits on any number of ranks,
//! with any buckets, after a checkpoint and after a change of ranks.

mod common;

use std::sync::Arc;

use common::noise;
use kolo_comm::{Group, Rank, threads};
use kolo_ddp::checkpoint::{self, Position};
use kolo_ddp::optimizer::{self, GroupError, GroupSettings, OPTIMIZERS, Optimizer, Settings, Update};
use kolo_ddp::table::{Choice, Value};
use kolo_ddp::{
    BucketCaps, Config, Error, Kind, Layout, ParamGroup, ParamSpec, Replica, Span, SpanId, TensorClass,
};

const STEPS: u64 = 20;
const SHARDS: usize = 4;
const RATE: f64 = 0.02;

/// Names and shapes. `block.weight` and `table.weight` travel in several buckets where these are small.
const TENSORS: [(&str, &[usize]); 7] = [
    ("embed.weight", &[40, 30]),
    ("block.weight", &[200, 150]),
    ("block.norm.gamma", &[300]),
    ("block.bias", &[301]),
    ("table.weight", &[170, 170]),
    ("head.weight", &[10, 77]),
    ("head.bias", &[10]),
];

fn layout() -> Layout {
    let kind = Kind::Parameter { decay: true };
    Layout::new(TENSORS.map(|(name, shape)| ParamSpec::new(name, shape.to_vec(), kind)).to_vec())
}

/// Settings of each optimizer, and others for `block.*`, with which all of its rule has something to do.
fn choices() -> Vec<(Choice, Settings)> {
    let adaptive = || Settings::default().with("weight_decay", 0.4).with("beta1", 0.5).with("epsilon", 1e-3);
    let plain = || Settings::default().with("weight_decay", 0.4).with("momentum", 0.5);
    let sgd = |momentum: f64| Choice::new("sgd").with("momentum", momentum).with("weight_decay", 0.05);
    let nesterov = plain().with("nesterov", true);
    let lars = || Choice::new("lars").with("trust_coefficient", 0.5).with("weight_decay", 0.05);
    vec![
        (sgd(0.9), nesterov.clone()),
        // Momentum in a group only.
        (sgd(0.0), nesterov),
        (Choice::new("adamw").with("weight_decay", 0.05), adaptive()),
        (Choice::new("adam").with("weight_decay", 0.05), adaptive()),
        (Choice::new("lamb").with("weight_decay", 0.05), adaptive()),
        (Choice::new("lamb"), adaptive().with("trust_ratio", false)),
        (lars(), plain()),
        (lars(), plain().with("trust_ratio", false)),
        (Choice::new("muon").with("weight_decay", 0.05), plain().with("nesterov", false)),
        (Choice::new("muon").with("match_rms_adamw", false), adaptive().with("adamw", true)),
    ]
}

fn groups(of_block: &Settings) -> Vec<ParamGroup> {
    let block = ParamGroup { settings: of_block.clone(), ..ParamGroup::of(["block.*"]) };
    vec![
        block.with_lr_scale(0.1),
        ParamGroup::of(["head.*"]).with_lr_scale(10.0),
        ParamGroup::of([TensorClass::Embedding]).frozen(),
        ParamGroup::without_decay([TensorClass::Norm, TensorClass::Bias]),
    ]
}

fn config(groups: Vec<ParamGroup>, mib: f64) -> Config {
    Config { shards: Some(SHARDS), caps: Some(BucketCaps::of_mib(mib)), groups, ..Config::default() }
}

fn replica(group: Group, config: &Config, choice: &Choice) -> Replica {
    let optimizer = optimizer::named(&choice.name, &choice.settings).unwrap();
    let layout = layout();
    let specs = layout.spans().iter().map(|span| span.spec.clone()).collect();
    let values = (0..layout.len()).map(|i| 1.5 * noise(1, i)).collect();
    Replica::new(Arc::new(group), specs, values, config, optimizer).unwrap()
}

/// Gradient of a shard: of ½(θ − target)², whose target differs by shard and step.
fn gradient<T: From<f32> + std::ops::Sub<Output = T>>(value: T, index: usize, step: u64, shard: usize) -> T {
    value - T::from(noise(1 + shard + step as usize % 3, index))
}

fn steps(replica: &mut Replica, steps: std::ops::Range<u64>) {
    let layout = replica.layout().clone();
    for step in steps {
        for shard in replica.shards() {
            let values: Vec<Vec<f32>> =
                (0..TENSORS.len()).map(|n| replica.latest(SpanId(n)).to_vec()).collect();
            let mut pass = replica.begin_shard(1.0, 1.0).unwrap();
            for (n, values) in values.iter().enumerate().rev() {
                let offset = layout.span(SpanId(n)).offset;
                let gradients: Vec<f32> = values
                    .iter()
                    .enumerate()
                    .map(|(i, value)| gradient(*value, offset + i, step, shard))
                    .collect();
                pass.ready(SpanId(n), &gradients);
            }
            pass.finish().unwrap();
        }
        replica.step(RATE).unwrap();
    }
}

fn at(step: u64) -> Position {
    Position { step, epoch: 0, step_in_epoch: 0, notes: serde_json::Value::Null }
}

/// The tensors that have a bucket's border in their middle.
fn cut(replica: &Replica) -> Vec<&'static str> {
    let slices: Vec<_> = replica.buckets().flat_map(|bucket| &bucket.slices).collect();
    let pieces = |n| slices.iter().filter(|slice| slice.span == SpanId(n)).count();
    (0..TENSORS.len()).filter(|n| pieces(*n) > 1).map(|n| TENSORS[n].0).collect()
}

fn bits(replica: &mut Replica) -> Vec<u32> {
    replica.values().unwrap().iter().map(|value| value.to_bits()).collect()
}

fn norm(vector: &[f64]) -> f64 {
    vector.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// The rules as they are written in the papers and in PyTorch's documentation, in double precision, for one
/// tensor: `setting` gives a setting of its group.
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
                // Where a gradient is next to 0 a normalised direction has few digits.
                assert!(most <= 1e-4, "{choice:?}, {name}: {most:e}");
            }
        }
    }
}

#[test]
fn any_number_of_ranks_and_any_buckets_end_in_the_same_bits() {
    for (choice, of_block) in choices() {
        let train = |group, groups, mib| {
            let mut replica = replica(group, &config(groups, mib), &choice);
            steps(&mut replica, 0..4);
            (bits(&mut replica), cut(&replica))
        };
        let whole = train(Group::alone(), groups(&of_block), 25.0);
        assert_ne!(whole.0, train(Group::alone(), Vec::new(), 25.0).0, "groups change something");
        for (world, mib) in [(1, 0.01), (2, 0.0625), (3, 0.01), (4, 25.0)] {
            let found = threads::spawn(world, |group| train(group, groups(&of_block), mib)).unwrap();
            for (bits, cut) in found {
                assert_eq!(cut, if mib == 25.0 { vec![] } else { vec!["block.weight", "table.weight"] });
                assert!(bits == whole.0, "{choice:?}, {world} ranks, buckets of {mib} MiB");
            }
        }
    }
}

#[test]
fn groups_that_change_nothing_change_no_bit() {
    for entry in OPTIMIZERS {
        let (choice, plain) = (Choice::new(entry.name), ParamGroup::of(["*.weight"]).with_lr_scale(1.0));
        let own = entry.complete(&Settings::default()).unwrap();
        let repeated = ParamGroup { settings: own, ..plain.clone() };
        let train = |groups| {
            let mut replica = replica(Group::alone(), &config(groups, 25.0), &choice);
            steps(&mut replica, 0..3);
            bits(&mut replica)
        };
        let expected = train(Vec::new());
        assert!(train(vec![plain]) == expected && train(vec![repeated]) == expected, "{}", entry.name);
    }
}

#[test]
fn what_is_frozen_stays_as_it_is_to_the_bit() {
    for (choice, of_block) in choices() {
        let mut replica = replica(Group::alone(), &config(groups(&of_block), 0.01), &choice);
        let before = bits(&mut replica);
        steps(&mut replica, 0..3);
        let after = bits(&mut replica);
        for span in layout().spans() {
            let same = after[span.range()] == before[span.range()];
            assert_eq!(same, span.spec.name == "embed.weight", "{choice:?}, {}", span.spec.name);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = checkpoint::save(folder.path(), &mut replica, &at(3)).unwrap();
        let reader = checkpoint::Reader::open(&path).unwrap();
        let state = match choice.name.as_str() {
            "sgd" | "lars" => "velocity",
            "muon" => "momentum",
            _ => "first_moment",
        };
        let mut values = vec![f32::NAN; layout().len()];
        reader.read(checkpoint::Set::Optimizer, &format!("{state}/"), &layout(), 0, &mut values).unwrap();
        let frozen = layout().span(SpanId(0)).range();
        assert!(values[frozen].iter().all(|value| *value == 0.0), "{choice:?}: nor does its state move");
    }
}

#[test]
fn a_checkpoint_and_other_ranks_continue_in_the_same_bits() {
    for (choice, of_block) in choices() {
        let config = Config { elastic: true, ..config(groups(&of_block), 0.0625) };
        let mut whole = replica(Group::alone(), &config, &choice);
        steps(&mut whole, 0..6);
        let expected = bits(&mut whole);

        let folder = tempfile::tempdir().unwrap();
        let saved = threads::spawn(3, |group| {
            let mut replica = replica(group, &config, &choice);
            steps(&mut replica, 0..3);
            let first = replica.group().rank() == Rank(0);
            let path = first.then(|| checkpoint::save(folder.path(), &mut replica, &at(3)).unwrap());
            // The others are gone; it goes on alone.
            replica.regroup(Arc::new(Group::alone())).unwrap();
            steps(&mut replica, 3..6);
            assert!(bits(&mut replica) == expected, "{choice:?}, alone");
            path
        });
        let path = saved.unwrap().remove(0).unwrap();
        for resumed in threads::spawn(2, |group| {
            let mut replica = replica(group, &config, &choice);
            checkpoint::load(&path, &mut replica).unwrap();
            steps(&mut replica, 3..6);
            bits(&mut replica)
        })
        .unwrap()
        {
            assert!(resumed == expected, "{choice:?}, resumed");
        }
    }
}

/// Steps by the gradient alone; knows of groups if it is told to.
#[derive(Default)]
struct Own {
    takes_groups: bool,
    scales: Vec<f64>,
    rate: f64,
}

impl Optimizer for Own {
    fn set_groups(&mut self, groups: &[GroupSettings]) -> Result<(), GroupError> {
        self.scales = groups.iter().map(|group| group.lr_scale).collect();
        if self.takes_groups { Ok(()) } else { Untold.set_groups(groups) }
    }

    fn init(&mut self, _: &Layout) {}

    fn begin(&mut self, _: u64, learning_rate: f64) {
        self.rate = learning_rate;
    }

    fn update(&mut self, update: Update<'_>) {
        let rate = (self.rate * self.scales.get(update.group).unwrap_or(&1.0)) as f32;
        let pairs = update.parameters.iter_mut().zip(update.gradient);
        pairs.for_each(|(p, g)| *p -= rate * (g * update.scale));
    }

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        Vec::new()
    }
}

/// An optimizer as it is without a word about groups.
struct Untold;

impl Optimizer for Untold {
    fn init(&mut self, _: &Layout) {}

    fn begin(&mut self, _: u64, _: f64) {}

    fn update(&mut self, _: Update<'_>) {}

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        Vec::new()
    }
}

fn with_own(optimizer: impl Optimizer, groups: Vec<ParamGroup>) -> Result<Replica, Error> {
    let layout = layout();
    let specs = layout.spans().iter().map(|span| span.spec.clone()).collect();
    let values = vec![1.0; layout.len()];
    Replica::new(Arc::new(Group::alone()), specs, values, &config(groups, 25.0), optimizer)
}

#[test]
fn an_optimizer_of_ones_own_takes_groups_or_refuses_them_at_the_start() {
    let scaled = || vec![ParamGroup::of(["head.*"]).with_lr_scale(0.5), ParamGroup::of(["embed.*"]).frozen()];
    let mut replica = with_own(Own { takes_groups: true, ..Own::default() }, scaled()).unwrap();
    steps(&mut replica, 0..1);
    let weights = replica.values().unwrap().to_vec();
    for span in layout().spans() {
        let g: f32 = (0..SHARDS).map(|shard| gradient(1.0f32, span.offset, 0, shard)).sum::<f32>() / 4.0;
        let scale = match span.spec.name.split('.').next() {
            Some("head") => 0.5,
            Some("embed") => 0.0,
            _ => 1.0,
        };
        let expected = 1.0 - RATE as f32 * scale * g;
        assert!((weights[span.offset] - expected).abs() < 1e-6, "{}", span.spec.name);
    }

    let error = with_own(Untold, scaled()).err().unwrap().to_string();
    assert!(
        error.contains("::Untold steps all parameters alike") && error.contains("Config::groups"),
        "{error}"
    );
    // To leave tensors alone needs nothing of it.
    assert!(with_own(Untold, vec![ParamGroup::of(["embed.*"]).frozen()]).is_ok());
    assert!(with_own(Untold, Vec::new()).is_ok());
}

#[test]
fn groups_that_cannot_be_are_refused_at_the_start() {
    for (group, words) in [
        (
            ParamGroup::without_decay(["heda.*"]),
            "heda.*: no trained parameter is selected by that; there are embed.weight",
        ),
        (
            ParamGroup::of(["head.*", "bias"]).with("beta1", 0.5),
            "head.*,bias: sgd has no setting `beta1`; a group can have lr_scale, weight_decay, momentum, nesterov",
        ),
        (
            ParamGroup::of(["head.*"]).with("momentum", 1.0),
            "head.*: momentum of sgd is 1; it must be at least 0 and below 1",
        ),
        (
            ParamGroup::of(["head.*"]).with_lr_scale(f64::NAN),
            "head.*: lr_scale is NaN; it must be a number from 0",
        ),
    ] {
        for error in threads::spawn(2, |thread| {
            let sgd = optimizer::named("sgd", &Settings::default()).unwrap();
            let layout = layout();
            let specs = layout.spans().iter().map(|span| span.spec.clone()).collect();
            let (values, config) = (vec![0.0; layout.len()], config(vec![group.clone()], 25.0));
            Replica::new(Arc::new(thread), specs, values, &config, sgd).err().unwrap()
        })
        .unwrap()
        {
            assert!(matches!(error, Error::Groups(_)) && error.to_string().starts_with(words), "{error}");
        }
    }
}
