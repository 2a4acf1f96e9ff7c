//! Types of lower precision.

use burn::tensor::{Device, FloatDType};

/// Type in which [lowered](super::OPERATIONS) operations compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 24 bits of precision: nothing is lowered.
    #[default]
    F32,
    /// 8 bits of precision, and the range of `f32`.
    Bf16,
    /// 11 bits of precision, numbers from 6·10⁻⁸ to 65,504: gradients need a scaled loss.
    F16,
}

impl Precision {
    /// All precisions, with their names for users.
    pub const ALL: [(&'static str, Precision); 3] =
        [("f32", Precision::F32), ("bf16", Precision::Bf16), ("f16", Precision::F16)];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        let known = Self::ALL.iter().find(|(_, precision)| *precision == self);
        known.map_or("", |(name, _)| name)
    }

    /// Returns true if a device can compute lowered operations in this type.
    pub fn is_on(self, device: &Device) -> bool {
        // `flex` computes in f32, with values of the type.
        self.dtype().is_none_or(|dtype| crate::is_flex(device) || device.supports_dtype(dtype))
    }

    pub(super) fn dtype(self) -> Option<FloatDType> {
        match self {
            Precision::F32 => None,
            Precision::Bf16 => Some(FloatDType::BF16),
            Precision::F16 => Some(FloatDType::F16),
        }
    }
}
