//! Sub-groups: some of the ranks of a group, with their own collectives.

use crate::group::Group;
use kolo_rendezvous::Error;
use kolo_schedule::Rank;
use kolo_transport::{Connecting, connect};

impl Group {
    /// Splits the group: ranks with the same color form a group, ordered by key, then by rank in this
    /// group. A rank without a color gets no group. All ranks must call it. Equals `MPI_Comm_split`.
    ///
    /// The new groups can be used at the same time as this one. When a rank dies, all groups fail.
    ///
    /// # Errors
    ///
    /// Same as [`Group::run`]; also if memory cannot be shared or connections cannot be made.
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Group>, Error> {
        let mine = [color.map_or(-1, i64::from), key];
        let mut all = vec![0i64; 2 * self.world_size()];
        self.all_gather(&mine, &mut all)?;
        let mut members: Vec<(i64, Rank)> = (0..self.world_size())
            .filter(|rank| all[2 * rank] == mine[0])
            .map(|rank| (all[2 * rank + 1], Rank(rank)))
            .collect();
        members.sort();
        let members: Vec<Rank> = match color {
            Some(_) => members.into_iter().map(|(_, rank)| rank).collect(),
            None => vec![self.rank()],
        };
        let index = members.iter().position(|member| *member == self.rank());
        let rank = Rank(index.expect("a rank has the color it gave"));
        // Ranks without a color take part because this group's all-gather carries the messages.
        let Some(context) = &self.context else {
            let backend = self.split_backend(rank, &members)?;
            return Ok(color.map(|_| self.beside(rank, &members, backend)));
        };
        let group = Connecting { rank, world: members.len(), context, liveness: self.liveness() };
        // All ranks take part in every exchange, whatever group they form.
        let mut exchange = |_: &str, own: String| {
            let all = self.all_gather_varied(own.as_bytes())?;
            Ok(members.iter().map(|member| String::from_utf8_lossy(&all[member.0]).into_owned()).collect())
        };
        let connected = connect(&group, &mut exchange)?;
        match color {
            Some(_) => self.within(rank, &members, connected).map(Some),
            None => Ok(None),
        }
    }

    /// Creates the group of the ranks that share memory with this one. All ranks must call it. Fails as
    /// [`Group::split`] does.
    pub fn node(&self) -> Result<Group, Error> {
        let color = self.topology().node_of(self.rank()) as u32;
        Ok(self.split(Some(color), 0)?.expect("a rank with a color gets a group"))
    }

    /// Creates the group of the first ranks of all nodes; `None` on other ranks. All ranks must call it.
    /// Fails as [`Group::split`] does.
    pub fn firsts(&self) -> Result<Option<Group>, Error> {
        let topology = self.topology();
        let first = topology.nodes()[topology.node_of(self.rank())].first() == Some(&self.rank());
        self.split(first.then_some(0), 0)
    }
}
