//! A worker's connection to the coordinator of its node, which reconnects when it breaks.

use std::net::SocketAddr;
use std::time::Duration;

use kolo_rendezvous::Error;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Store;

/// A live coordinator accepts a connection within this time.
const RECONNECT: Duration = Duration::from_secs(2);
/// Maximum number of reconnections for one request.
const TRIES: usize = 3;

/// A connection to the coordinator that survives breaks: it repeats the request over a new connection.
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

    /// Sends a request, and repeats it over a new connection if the last one has broken. The coordinator may
    /// therefore receive a request twice.
    pub(crate) fn request<T>(
        &mut self,
        request: impl Fn(&mut Store) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut done = request(&mut self.store);
        for _ in 0..TRIES {
            if !matches!(done, Err(Error::StoreLost { .. })) {
                break;
            }
            // If the coordinator is gone, the first error says more than that of a refused connection.
            let Ok(store) = Store::connect_served(self.address, &self.access, RECONNECT) else { break };
            self.store = store;
            done = request(&mut self.store);
        }
        done
    }
}
