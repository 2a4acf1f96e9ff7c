//! The device on which a worker computes, by its name in the recipe.

use burn::tensor::{Device, DeviceType};
use kolo_recipe::Recipe;
use kolo_train::Error;

/// Returns the device of the worker with this number on its machine, from 0. Where the recipe gives no number
/// of a device, the workers of a machine take turns.
///
/// # Errors
///
/// There is no such device, on this machine or in this build; the error names the feature to build with.
///
/// # Examples
///
/// ```
/// use burn::tensor::Device;
/// use kolo_burn_train::{Recipe, device};
///
/// let recipe = Recipe { device: "flex".into(), ..Recipe::default() };
/// assert_eq!(device(&recipe, 0)?, Device::flex());
/// # Ok::<(), kolo_burn_train::Error>(())
/// ```
pub fn device(recipe: &Recipe, local_rank: usize) -> Result<Device, Error> {
    let (kind, number) = recipe.device()?;
    let refused =
        |problem: String| Err(kolo_recipe::Error::setting("--device", &recipe.device, problem).into());
    let Some(kind) = of_build(kind) else {
        return refused(format!("this build has no such device; build it with `--features {kind}`"));
    };
    let mut found: Vec<Device> = Device::enumerate(kind).into_iter().collect();
    match (number, found.len()) {
        (_, 0) => refused("this machine has none; leave out --device to compute on the CPU".into()),
        (Some(number), count) if number >= count => {
            refused(format!("this machine has {count}, and the first one has the number 0"))
        }
        (number, count) => Ok(found.swap_remove(number.unwrap_or(local_rank % count))),
    }
}

/// Returns the kind of devices of a name, if this build has it.
fn of_build(kind: &str) -> Option<DeviceType> {
    match kind {
        "flex" => Some(DeviceType::Flex),
        #[cfg(feature = "cpu")]
        "cpu" => Some(DeviceType::Cpu),
        #[cfg(feature = "cuda")]
        "cuda" => Some(DeviceType::Cuda),
        #[cfg(feature = "rocm")]
        "rocm" => Some(DeviceType::Rocm),
        #[cfg(feature = "wgpu")]
        "wgpu" => Some(DeviceType::Wgpu),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, local_rank: usize) -> Result<Device, String> {
        let recipe = Recipe { device: name.into(), ..Recipe::default() };
        device(&recipe, local_rank).map_err(|error| error.to_string())
    }

    #[test]
    fn all_workers_of_a_machine_compute_on_its_cpu() {
        assert_eq!(device(&Recipe::default(), 0).unwrap(), Device::flex());
        assert_eq!(found("flex", 3), Ok(Device::flex()));
        assert_eq!(found("flex:0", 3), Ok(Device::flex()));
        let error = "--device flex:1: this machine has 1, and the first one has the number 0";
        assert_eq!(found("flex:1", 0), Err(error.into()));
    }

    #[test]
    #[cfg(not(feature = "cuda"))]
    fn a_device_that_is_not_in_the_build_is_named_with_its_feature() {
        let error = "--device cuda:0: this build has no such device; build it with `--features cuda`";
        assert_eq!(found("cuda:0", 0), Err(error.into()));
    }

    #[test]
    fn every_kind_that_a_recipe_knows_is_in_the_build_or_a_feature() {
        let features = include_str!("../Cargo.toml");
        for kind in kolo_recipe::DEVICES.iter().filter(|kind| of_build(kind).is_none()) {
            assert!(features.contains(&format!("\n{kind} = [")), "{kind}");
        }
    }
}
