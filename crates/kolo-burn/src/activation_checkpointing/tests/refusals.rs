//! Functions that are no functions of the block and its input.

use burn::nn::DropoutConfig;

use super::*;

#[test]
#[should_panic(expected = "a parameter or an activation that is neither in the block nor its input")]
fn a_parameter_of_another_module_is_refused_in_the_forward_pass() {
    let other = Pair::new(5);
    checkpointed(&Pair::new(1), x(), move |pair, x| other.forward(pair.forward(x)));
}

#[test]
#[should_panic(expected = "a parameter or an activation that is neither in the block nor its input")]
fn an_activation_from_outside_is_refused_in_the_forward_pass() {
    let pair = Pair::new(1);
    let outside = pair.forward(x());
    checkpointed(&pair, x(), move |pair, x| pair.forward(x) + outside.clone());
}

#[test]
#[should_panic(expected = "is the result of an operation")]
fn a_parameter_that_is_a_result_is_refused() {
    let mut pair = Pair::new(1);
    let weight = pair.first.weight.val().mul_scalar(2.0);
    pair.first.weight = Param::initialized(pair.first.weight.id, weight);
    checkpointed(&pair, x(), Pair::forward);
}

/// It draws from a generator of the process, so the second pass would have other gradients.
#[test]
#[should_panic(expected = "computed other values the second time; it must draw no random numbers")]
fn dropout_without_a_key_is_refused_in_the_backward_pass() {
    let dropout = DropoutConfig::new(0.5).init();
    let y = checkpointed(&Pair::new(1), x(), move |pair, x| dropout.forward(pair.forward(x)));
    y.sum().backward();
}
