//! Copies of a rank's state, to which an elastic job goes back if a rank dies with state that only it has.

pub(crate) mod copies;
mod keepers;
mod newest;

pub use self::copies::{Backup, Backups};
pub use self::keepers::kept;
pub use self::newest::{Held, newest};
