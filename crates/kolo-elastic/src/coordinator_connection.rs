//! A worker's connection to the coordinator of its node, made anew when it breaks.

use std::net::SocketAddr;
use std::time::Duration;

use kolo_rendezvous::Error;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Store;

/// A coordinator that lives answers within this time.
const RECONNECT: Duration = Duration::from_secs(2);
/// The connection is made anew so often for one request.
const TRIES: usize = 3;

/// A connection to the coordinator that outlives breaks: requests are made once more over a new one.
pub(crate) struct CoordinatorConnection {
    address: SocketAddr,
    access: Access,
    store: Store,
}

impl CoordinatorConnection {
    /// Connects, waiting up to `timeout` for the coordinator to serve.
    pub(crate) fn open(
        address: SocketAddr,
        access: &Access,
        timeout: Duration,
    ) -> Result<CoordinatorConnection, Error> {
        let store = Store::connect(address, access, timeout)?;
        Ok(CoordinatorConnection { address, access: access.clone(), store })
    }

    /// Makes a request, once more over a new connection where the last one has broken: it may be done twice.
    pub(crate) fn request<T>(
        &mut self,
        request: impl Fn(&mut Store) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut done = request(&mut self.store);
        for _ in 0..TRIES {
            if !matches!(done, Err(Error::StoreLost { .. })) {
                break;
            }
            // Where the coordinator is gone the broken connection tells more than the one that is refused.
            let Ok(store) = Store::connect_served(self.address, &self.access, RECONNECT) else { break };
            self.store = store;
            done = request(&mut self.store);
        }
        done
    }
}
