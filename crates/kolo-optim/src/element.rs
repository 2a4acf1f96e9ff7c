//! Element types, and their form in flat memory, which is an array of `f32`.
//!
//! Integers and truth values have to keep all their bits over the wire and in files, and must pass a test for
//! finite values. An integer is therefore stored as four digits of 16 bits, each of which an `f32` holds
//! exactly.

/// Digits of an integer, of `BITS` bits each.
const DIGITS: usize = 4;
const BITS: u32 = 16;

/// Type of a tensor's elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Element {
    /// 32-bit floats.
    #[default]
    F32,
    /// Integers of up to 64 bits.
    I64,
    /// Truth values.
    Bool,
}

impl Element {
    /// Returns the number of `f32` values that an element takes in flat memory.
    pub fn values(self) -> usize {
        match self {
            Element::F32 | Element::Bool => 1,
            Element::I64 => DIGITS,
        }
    }

    /// Returns the name of the type in safetensors.
    pub fn dtype(self) -> &'static str {
        match self {
            Element::F32 => "F32",
            Element::I64 => "I64",
            Element::Bool => "BOOL",
        }
    }

    /// Returns the type with this name in safetensors, if Kolo has it.
    pub fn of_dtype(dtype: &str) -> Option<Self> {
        [Element::F32, Element::I64, Element::Bool].into_iter().find(|element| element.dtype() == dtype)
    }

    /// Returns the size of an element in files, in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Element::F32 => size_of::<f32>(),
            Element::I64 => size_of::<i64>(),
            Element::Bool => 1,
        }
    }

    /// Converts values of flat memory to elements in files, which are little-endian.
    pub fn to_bytes(self, values: &[f32]) -> Vec<u8> {
        match self {
            Element::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Element::I64 => integers(values).into_iter().flat_map(i64::to_le_bytes).collect(),
            Element::Bool => values.iter().map(|value| u8::from(*value != 0.0)).collect(),
        }
    }

    /// Converts elements in files to values of flat memory.
    pub fn from_bytes(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Element::F32 => {
                let words = bytes.as_chunks().0.iter();
                words.map(|word| f32::from_le_bytes(*word)).collect()
            }
            Element::I64 => {
                let words = bytes.as_chunks().0.iter();
                of_integers(words.map(|word| i64::from_le_bytes(*word)))
            }
            Element::Bool => bytes.iter().map(|byte| f32::from(u8::from(*byte != 0))).collect(),
        }
    }
}

/// Converts integers to values of flat memory: the digits of each, lowest first.
pub fn of_integers(integers: impl IntoIterator<Item = i64>) -> Vec<f32> {
    let digits = |integer: i64| {
        (0..DIGITS as u32).map(move |digit| f32::from((integer as u64 >> (BITS * digit)) as u16))
    };
    integers.into_iter().flat_map(digits).collect()
}

/// Converts values of flat memory back to integers.
pub fn integers(values: &[f32]) -> Vec<i64> {
    let (all, _) = values.as_chunks::<DIGITS>();
    let integer = |digits: &[f32; DIGITS]| {
        digits.iter().rev().fold(0, |integer: u64, digit| integer << BITS | u64::from(*digit as u16))
    };
    all.iter().map(|digits| integer(digits) as i64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_all_bits_and_are_finite_values() {
        let all = [0, 1, -1, i64::MIN, i64::MAX, 1 << 53 | 1, -(1 << 24) - 1, 0x7FC0_0001_7F80_0000];
        let values = of_integers(all);
        assert_eq!(values.len(), all.len() * Element::I64.values());
        assert!(values.iter().all(|value| value.is_finite()));
        assert_eq!(integers(&values), all);
    }

    #[test]
    fn elements_survive_conversion_to_bytes() {
        for (element, values) in [
            (Element::F32, vec![1.5, -0.0, f32::MIN_POSITIVE]),
            (Element::I64, of_integers([7, -3])),
            (Element::Bool, vec![1.0, 0.0, 1.0]),
        ] {
            let bytes = element.to_bytes(&values);
            assert_eq!(bytes.len(), values.len() / element.values() * element.bytes());
            assert_eq!(element.from_bytes(&bytes), values, "{element:?}");
            assert_eq!(Element::of_dtype(element.dtype()), Some(element));
        }
        assert_eq!(Element::Bool.from_bytes(&[2]), [1.0]);
        assert_eq!(Element::of_dtype("F64"), None);
    }
}
