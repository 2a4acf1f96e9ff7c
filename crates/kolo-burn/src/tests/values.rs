//! Modules with given values.

use burn_flex_nn::arrange;
use kolo_ddp::binding::Inventory;

use super::*;
use crate::with_values;

fn inventory(model: &ResidualNet) -> Inventory {
    inventory_of(model)
}

/// Returns name and row-major values of each tensor.
fn row_major(Inventory { specs, values, .. }: &Inventory) -> Vec<(String, Vec<f32>)> {
    let mut rest = values.as_slice();
    let tensors = specs.iter().map(|spec| {
        let (own, others) = rest.split_at(spec.shape.iter().product());
        rest = others;
        (spec.name.clone(), spec.order.to_row_major(&spec.shape, own).into_owned())
    });
    tensors.collect()
}

#[test]
fn values_change_and_nothing_else_does() {
    let model = arrange(ResidualNet::new(0.25, &device()));
    let before = inventory(&model);
    let mut given = Vec::new();
    let after = with_values(model, |name, shape, _| {
        let values: Vec<f32> = (0..shape.iter().product()).map(|i| i as f32 + name.len() as f32).collect();
        given.push((name.to_owned(), values.clone()));
        Ok::<_, ()>(Some(values))
    });
    let after = inventory(&after.unwrap());
    // Kinds show which tensors are trained, orders how they lie in memory.
    assert_eq!(after.specs, before.specs);
    assert!(after.specs.iter().any(|spec| !spec.order.is_row_major()));
    assert!(after.specs.iter().any(|spec| spec.kind == Kind::Statistic));
    assert_eq!(row_major(&after), given);
}

#[test]
fn a_tensor_may_stay_and_the_first_error_ends_it() {
    let new = || ResidualNet::new(0.25, &device());
    let before = inventory(&new());
    let same = with_values(new(), |_, _, _| Ok::<_, ()>(None)).unwrap();
    assert_eq!(inventory(&same).values, before.values);
    let mut asked = 0;
    let error = with_values(new(), |name, _, _| {
        asked += 1;
        if asked == 3 { Err(name.to_owned()) } else { Ok(None) }
    });
    assert_eq!((error.err(), asked), (Some(before.specs[2].name.clone()), 3));
}
