//! Exchange of any values that serde can write, encoded by postcard, for data that is too small or too
//! irregular for a collective over numbers.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::group::Group;
use kolo_rendezvous::Error;
use kolo_schedule::Rank;

impl Group {
    /// Gathers the values of all ranks, in rank order. Costs two all-gathers: of lengths and of bytes.
    ///
    /// ```
    /// # let group = kolo_comm::Group::from_env()?;
    /// let all = group.all_gather_value(&("host", 2.5))?;
    /// # let all: Vec<(String, f64)> = all;
    /// # assert_eq!(all, [("host".to_string(), 2.5)]);
    /// # Ok::<(), kolo_comm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`Group::run`]; also if a rank sent a value of another type.
    pub fn all_gather_value<S: Serialize, T: DeserializeOwned>(&self, own: &S) -> Result<Vec<T>, Error> {
        let own = postcard::to_allocvec(own);
        let own = own.map_err(|cause| Error::system("cannot encode a value for the other ranks", cause))?;
        let all = self.all_gather_varied(&own)?;
        all.iter().enumerate().map(|(from, bytes)| decode(Rank(from), bytes)).collect()
    }

    /// Sends the root's value to every rank. Costs two broadcasts: of the length and of the bytes.
    ///
    /// # Errors
    ///
    /// Same as [`Group::run`]; also if the root sent a value of another type.
    pub fn broadcast_value<T: Serialize + DeserializeOwned>(&self, own: T, root: Rank) -> Result<T, Error> {
        let bytes = postcard::to_allocvec(&own);
        let bytes =
            bytes.map_err(|cause| Error::system("cannot encode a value for the other ranks", cause))?;
        let mut len = [bytes.len() as i64];
        self.broadcast(&mut len, root)?;
        if self.rank() == root {
            let mut bytes = bytes;
            self.broadcast(&mut bytes, root)?;
            return Ok(own);
        }
        let mut bytes = vec![0; usize::try_from(len[0]).unwrap_or(0)];
        self.broadcast(&mut bytes, root)?;
        decode(root, &bytes)
    }
}

fn decode<T: DeserializeOwned>(from: Rank, bytes: &[u8]) -> Result<T, Error> {
    postcard::from_bytes(bytes)
        .map_err(|cause| Error::system(format!("{from} sent an unreadable value"), cause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads;

    #[test]
    fn values_arrive_as_they_were() {
        threads::spawn(3, |group| {
            let own = (group.rank(), vec![f64::INFINITY; group.rank().0], "ä".repeat(group.rank().0));
            let all: Vec<(Rank, Vec<f64>, String)> = group.all_gather_value(&own).unwrap();
            assert_eq!(all[group.rank().0], own);
            assert_eq!(all[2], (Rank(2), vec![f64::INFINITY; 2], "ää".to_string()));
            assert_eq!(group.broadcast_value(own, Rank(1)).unwrap(), all[1]);
            let wrong = group.all_gather_value::<_, (u64, u64)>(&1u8).unwrap_err().to_string();
            assert!(wrong.contains("rank 0 sent an unreadable value"), "{wrong}");
        })
        .unwrap();
    }
}
