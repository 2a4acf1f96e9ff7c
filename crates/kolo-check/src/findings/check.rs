use kolo_report::findings::Entry;

use crate::facts::Facts;

pub use kolo_report::findings::{Finding, Found, Severity};

/// Entry of the table of checks.
pub type Check = Entry<Facts>;
