//! `Debug` for types some of whose fields have none.

/// Implements `Debug` for a struct that shows its name and some of its fields. Generic parameters stand
/// before it.
///
/// ```
/// struct Task<F> {
///     name: &'static str,
///     work: F,
/// }
/// kolo_schedule::opaque_debug!([F: Fn()] Task<F> { name });
///
/// let task = Task { name: "wait", work: || () };
/// (task.work)();
/// assert_eq!(format!("{task:?}"), "Task { name: \"wait\", .. }");
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! opaque_debug {
    ($([$($generics:tt)+])? $name:ident $(<$($argument:tt),+>)? $({ $($field:ident),+ })?) => {
        impl $(<$($generics)+>)? ::std::fmt::Debug for $name $(<$($argument),+>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $($(.field(stringify!($field), &self.$field))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}
