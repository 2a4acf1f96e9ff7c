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

#[cfg(test)]
mod tests {
    use crate::table::{Choice, Value};
    use crate::{Adam, AdamW, Lamb, Lars, Lion, Muon, OPTIMIZERS, Optimizer, Settings, Sgd};

    /// Types and text have the same defaults and the same settings.
    #[test]
    fn each_type_has_the_settings_of_its_entry() {
        let built = [
            Sgd::default().build(),
            Adam::default().build(),
            AdamW::default().build(),
            Lars::default().build(),
            Lamb::default().build(),
            Lion::default().build(),
            Muon::default().build(),
        ];
        assert_eq!(built.len(), OPTIMIZERS.len());
        for (optimizer, entry) in built.into_iter().zip(OPTIMIZERS) {
            let optimizer = optimizer.unwrap();
            let defaults = entry.complete(&Settings::default()).unwrap();
            assert_eq!((optimizer.name(), optimizer.settings()), (entry.name, defaults));
        }
    }

    #[test]
    fn what_is_given_is_what_the_text_gives() {
        let adamw = AdamW { weight_decay: 0.1, beta2: 0.95, freeze_after: 100, ..AdamW::default() };
        let choice: Choice = "adamw:weight_decay=0.1,beta2=0.95,freeze_after=100".parse().unwrap();
        let named = crate::named(&choice.name, &choice.settings).unwrap();
        assert_eq!(adamw.build().unwrap().settings(), named.settings());
        let muon = Muon { nesterov: false, ..Muon::default() };
        assert_eq!(muon.settings().get("nesterov"), Some(Value::Flag(false)));
    }

    #[test]
    fn a_value_that_is_not_allowed_is_refused_with_the_allowed_ones() {
        let error = |adamw: AdamW| adamw.build().err().unwrap().to_string();
        for (adamw, words) in [
            (
                AdamW { beta1: 1.0, ..AdamW::default() },
                "beta1 of adamw is 1; it must be at least 0 and below 1",
            ),
            (AdamW { beta2: f32::NAN, ..AdamW::default() }, "beta2 of adamw is NaN; it must be"),
            (AdamW { epsilon: f32::INFINITY, ..AdamW::default() }, "epsilon of adamw is inf; it must be"),
            (AdamW { weight_decay: -0.5, ..AdamW::default() }, "weight_decay of adamw is -0.5; it must be"),
        ] {
            assert!(error(adamw).starts_with(words), "{}", error(adamw));
        }
    }
}
