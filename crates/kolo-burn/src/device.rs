//! On which devices Kolo trains, and what it promises there.

use burn::backend::DispatchDevice;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use burn_flex_nn::Precision;

use crate::Error;

/// Refuses a device on which the hook would see nothing.
///
/// # Errors
///
/// It is on none of the table's backends, or does not record gradients.
pub(crate) fn check(device: &Device) -> Result<(), Error> {
    is_exact(device).map(drop)
}

/// Refuses a precision that a device does not have: to be asked before the first step.
///
/// # Errors
///
/// It has none of that type.
pub fn check_precision(precision: Precision, device: &Device) -> Result<(), Error> {
    match precision.is_on(device) {
        true => Ok(()),
        false => {
            let device = format!("{:?}", device.as_dispatch());
            Err(Error::Precision { device, precision: precision.name() })
        }
    }
}

/// Refuses a model whose gradients cannot be seen, and says in one line where the bits are not promised.
///
/// # Errors
///
/// A trained parameter is on a backend that Kolo does not see, or none is trained, be it because the device
/// records no gradients.
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
        // The device is the likelier fault.
        devices.first.as_ref().map_or(Ok(()), check)?;
        return Err(Error::NothingTrained);
    }
    let mut warnings = Vec::new();
    for device in &devices.trained {
        if !is_exact(device)? {
            warnings.push(format!(
                "{device:?} may add in another order with every launch: the same bits are not promised on it"
            ));
        }
    }
    Ok(warnings)
}

/// Whether sums on this device are added in one order, so that the weights are the same bits on every run and
/// on every machine of a kind. A kernel of a GPU may choose another order with every launch.
///
/// # Errors
///
/// As [`check`].
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
