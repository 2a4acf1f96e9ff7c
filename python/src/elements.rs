//! Types of elements and reductions that Python knows. Kolo's collectives know seven of the types; the others
//! are moved as bytes and reduced by way of those seven ([`crate::reduce`]).

use kolo_comm::DType;

/// Type of an element, by its code in [`ELEMENTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// A type of Kolo's collectives.
    Native(DType),
    I8,
    I16,
    U16,
    U32,
    U64,
    Bool,
    /// A pair of `f32`.
    C64,
    /// A pair of `f64`.
    C128,
    /// Any element of one byte, which is only moved.
    Byte,
}

/// The types with their names in numpy and torch, in the order of their codes.
pub const ELEMENTS: [(&str, ElementType); 16] = [
    ("float32", ElementType::Native(DType::F32)),
    ("float64", ElementType::Native(DType::F64)),
    ("int32", ElementType::Native(DType::I32)),
    ("int64", ElementType::Native(DType::I64)),
    ("uint8", ElementType::Native(DType::U8)),
    ("float16", ElementType::Native(DType::F16)),
    ("bfloat16", ElementType::Native(DType::Bf16)),
    ("int8", ElementType::I8),
    ("int16", ElementType::I16),
    ("uint16", ElementType::U16),
    ("uint32", ElementType::U32),
    ("uint64", ElementType::U64),
    ("bool", ElementType::Bool),
    ("complex64", ElementType::C64),
    ("complex128", ElementType::C128),
    ("byte", ElementType::Byte),
];

impl ElementType {
    /// Size of one element, in bytes.
    pub fn size(self) -> usize {
        match self {
            ElementType::Native(dtype) => dtype.size(),
            ElementType::I8 | ElementType::Bool | ElementType::Byte => 1,
            ElementType::I16 | ElementType::U16 => 2,
            ElementType::U32 => 4,
            ElementType::U64 | ElementType::C64 => 8,
            ElementType::C128 => 16,
        }
    }

    /// Alignment that an address must have, in bytes.
    pub fn alignment(self) -> usize {
        self.size().min(8) / if self == ElementType::C64 { 2 } else { 1 }
    }

    /// Name in numpy and torch.
    pub fn name(self) -> &'static str {
        ELEMENTS.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}

/// A way to combine the elements of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    Sum,
    Mean,
    Max,
    Min,
    Product,
    BitAnd,
    BitOr,
    BitXor,
}

/// The reductions with their names, in the order of their codes.
pub const REDUCTIONS: [(&str, Reduction); 8] = [
    ("sum", Reduction::Sum),
    ("mean", Reduction::Mean),
    ("max", Reduction::Max),
    ("min", Reduction::Min),
    ("product", Reduction::Product),
    ("band", Reduction::BitAnd),
    ("bor", Reduction::BitOr),
    ("bxor", Reduction::BitXor),
];

impl Reduction {
    /// Name in Python.
    pub fn name(self) -> &'static str {
        REDUCTIONS.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}
