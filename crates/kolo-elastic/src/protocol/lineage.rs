//! Which generations the next one may follow, as far as a launcher knows.

use std::collections::{BTreeMap, BTreeSet};

use crate::arbiter::Predecessor;
use crate::generation::{Formed, GenerationId, History};

/// The generations that have been told, and what members have said of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lineage {
    told: BTreeMap<GenerationId, Formed>,
    /// The last one that some member has formed. What was before it is over.
    formed: Option<GenerationId>,
    /// The identities of members whose end their own launcher has told.
    dead: BTreeSet<String>,
    /// The highest number that was ever heard of.
    newest: u64,
}

impl Lineage {
    /// Takes note of a generation that has been told to its members.
    pub(crate) fn told(&mut self, formed: &Formed) {
        self.newest = self.newest.max(formed.generation);
        self.told.insert(formed.id(), formed.clone());
        self.forget_the_old();
    }

    /// Takes note of what a member says that it has been in.
    pub(crate) fn heard(&mut self, history: &History) {
        let numbers = history.formed.iter().chain(&history.entered).map(|id| id.number);
        self.newest = self.newest.max(numbers.max().unwrap_or(0));
        self.formed = self.formed.max(history.formed);
        self.forget_the_old();
    }

    /// Takes note of a member's end, by its identity. Only its own launcher knows of it for certain.
    pub(crate) fn died(&mut self, identity: &str) {
        self.dead.insert(identity.into());
        self.forget_the_old();
    }

    /// The members that are known to be dead.
    pub(crate) fn dead(&self) -> impl Iterator<Item = &String> {
        self.dead.iter()
    }

    fn forget_the_old(&mut self) {
        let formed = self.formed.map_or(0, |id| id.number);
        self.told.retain(|id, _| id.number >= formed);
        let told = &self.told;
        self.dead.retain(|dead| told.values().any(|formed| formed.identities.contains(dead)));
    }

    /// The highest number that was ever heard of; 0 before the first generation.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// What another launcher needs to know of the generations when it leads.
    pub(crate) fn generations(&self) -> Vec<Formed> {
        self.told.values().cloned().collect()
    }

    /// The generations that the next one may follow, where its members have these histories: the last one
    /// that was formed, and those that some of them have entered since, because others may have formed these.
    pub(crate) fn predecessors<'a>(&self, histories: impl Iterator<Item = &'a History>) -> Vec<Predecessor> {
        let mut ids: BTreeSet<GenerationId> = histories.flat_map(|history| history.entered.clone()).collect();
        let formed = self.formed.map_or(0, |id| id.number);
        ids.retain(|id| id.number >= formed);
        ids.extend(self.formed);
        let alive = |formed: &Formed| {
            let alive = formed.identities.iter().filter(|identity| !self.dead.contains(*identity));
            alive.cloned().collect()
        };
        ids.into_iter().map(|id| Predecessor { id, members: self.told.get(&id).map(alive) }).collect()
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
    fn the_next_follows_what_was_formed_and_what_may_have_been() {
        let id = |number| GenerationId { number, leader: 1 };
        let predecessor = |number, members: &[&str]| {
            let members = members.iter().map(|member| member.to_string()).collect();
            Predecessor { id: id(number), members: Some(members) }
        };
        let mut lineage = Lineage::default();
        assert_eq!((lineage.predecessors([].iter()), lineage.newest()), (Vec::new(), 0));
        lineage.told(&formed(1, &["a", "b", "c"]));
        lineage.told(&formed(2, &["a", "c"]));
        let a = History { formed: Some(id(1)), entered: vec![id(2)] };
        let b = History { formed: Some(id(1)), entered: Vec::new() };
        lineage.heard(&a);
        lineage.heard(&b);
        assert_eq!(lineage.predecessors([&b].into_iter()), [predecessor(1, &["a", "b", "c"])]);
        let both = [predecessor(1, &["a", "b", "c"]), predecessor(2, &["a", "c"])];
        assert_eq!(lineage.predecessors([&a, &b].into_iter()), both);
        lineage.died("c");
        assert_eq!(lineage.predecessors([&b].into_iter()), [predecessor(1, &["a", "b"])]);
        // Somebody tells that generation 2 was formed: then b alone has nothing to go on from.
        lineage.heard(&History { formed: Some(id(2)), entered: Vec::new() });
        assert_eq!(lineage.predecessors([&b].into_iter()), [predecessor(2, &["a"])]);
        assert_eq!((lineage.generations().len(), lineage.newest()), (1, 2));
        let unknown = History { formed: Some(id(2)), entered: vec![id(5)] };
        lineage.heard(&unknown);
        assert_eq!(lineage.predecessors([&unknown].into_iter())[1], Predecessor { id: id(5), members: None });
        assert_eq!(lineage.newest(), 5);
    }
}
