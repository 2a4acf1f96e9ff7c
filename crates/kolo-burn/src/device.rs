//! Devices on which Kolo trains, and its promises there.

use burn::backend::DispatchDevice;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use burn_flex_nn::Precision;

use crate::Error;

/// Refuses a device on which the hook cannot see gradients.
/// Returns an error if the backend is not in the table, or if the device does not record gradients.
pub(crate) fn check(device: &Device) -> Result<(), Error> {
    is_exact(device).map(drop)
}

/// Refuses a precision that a device does not support. Call this before the first step.
///
/// # Errors
///
/// Returns [`Error::Precision`] if the device does not support the type.
pub fn check_precision(precision: Precision, device: &Device) -> Result<(), Error> {
    match precision.is_on(device) {
        true => Ok(()),
        false => {
            let device = format!("{:?}", device.as_dispatch());
            Err(Error::Precision { device, precision: precision.name() })
        }
    }
}

const WITHOUT_EXACT_BITS: &str = "this device may add in another order with every launch, so the next run may end in \
other weights; Kolo promises the same bits on the CPU's device flex only";

/// Refuses a model whose gradients Kolo cannot see. Returns a warning if a device has no exact bits.
/// Returns an error if a trained parameter is on an unknown backend, or if no parameter is trained, perhaps
/// because the device records no gradients.
pub(crate) fn check_model<M: Module>(module: &M) -> Result<Vec<String>, Error> {
    #[derive(Default)]
    struct Devices {
        first: Option<Device>,
        trained: Vec<Device>,
    }
    impl ModuleVisitor for Devices {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let tensor = param.val();
            self.first.get_or_insert_with(|| tensor.device());
            if tensor.is_require_grad() && !self.trained.contains(&tensor.device()) {
                self.trained.push(tensor.device());
            }
        }
    }
    let mut devices = Devices::default();
    module.visit(&mut devices);
    if devices.trained.is_empty() {
        // The device is the more likely cause.
        devices.first.as_ref().map_or(Ok(()), check)?;
        return Err(Error::NothingTrained);
    }
    let exact: Vec<bool> = devices.trained.iter().map(is_exact).collect::<Result<_, _>>()?;
    let is_warned = exact.contains(&false);
    Ok(is_warned.then(|| WITHOUT_EXACT_BITS.to_owned()).into_iter().collect())
}

/// Returns true if the device's tensors are in host memory: of the table, those of the exact ones are.
pub(crate) fn is_on_host(device: &Device) -> Result<bool, Error> {
    is_exact(device)
}

/// Returns true if the device adds in a fixed order, so that the weights are the same bits in every run and
/// on every machine of a kind. A GPU kernel may choose another order with every launch.
fn is_exact(device: &Device) -> Result<bool, Error> {
    let DispatchDevice::Autodiff(autodiff) = device.as_dispatch() else {
        return Err(Error::NoAutodiff { device: format!("{:?}", device.as_dispatch()) });
    };
    match autodiff.clone().inner() {
        DispatchDevice::Flex(_) => Ok(true),
        #[cfg(feature = "cubecl")]
        DispatchDevice::Cube(_) => Ok(false),
        #[allow(
            unreachable_patterns,
            reason = "another crate may switch on a backend of Burn's that is not in the table"
        )]
        other => Err(Error::Backend { device: format!("{other:?}") }),
    }
}
