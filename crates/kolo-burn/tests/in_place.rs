//! Parameters that lie in the replica's flat values.

use std::collections::HashSet;

use burn::backend::Flex;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::{gelu, relu, softmax, tanh};
use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor, TensorData};
use burn_flex_nn::arrange;
use kolo_burn::{Ddp, Loss, with_values};
use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::{BucketCaps, Config, Loan, Sharding, SpanId, checkpoint};

#[derive(Module, Debug)]
struct Net {
    conv: Conv2d,
    first: Linear,
    last: Linear,
}

impl Net {
    fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let x = tanh(self.conv.forward(x)).flatten::<2>(1, 3);
        self.last.forward(tanh(self.first.forward(x)))
    }
}

fn device() -> Device {
    Device::flex().autodiff()
}

fn noise(seed: usize, index: usize) -> f32 {
    ((seed * 7_919 + index * 104_729 + 13) as f32 * 0.37).sin()
}

fn input(seed: usize) -> Tensor<4> {
    let values: Vec<f32> = (0..2 * 3 * 25).map(|i| noise(seed, i)).collect();
    Tensor::from_data(TensorData::new(values, [2, 3, 5, 5]), &device())
}

fn ddp(group: Group, sharding: Sharding) -> Ddp<Net> {
    let device = device();
    let net = Net {
        conv: Conv2dConfig::new([3, 8], [3, 3]).init(&device),
        first: LinearConfig::new(72, 16).init(&device),
        last: LinearConfig::new(16, 3).init(&device),
    };
    let net = with_values(net, |name, shape, _| {
        let values = (0..shape.iter().product()).map(|i| 0.3 * noise(name.len(), i));
        Ok::<_, std::convert::Infallible>(Some(values.collect()))
    });
    let caps = Some(BucketCaps { first: 2048, other: 2048 });
    let config = Config { sharding, shards: Some(2), caps, ..Config::default() };
    let adam = optimizer::named("adamw", &Settings::default()).unwrap();
    Ddp::new(group, arrange(net.unwrap()), &config, adam).unwrap()
}

/// Runs one step.
fn step(ddp: &mut Ddp<Net>, number: usize) {
    for shard in ddp.shards() {
        let loss = ddp.model().forward(input(9 * number + shard)).powi_scalar(2).sum();
        ddp.backward(Loss::sum(loss, 2)).unwrap();
    }
    ddp.step(0.01).unwrap();
}

/// Returns the address of a tensor's memory.
fn address<const D: usize>(tensor: Tensor<D>) -> usize {
    tensor.try_into_primitive::<Flex>().unwrap().bytes().as_ptr().addr()
}

/// Returns the addresses of the parameters' tensors, and those of their values in flat memory.
fn addresses(ddp: &Ddp<Net>) -> [Vec<usize>; 2] {
    let net = ddp.model();
    let of_tensors = vec![
        address(net.conv.weight.val().inner()),
        address(net.conv.bias.as_ref().unwrap().val().inner()),
        address(net.first.weight.val().inner()),
        address(net.last.bias.as_ref().unwrap().val().inner()),
    ];
    let values = ddp.with_replica(|replica| replica.values().unwrap().as_ptr().addr());
    let place = |name: &str| {
        let span = ddp.layout().spans().iter().find(|span| span.spec.name == name).unwrap();
        values + span.offset * size_of::<f32>()
    };
    [of_tensors, ["conv.weight", "conv.bias", "first.weight", "last.bias"].map(place).to_vec()]
}

fn bits<const D: usize>(tensor: Tensor<D>) -> Vec<u32> {
    tensor.into_data().iter::<f32>().map(f32::to_bits).collect()
}

/// In the first steps, which update everything at once, and in later ones, whose updates wait for the next
/// forward pass. The convolution's weight has a memory order of its own.
#[test]
fn parameters_lie_where_the_optimizer_writes() {
    let mut ddp = ddp(Group::alone(), Sharding::default());
    let order = |ddp: &Ddp<Net>| ddp.layout().spans()[0].spec.order.is_row_major();
    assert!(!order(&ddp) && ddp.layout().spans()[0].spec.name == "conv.weight");
    let places: HashSet<Vec<usize>> = (0..10)
        .map(|number| {
            step(&mut ddp, number);
            let [tensors, places] = addresses(&ddp);
            assert_eq!(tensors, places, "step {number}");
            places
        })
        .collect();
    assert_eq!(places.len(), 1, "the values never move");
}

/// Values of a divided state come while others are read.
#[test]
fn parameters_are_copies_where_the_state_is_divided() {
    threads::spawn(2, |group| {
        let mut ddp = ddp(group, Sharding::Optimizer);
        for number in 0..8 {
            step(&mut ddp, number);
            let [tensors, places] = addresses(&ddp);
            assert!(tensors.iter().zip(&places).all(|(tensor, place)| tensor != place));
        }
    })
    .unwrap();
}

/// A parameter's tensor, a copy of the model, and a graph whose backward pass comes later.
#[test]
fn kept_tensors_never_change_and_change_nothing() {
    let train = |keeps: bool| -> Vec<u32> {
        let (mut ddp, mut kept) = (ddp(Group::alone(), Sharding::default()), Vec::new());
        for number in 0..12 {
            if keeps && number % 3 != 2 {
                let (weight, copy) = (ddp.model().first.weight.val(), ddp.model().valid());
                let before = [bits(weight.clone()), bits(copy.last.weight.val())];
                let gradient = |net: &Net| {
                    let x = input(number).require_grad();
                    let loss = net.forward(x.clone()).sum();
                    move || bits(x.grad(&loss.backward()).unwrap())
                };
                let expected = gradient(ddp.model())();
                let later: Box<dyn FnOnce() -> Vec<u32>> = Box::new(gradient(ddp.model()));
                kept.push((weight, copy, before, expected, later));
            }
            step(&mut ddp, number);
            for (weight, copy, before, ..) in &kept {
                assert_eq!(&[bits(weight.clone()), bits(copy.last.weight.val())], before);
            }
            if keeps && number == 7 {
                kept.drain(..3).for_each(|(.., expected, later)| assert_eq!(later(), expected));
            }
        }
        let sha256 = ddp.weights_sha256().unwrap();
        let last = ddp.model().first.weight.val();
        let trained = bits(last.clone());
        drop(ddp);
        for (weight, copy, before, expected, later) in kept {
            assert_eq!([bits(weight), bits(copy.last.weight.val())], before, "they outlive the replica");
            assert_eq!(later(), expected);
        }
        assert_eq!(bits(last), trained);
        trained.into_iter().chain(sha256.bytes().map(u32::from)).collect()
    };
    assert_eq!(train(true), train(false));
}

/// Loading writes all values while the model reads them.
#[test]
fn loading_does_not_change_kept_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let mut ddp = ddp(Group::alone(), Sharding::default());
    step(&mut ddp, 0);
    let at = checkpoint::Position { step: 1, epoch: 0, step_in_epoch: 1, notes: ().into() };
    let saved = ddp.with_replica(|replica| checkpoint::save(folder.path(), replica, &at)).unwrap();
    let first = bits(ddp.model().first.weight.val());
    step(&mut ddp, 1);
    let kept = ddp.model().first.weight.val();
    let second = bits(kept.clone());
    assert_ne!(first, second);
    ddp.load(&saved).unwrap();
    assert_eq!([bits(ddp.model().first.weight.val()), bits(kept)], [first, second.clone()]);
    step(&mut ddp, 1);
    assert_eq!(bits(ddp.model().first.weight.val()), second, "the step is repeated");
    let [tensors, places] = addresses(&ddp);
    assert_eq!(tensors, places, "parameters lie in the values again");
}

type Operation = fn(Tensor<2>) -> Tensor<2>;

/// Operations of which `flex` does most in place, if it has the only reference to a tensor's memory.
const OPERATIONS: &[(&str, Operation)] = &[
    ("add", |x| {
        let other = x.ones_like();
        x.add(other)
    }),
    ("be subtracted", |x| x.ones_like().mul_scalar(2.0).sub(x)),
    ("add a scalar", |x| x.add_scalar(3.0)),
    ("multiply by a scalar", |x| x.mul_scalar(0.5)),
    ("divide by a scalar", |x| x.div_scalar(0.5)),
    ("negate", |x| x.neg()),
    ("exp", |x| x.exp()),
    ("absolute", |x| x.abs()),
    ("tanh", tanh),
    ("relu", relu),
    ("gelu", gelu),
    ("softmax", |x| softmax(x, 1)),
    ("clamp", |x| x.clamp(-0.1, 0.1)),
    ("power", |x| x.powf_scalar(2.0)),
    ("fill by mask", |x| {
        let mask = x.ones_like().greater_elem(0.5);
        x.mask_fill(mask, 9.0)
    }),
    ("select by mask", |x| {
        let (mask, other) = (x.ones_like().greater_elem(0.5), x.ones_like());
        x.mask_where(mask, other)
    }),
    ("assign a slice", |x| {
        let rows = Tensor::ones([2, 16], &x.device());
        x.slice_assign([2..4, 0..16], rows)
    }),
    ("add to rows", |x| {
        let rows = Tensor::ones([2, 16], &x.device());
        let at = Tensor::<1, Int>::from_data([1, 3], &x.device());
        x.select_assign(0, at, rows, IndexingUpdateOp::Add)
    }),
    ("scatter", |x| {
        let at = Tensor::<2, Int>::zeros([1, 16], &x.device());
        let rows = Tensor::ones([1, 16], &x.device());
        x.scatter(0, at, rows, IndexingUpdateOp::Add)
    }),
    ("sum up", |x| x.cumsum(0)),
    ("sort", |x| x.sort(1)),
    ("flip", |x| x.flip([0])),
    ("the data itself", |x| {
        let (shape, device) = (x.dims(), x.device());
        let mut data = x.into_data();
        data.as_mut_slice::<f32>().unwrap().fill(7.0);
        assert_eq!(data.shape().to_vec(), shape);
        Tensor::from_data(data, &device)
    }),
];

/// The operation has the only tensor, so it may write; Kolo's memory lies below, and somebody else reads it.
#[test]
fn no_operation_of_flex_writes_to_the_values() {
    let mut in_place = 0;
    for (name, operation) in OPERATIONS {
        let ddp = ddp(Group::alone(), Sharding::default());
        let found = ddp.layout().spans().iter().position(|span| span.spec.name == "first.weight");
        let id = SpanId(found.unwrap());
        let loan: Loan = ddp.with_replica(|replica| replica.lend(id).unwrap());
        let before: Vec<u32> = loan.values().iter().map(|value| value.to_bits()).collect();
        let own = Tensor::<2>::from_data(TensorData::new(loan.values().to_vec(), [72, 16]), &Device::flex());
        let place = address(own.clone());
        let expected = operation(own);
        in_place += usize::from(address(expected.clone()) == place);
        let lent = ddp.into_model().unwrap().into_module().first.weight.into_value().inner();
        let lent = lent.try_into_primitive::<Flex>().unwrap();
        assert!(lent.is_unique() && lent.bytes().as_ptr().addr() == loan.values().as_ptr().addr(), "{name}");
        let lent = Tensor::<2>::from_primitive::<Flex>(lent);
        assert_eq!(bits(operation(lent)), bits(expected), "{name}");
        let after: Vec<u32> = loan.values().iter().map(|value| value.to_bits()).collect();
        assert_eq!(after, before, "{name}");
    }
    assert!(in_place >= 10, "{in_place} operations are done in place");
}
