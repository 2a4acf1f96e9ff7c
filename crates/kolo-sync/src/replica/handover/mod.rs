//! Divided state whose owners change: ranks die, leave or join, and the new owners get what they need. The
//! decision is [`kolo_values::handover`].

mod moving;
pub(crate) mod progress;
