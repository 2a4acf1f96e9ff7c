//! A launcher's own store, which it serves to the other launchers: see `launcher_protocol`.

use std::net::SocketAddr;
use std::time::Duration;

use kolo_rendezvous::Error;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::{Server, get_once};
use serde::Serialize;

use crate::launcher_protocol::VIEW;
use crate::launcher_view::LauncherView;

/// Publishes a launcher's view in its own store.
pub(crate) fn publish_view(store: &Server, view: &LauncherView) {
    put(store, VIEW, view);
}

/// Returns the view that the launcher at `address` publishes; `None` if none answers in time.
/// [`Error::TokenDiffers`]: a launcher of Kolo with another token listens there.
pub(crate) fn probe_view(
    address: SocketAddr,
    access: &Access,
    timeout: Duration,
) -> Result<Option<LauncherView>, Error> {
    match get_once(address, access, VIEW, timeout) {
        Ok(text) => Ok(text.and_then(|text| serde_json::from_str(&text).ok())),
        Err(error) => match error.token_rejection() {
            Some(reason) => Err(Error::TokenDiffers { address, reason }),
            None => Ok(None),
        },
    }
}

/// Sets a key of a launcher's own store, and logs a failure.
pub(crate) fn put(store: &Server, key: &str, value: &impl Serialize) {
    let text = serde_json::to_string(value).map_err(|error| error.to_string());
    if let Err(why) = text.and_then(|text| store.set(key, text)) {
        log::error!("the launcher cannot keep `{key}`: {why}");
    }
}
