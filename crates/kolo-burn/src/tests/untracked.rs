//! Parameters that nothing would train.

use super::*;

/// Creates a network with one layer on another device.
fn mixed(layer: impl Fn(&Device) -> Linear) -> Net {
    Net { shared: layer(&Device::flex()), ..Net::new(&device()) }
}

fn refusal(net: Net) -> Option<String> {
    let result = Ddp::new(Group::alone(), net, &Config::default(), sgd(&Settings::default()));
    result.err().map(|error| error.to_string())
}

fn layer(device: &Device) -> Linear {
    LinearConfig::new(WIDTH, WIDTH).init(device)
}

#[test]
fn a_layer_on_a_device_without_autodiff_is_refused_by_name() {
    let error = refusal(mixed(layer)).expect("nothing would train it");
    assert!(error.contains("`shared.weight`") && error.contains("no_grad"), "{error}");
    assert_eq!(refusal(mixed(|device| layer(device).no_grad())), None, "it is frozen");
}

/// The module means to train the parameter, but its tensor was replaced by one that records nothing.
#[test]
fn a_parameter_that_was_replaced_by_a_constant_is_refused_by_name() {
    let mut net = Net::new(&device());
    net.last.weight = net.last.weight.map(|weight| Tensor::from_data(weight.into_data(), &device()));
    let error = refusal(net).expect("nothing would train it");
    assert!(error.contains("`last.weight`"), "{error}");
}
