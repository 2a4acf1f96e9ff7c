//! Settings of a table's entry as a type, beside their text.

use crate::settings::Value;

/// Type of a field of [`typed_settings!`](crate::typed_settings).
pub trait Field: Copy {
    /// Returns the value as that of a setting.
    fn value(self) -> Value;

    /// Returns the value of a setting; `None` if it is of another kind.
    fn of(value: Value) -> Option<Self>;
}

impl Field for bool {
    fn value(self) -> Value {
        Value::Flag(self)
    }

    fn of(value: Value) -> Option<Self> {
        match value {
            Value::Flag(flag) => Some(flag),
            Value::Number(_) => None,
        }
    }
}

/// Implements [`Field`] for types of numbers, by way of `f64`.
macro_rules! numbers {
    ($($number:ty: $value:expr),*) => {$(
        impl Field for $number {
            fn value(self) -> Value {
                let value: fn($number) -> f64 = $value;
                Value::Number(value(self))
            }

            fn of(value: Value) -> Option<Self> {
                match value {
                    Value::Number(number) => Some(number as $number),
                    Value::Flag(_) => None,
                }
            }
        }
    )*};
}

numbers! {
    f64: |number| number,
    // The shortest number that rounds to it: 0.1, not 0.10000000149.
    f32: |number| number.to_string().parse().unwrap_or(f64::NAN),
    u64: |number| number as f64,
    usize: |number| number as f64
}

/// Defines a struct with a field for each setting of an [`Entry`](crate::table::Entry), whose defaults are
/// those of the entry. Its method `build` makes what the entry makes.
#[doc(hidden)]
#[macro_export]
macro_rules! typed_settings {
    (
        $(#[$about:meta])*
        pub struct $name:ident of $entry:path: $made:ty {
            $($(#[$doc:meta])* $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $name {
            /// Reads settings that have a value for each field.
            pub(crate) fn read(settings: &$crate::Settings) -> Self {
                let read = |name| settings.get(name).expect("an entry lists the fields of its settings");
                $name {
                    $($field: $crate::typed::Field::of(read(stringify!($field))).expect("of the setting's kind"),)*
                }
            }

            /// Returns the settings by name.
            pub fn settings(&self) -> $crate::Settings {
                $crate::Settings::default()
                    $(.with(stringify!($field), $crate::typed::Field::value(self.$field)))*
            }

            /// Checks the settings, and builds what they describe.
            ///
            /// # Errors
            ///
            /// A value is not allowed; the error names it, and the allowed ones.
            pub fn build(&self) -> ::std::result::Result<::std::boxed::Box<$made>, $crate::ChoiceError> {
                $entry.build(&self.settings())
            }
        }

        impl ::std::default::Default for $name {
            fn default() -> Self {
                $name::read(&$entry.defaults())
            }
        }
    };
}
