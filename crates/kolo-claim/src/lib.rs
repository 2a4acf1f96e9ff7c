//! Exclusive write access to a folder that several processes or hosts reach.
//!
//! The folder holds *claims*: files, each with a number, the *term*. The newest claim's owner may write.
//! Before each write it checks that its claim is still there ([`Held::check`]), because a later claim
//! removes it. Of two processes that claim the same term exactly one gets it ([`ClaimFiles::create`]).
//!
//! [`take`] claims a folder by the rules of [`decide`]. A free folder, or one whose owner is dead, goes
//! to any candidate. The next generation of the owner's own job takes it from a living owner. All other
//! candidates are refused with the owner's name. An owner on another host cannot be checked; it renews
//! its claim every few seconds, and counts as dead if it has not done so for [`Timing::lease`].
//!
//! A claimant removes earlier claims before it writes. A claimant that dies before that has written
//! nothing, and the owner of the earlier claim goes on ([`ClaimFiles::in_force`]).
//!
//! A process can be stopped between the check and the write, and continue after it has been fenced off,
//! because a file system has no write that depends on a claim. It can then still do that one write.

mod claim;
mod decide;
mod error;
mod exclusive;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod held;
mod owner;
mod take;

pub use claim::{Candidate, Claim};
pub use decide::{Decision, decide};
pub use error::{Error, Refusal, RefusalKind};
pub use exclusive::{DRAFT, create_exclusively};
pub use files::{ClaimFiles, Standing};
pub use held::Held;
pub use owner::{Liveness, Owner};
pub use take::{Timing, is_written, take, take_with, wait_until_free};
