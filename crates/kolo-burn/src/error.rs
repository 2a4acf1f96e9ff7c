//! What can go wrong in training a Burn model.

/// An error of the binding.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A data-parallel step failed.
    #[error(transparent)]
    Ddp(#[from] kolo_ddp::Error),
    /// The model or its tensors are not what Kolo can train.
    #[error("{0}")]
    Backend(String),
}

impl From<kolo_comm::Error> for Error {
    fn from(error: kolo_comm::Error) -> Self {
        Error::Ddp(error.into())
    }
}
