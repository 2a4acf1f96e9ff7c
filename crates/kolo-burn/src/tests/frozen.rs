//! Frozen layers, and parameters that are not floats.

use burn::module::Param;
use burn::tensor::Bool;
use kolo_ddp::element::of_integers;
use kolo_ddp::{Element, ParamSpec};

use super::*;
use crate::frozen::FrozenTensors;
use crate::{freeze, with_values};

/// A frozen layer, a table that reorders its output, a mask that hides some of it, and a trained layer.
#[derive(Module, Debug)]
struct Picked {
    base: Linear,
    places: Param<Tensor<1, Int>>,
    mask: Param<Tensor<2, Bool>>,
    head: Linear,
}

impl Picked {
    fn new(rank: usize, device: &Device) -> Self {
        let Net { mut first, last, .. } = Net::new(device);
        first.weight = first.weight.map(|weight| {
            Tensor::from_data(weight.add_scalar(rank as f32).into_data(), device).require_grad()
        });
        let places: Vec<i64> = (0..WIDTH).map(|i| ((i * 7 + rank) % WIDTH) as i64).collect();
        let mask: Vec<bool> = (0..WIDTH).map(|i| i % 3 == rank % 3).collect();
        let places = Tensor::from_data(TensorData::new(places, [WIDTH]), device);
        let mask = Tensor::from_data(TensorData::new(mask, [1, WIDTH]), device);
        let id = burn::module::ParamId::new;
        Picked {
            base: first.no_grad(),
            places: Param::initialized(id(), places),
            mask: Param::initialized(id(), mask),
            head: last,
        }
    }

    fn loss(&self, step: usize) -> Tensor<1> {
        let x = tanh(self.base.forward(inputs(&[step, step + 1], &device())));
        let x = x.select(1, self.places.val());
        let hidden = self.mask.val().expand(x.dims());
        self.head.forward(x.mask_fill(hidden, 0.0)).powi_scalar(2).sum()
    }
}

/// Returns the bits of all values, as training sees them.
fn bits(model: &Picked) -> Vec<u32> {
    inventory_of(model).values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn kinds_are_what_burn_makes_of_them() {
    let net = ResidualNet::new(0.2, &device()).no_grad();
    let kinds = |specs: &[ParamSpec], kind: Kind| {
        specs.iter().filter(|spec| spec.kind == kind).map(|spec| spec.name.clone()).collect::<Vec<_>>()
    };
    // Running statistics of a frozen layer still run, as PyTorch's do in training.
    let specs = inventory_of(&net).specs;
    let statistics = kinds(&specs, Kind::Statistic);
    assert!(
        !statistics.is_empty() && statistics.iter().all(|name| name.contains("running_")),
        "{statistics:?}"
    );
    assert_eq!(kinds(&specs, Kind::Frozen).len(), specs.len() - statistics.len());
    let trained = inventory_of(&ResidualNet::new(0.2, &device())).specs;
    assert_eq!(kinds(&trained, Kind::Statistic), statistics);
    assert_eq!(kinds(&trained, Kind::Frozen), Vec::<String>::new());

    let specs = inventory_of(&Picked::new(0, &device())).specs;
    let found: Vec<_> = specs.iter().map(|spec| (spec.name.as_str(), spec.kind, spec.element)).collect();
    let trained = Kind::Parameter { decay: true };
    assert_eq!(
        found,
        [
            ("base.weight", Kind::Frozen, Element::F32),
            ("base.bias", Kind::Frozen, Element::F32),
            ("head.weight", trained, Element::F32),
            ("head.bias", trained, Element::F32),
            ("places", Kind::Frozen, Element::I64),
            ("mask", Kind::Frozen, Element::Bool),
        ]
    );
}

/// Every rank starts with its own table, mask and frozen layer; all end with the values of one process.
#[test]
fn all_ranks_compute_with_rank_0s() {
    let train = |group: Group| {
        let model = Picked::new(group.rank().0, &device());
        let mut ddp = Ddp::new(group, model, &tiny_buckets(2), sgd(&Settings::default())).unwrap();
        let kept = ddp.model().base.weight.val();
        for step in 0..3 {
            for shard in ddp.shards() {
                let loss = ddp.model().loss(2 * step + shard);
                ddp.backward(Loss::sum(loss, 2)).unwrap();
            }
            ddp.step(0.01).unwrap();
        }
        // The frozen weight was not even rewritten.
        let address = |tensor: Tensor<2>| crate::frozen::address(&tensor);
        assert_eq!(address(ddp.model().base.weight.val()), address(kept));
        let model = ddp.into_model().unwrap().into_module();
        let places: Vec<i64> = model.places.val().into_data().iter().collect();
        assert_eq!(places[..3], [0, 7, 14]);
        bits(&model)
    };
    let alone = train(Group::alone());
    assert_ne!(alone, bits(&Picked::new(0, &device())));
    for world in [2, 3] {
        assert!(threads::spawn(world, train).unwrap().iter().all(|rank| *rank == alone), "{world} ranks");
    }
}

#[test]
fn a_checkpoint_brings_them_back() {
    let new = |rank: usize| {
        Ddp::new(Group::alone(), Picked::new(rank, &device()), &tiny_buckets(1), sgd(&Settings::default()))
            .unwrap()
    };
    let (mut first, mut other) = (new(0), new(1));
    let loss = first.model().loss(1);
    first.backward(Loss::sum(loss, 2)).unwrap();
    first.step(0.01).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let position = checkpoint::Position { step: 1, epoch: 0, step_in_epoch: 1, notes: ().into() };
    let path = first.with_replica(|replica| checkpoint::save(folder.path(), replica, &position)).unwrap();
    assert_ne!(bits(first.model()), bits(other.model()));
    other.load(&path).unwrap();
    assert_eq!(bits(first.model()), bits(other.model()));
}

#[test]
fn what_a_forward_pass_changes_is_refused_by_name() {
    let written = crate::BurnModel::from(Picked::new(0, &device()));
    let list = TensorList::of::<Picked>(&written);
    let frozen = FrozenTensors::of::<Picked>(&written, &list);
    let name = |model: &Picked| frozen.expect_in(model, &list).err().map(|error| error.to_string());
    assert_eq!(name(&written), None);
    assert_eq!(name(&written.clone()), None, "a copy for another thread");
    assert_eq!(name(&Picked::new(0, &device())), None, "other memory with the same values");
    let changed = |change: fn(&mut Picked)| {
        let mut model = written.clone().into_module();
        change(&mut model);
        name(&model).unwrap()
    };
    for (change, parameter) in [
        (
            (|model: &mut Picked| model.places = model.places.clone().map(|places| places.add_scalar(1)))
                as fn(&mut Picked),
            "`places`",
        ),
        (|model| model.mask = model.mask.clone().map(Tensor::bool_not), "`mask`"),
        (
            |model| {
                let bias = model.base.bias.take();
                model.base.bias = bias.map(|bias| bias.map(|bias| bias.add_scalar(1.0)));
            },
            "`base.bias`",
        ),
    ] {
        let words = changed(change);
        assert!(words.contains(parameter) && words.contains("RunningState"), "{words}");
    }
}

#[test]
fn values_that_are_no_floats_are_given_as_they_are() {
    let model = with_values(Picked::new(0, &device()), |name, shape, element| {
        Ok::<_, ()>(match element {
            Element::F32 => None,
            Element::I64 => Some(of_integers((0..shape[0]).map(|i| 3 - i as i64))),
            Element::Bool => Some(vec![f32::from(u8::from(name == "mask")); shape.iter().product()]),
        })
    })
    .unwrap();
    let places: Vec<i64> = model.places.val().into_data().iter().collect();
    assert_eq!(places[..5], [3, 2, 1, 0, -1]);
    assert!(model.mask.val().into_data().iter::<bool>().all(|hidden| hidden));
    assert_eq!(bits(&model)[..WIDTH], bits(&Picked::new(0, &device()))[..WIDTH]);
}

/// Selected by name, layers train as those that Burn's own `freeze` has frozen, on any number of workers.
#[test]
fn selected_parameters_keep_their_bits_and_the_others_train() {
    let new = || ResidualNet::new(0.0, &device());
    let selected = || freeze(new(), &["conv1.*".into(), "bn1.*".into()]).unwrap();
    let train = |group: Group, net: ResidualNet| {
        let mut ddp = Ddp::new(group, net, &tiny_buckets(2), sgd(&Settings::default())).unwrap();
        for step in 0..3 {
            for shard in ddp.shards() {
                let values: Vec<f32> = (0..2 * 64).map(|i| noise(2 * step + shard, i)).collect();
                let images = Tensor::from_data(TensorData::new(values, [2, 1, 8, 8]), &device());
                let loss = ddp.model().forward(images).powi_scalar(2).sum();
                ddp.backward(Loss::sum(loss, 2)).unwrap();
            }
            ddp.step(0.1).unwrap();
        }
        ddp.into_model().unwrap().into_module()
    };
    let bits = |net: &ResidualNet| -> Vec<u32> {
        inventory_of(net).values.iter().map(|value| value.to_bits()).collect()
    };
    let mut frozen_by_burn = new();
    frozen_by_burn.conv1 = frozen_by_burn.conv1.freeze();
    frozen_by_burn.bn1 = frozen_by_burn.bn1.freeze();
    let alone = train(Group::alone(), frozen_by_burn);
    for world in [1, 2] {
        for net in threads::spawn(world, |group| train(group, selected())).unwrap() {
            assert!(bits(&net) == bits(&alone), "{world} ranks");
            let floats = |tensor: Tensor<1>| tensor.into_data().iter::<f32>().collect::<Vec<_>>();
            let kernel = |net: &ResidualNet| floats(net.conv1.weight.val().flatten(0, 3));
            assert_eq!(kernel(&net), kernel(&new()));
            let mean = |net: &ResidualNet| floats(net.bn1.running_mean.value());
            assert_eq!(mean(&net), mean(&new()));
        }
    }
    let whole = train(Group::alone(), new());
    assert!(bits(&whole) != bits(&alone));

    // The statistics of a layer of which a parameter is trained still run.
    let half = train(Group::alone(), freeze(new(), &["bn1.gamma".into()]).unwrap());
    assert!(half.bn1.training.is_enabled() && !selected().bn1.training.is_enabled());
    for (selectors, words) in [
        (&["conv1.*", "conv9.*"][..], "conv9.*: this selects no trained parameter"),
        (&["*.weight", "*.bias", "norm"], "*.weight,*.bias,norm: this freezes all parameters"),
    ] {
        let selectors: Vec<_> = selectors.iter().map(|text| (*text).into()).collect();
        let error = freeze(new(), &selectors).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// Only the trained layer is recorded for the backward pass, travels, and has optimizer state in checkpoints.
#[test]
fn frozen_layers_cost_a_forward_pass_and_no_more() {
    type Backend = Autodiff<Flex, NoCheckpointing>;
    let is_recorded = |x: Tensor<2>| {
        let (_, node) = x.try_into_primitive::<Backend>().unwrap().into_parts();
        let operation = Gate.prepare::<NoCheckpointing>([node]).compute_bound().stateful();
        matches!(operation, OpsKind::Tracked(_))
    };
    let step = |group: Group| {
        let body = ["first.*", "shared.*", "unused.*"].map(Into::into);
        let net = freeze(Net::new(&device()), &body).unwrap();
        let adam = optimizer::named("adamw", &Settings::default()).unwrap();
        let mut ddp = Ddp::new(group, net, &tiny_buckets(2), adam).unwrap();
        for shard in ddp.shards() {
            let net: &Net = ddp.model();
            let hidden = net.shared.forward(tanh(net.first.forward(inputs(&[shard], &device()))));
            assert!(!is_recorded(hidden.clone()));
            let out = net.last.forward(hidden);
            assert!(is_recorded(out.clone()));
            ddp.backward(Loss::sum(out.powi_scalar(2).sum(), 1)).unwrap();
        }
        let bytes: usize = ddp.step(0.01).unwrap().traffic.buckets.iter().map(|bucket| bucket.bytes).sum();
        assert_eq!(bytes, size_of::<f32>() * (WIDTH * WIDTH + WIDTH));
        let folder = tempfile::tempdir().unwrap();
        let position = checkpoint::Position { step: 1, epoch: 0, step_in_epoch: 1, notes: ().into() };
        let path = ddp.with_replica(|replica| checkpoint::save(folder.path(), replica, &position)).unwrap();
        let saved = std::fs::read(path.join("optimizer.safetensors")).unwrap();
        let saved = safetensors::SafeTensors::deserialize(&saved).unwrap();
        let mut names: Vec<String> = saved.names().into_iter().map(Into::into).collect();
        names.sort();
        let of_layer = |state: &str| ["bias", "weight"].map(|name| format!("{state}/last.{name}"));
        assert_eq!(names, [of_layer("first_moment"), of_layer("second_moment")].concat());
    };
    step(Group::alone());
    threads::spawn(2, step).unwrap();
}
