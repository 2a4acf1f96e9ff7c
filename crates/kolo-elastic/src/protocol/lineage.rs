//! The generations that the next one may follow, as far as a launcher knows.

use std::collections::{BTreeMap, BTreeSet};

use crate::arbiter::Predecessor;
use crate::generation::{Formed, GenerationId, History};

/// The announced generations, and the histories that members have reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lineage {
    announced: BTreeMap<GenerationId, Formed>,
    /// The last generation that some member has formed. Earlier generations are over.
    formed: Option<GenerationId>,
    /// Identities of members whose own launcher has reported their end.
    dead: BTreeSet<String>,
    /// The highest number of all generations that this launcher knows of.
    newest: u64,
}

impl Lineage {
    /// Records a generation that its leader has announced to its members.
    pub(crate) fn announced(&mut self, formed: &Formed) {
        self.newest = self.newest.max(formed.generation);
        self.announced.insert(formed.id(), formed.clone());
        self.forget_the_old();
    }

    pub(crate) fn reported(&mut self, history: &History) {
        let numbers = history.formed.iter().chain(&history.entered).map(|id| id.number);
        self.newest = self.newest.max(numbers.max().unwrap_or(0));
        self.formed = self.formed.max(history.formed);
        self.forget_the_old();
    }

    /// Records a member's end, by its identity. Only the member's own launcher knows of it for certain.
    pub(crate) fn died(&mut self, identity: &str) {
        self.dead.insert(identity.into());
        self.forget_the_old();
    }

    /// Iterates over the members that are known to be dead.
    pub(crate) fn dead(&self) -> impl Iterator<Item = &String> {
        self.dead.iter()
    }

    fn forget_the_old(&mut self) {
        let formed = self.formed.map_or(0, |id| id.number);
        self.announced.retain(|id, _| id.number >= formed);
        let announced = &self.announced;
        self.dead.retain(|dead| announced.values().any(|formed| formed.identities.contains(dead)));
    }

    /// Highest number of all known generations; 0 before the first.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns the generations that another launcher must know when it leads.
    pub(crate) fn generations(&self) -> Vec<Formed> {
        self.announced.values().cloned().collect()
    }

    /// Returns the generations that the next one may follow if its members have these histories: the last
    /// formed one, and later ones that some of them have entered, because others may have formed these.
    pub(crate) fn predecessors<'a>(&self, histories: impl Iterator<Item = &'a History>) -> Vec<Predecessor> {
        let mut ids: BTreeSet<GenerationId> = histories.flat_map(|history| history.entered.clone()).collect();
        let formed = self.formed.map_or(0, |id| id.number);
        ids.retain(|id| id.number >= formed);
        ids.extend(self.formed);
        let alive = |formed: &Formed| {
            let alive = formed.identities.iter().filter(|identity| !self.dead.contains(*identity));
            alive.cloned().collect()
        };
        ids.into_iter().map(|id| Predecessor { id, members: self.announced.get(&id).map(alive) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formed(generation: u64, members: &[&str]) -> Formed {
        let identities = members.iter().map(|member| member.to_string()).collect();
        Formed { generation, leader: 1, identities, ..Formed::default() }
    }

    #[test]
    fn the_next_generation_follows_all_that_may_have_been_formed() {
        let id = |number| GenerationId { number, leader: 1 };
        let predecessor = |number, members: &[&str]| {
            let members = members.iter().map(|member| member.to_string()).collect();
            Predecessor { id: id(number), members: Some(members) }
        };
        let mut lineage = Lineage::default();
        assert_eq!((lineage.predecessors([].iter()), lineage.newest()), (Vec::new(), 0));
        lineage.announced(&formed(1, &["a", "b", "c"]));
        lineage.announced(&formed(2, &["a", "c"]));
        let a = History { formed: Some(id(1)), entered: vec![id(2)] };
        let b = History { formed: Some(id(1)), entered: Vec::new() };
        lineage.reported(&a);
        lineage.reported(&b);
        assert_eq!(lineage.predecessors([&b].into_iter()), [predecessor(1, &["a", "b", "c"])]);
        let both = [predecessor(1, &["a", "b", "c"]), predecessor(2, &["a", "c"])];
        assert_eq!(lineage.predecessors([&a, &b].into_iter()), both);
        lineage.died("c");
        assert_eq!(lineage.predecessors([&b].into_iter()), [predecessor(1, &["a", "b"])]);
        // A report that generation 2 was formed leaves b alone with nothing to go on from.
        lineage.reported(&History { formed: Some(id(2)), entered: Vec::new() });
        assert_eq!(lineage.predecessors([&b].into_iter()), [predecessor(2, &["a"])]);
        assert_eq!((lineage.generations().len(), lineage.newest()), (1, 2));
        let unknown = History { formed: Some(id(2)), entered: vec![id(5)] };
        lineage.reported(&unknown);
        assert_eq!(lineage.predecessors([&unknown].into_iter())[1], Predecessor { id: id(5), members: None });
        assert_eq!(lineage.newest(), 5);
    }
}
