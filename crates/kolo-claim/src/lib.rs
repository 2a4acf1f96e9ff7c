//! Who may write a folder that several processes or hosts reach.
//!
//! The folder holds *claims*: files, each with a number, the *term*. The newest claim's owner may write, and
//! asks before each write whether its claim is still there ([`Held::check`]); a later claim removes it. Of
//! two processes that claim the same term exactly one gets it ([`ClaimFiles::create`]).
//!
//! [`take`] claims a folder by the rules of [`decide`]: a free folder, or one whose owner is dead, goes to
//! whoever asks; the next generation of the owner's own job takes it from the living; everybody else is
//! refused with the owner's name. An owner that cannot be asked, because it is on another host, renews its
//! claim every few seconds, and counts as dead when it has not done so for [`Timing::lease`].
//!
//! A claimant removes earlier claims before it writes. One that has died before it could has written nothing,
//! and the owner of the earlier claim goes on ([`ClaimFiles::in_force`]).
//!
//! Between the question and the write a process can be stopped, and continue as one that is fenced off: a
//! file system has no write that depends on a claim. What it may still do then is that one write.

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
pub use exclusive::create_exclusively;
pub use files::{ClaimFiles, Standing};
pub use held::Held;
pub use owner::{Liveness, Owner};
pub use take::{Timing, take, take_with, wait_until_free};
