//! The device on which a run computes, by name.

use super::Recipe;
use crate::error::Error;

/// Kinds of devices on which a run may compute: Kolo's layers on the CPU, and Burn's devices by its names.
pub const DEVICES: [&str; 5] = ["flex", "cpu", "cuda", "rocm", "wgpu"];

impl Recipe {
    /// Returns the kind of the run's device, one of [`DEVICES`], and the number of the device if one is
    /// given.
    ///
    /// # Errors
    ///
    /// There is no device of that name; lists the known ones.
    pub fn device(&self) -> Result<(&'static str, Option<usize>), Error> {
        let (kind, number) = match self.device.split_once(':') {
            Some((kind, number)) => (kind, Some(number)),
            None => (&*self.device, None),
        };
        let kind = DEVICES.into_iter().find(|known| *known == kind);
        let kind = kind.ok_or_else(|| Error::unknown("--device", &self.device, DEVICES))?;
        let number = number.map(str::parse).transpose().map_err(|_| {
            let problem = format!("give the number of a device after the colon, as {kind}:0");
            Error::setting("--device", &self.device, problem)
        })?;
        Ok((kind, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_kind_and_perhaps_a_number() {
        let device = |name: &str| Recipe { device: name.into(), ..Recipe::default() }.device();
        assert_eq!(Recipe::default().device().unwrap(), ("flex", None));
        assert_eq!(device("cuda").unwrap(), ("cuda", None));
        assert_eq!(device("wgpu:12").unwrap(), ("wgpu", Some(12)));
        let error = |name: &str| device(name).unwrap_err().to_string();
        assert_eq!(error("gpu"), "unknown --device `gpu`; known are flex, cpu, cuda, rocm, wgpu");
        assert_eq!(
            error("cuda:x"),
            "--device cuda:x: give the number of a device after the colon, as cuda:0"
        );
        assert_eq!(
            error("cuda:-1"),
            "--device cuda:-1: give the number of a device after the colon, as cuda:0"
        );
    }
}
