//! Copies of a rank's state, to which an elastic job goes back if a rank dies with state that only it has.

pub(crate) mod copies;

pub use self::copies::{Backup, Backups};
pub use kolo_reduction::state::{Held, kept, newest};
