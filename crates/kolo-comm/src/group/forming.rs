//! How groups come to be: from the environment, at a place, over a backend, as a part of another one.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use super::{Bond, Group, LINGER, Shared};
use crate::backend::{Backend, FormedBackend};
use crate::deadline::Deadline;
use crate::engine::Engine;
use crate::membership::{self, Founded, Ground, Host};
use crate::memory::{Backing, Pool};
use crate::options::Options;
use kolo_rendezvous::Error;
use kolo_rendezvous::env::{self, WorkerEnv};
use kolo_rendezvous::{Liveness, lock};
use kolo_schedule::Rank;
use kolo_schedule::Topology;

/// Who a group's ranks are.
struct Seats {
    rank: Rank,
    /// The job's rank of each of the group's.
    members: Arc<[Rank]>,
    topology: Arc<Topology>,
}

impl Group {
    /// The group of the job this process belongs to, by the environment of its launcher (see [`kolo_rendezvous::env`]); without a
    /// launcher, a group of one. See [`Options::backend`] for groups that another backend forms.
    ///
    /// # Errors
    ///
    /// The environment contradicts itself, the rendezvous fails, or ranks do not arrive in time.
    pub fn from_env() -> Result<Group, Error> {
        Group::of_job(&Options::from_env()?)
    }

    /// As [`Group::from_env`], but with these options instead of those that the environment gives.
    ///
    /// # Errors
    ///
    /// As [`Group::from_env`].
    pub fn of_job(options: &Options) -> Result<Group, Error> {
        if let Some(kind) = options.backend {
            return Group::foreign((kind.form)(env::rank_and_world_size()?, options)?, options);
        }
        match WorkerEnv::from_env()? {
            None => Ok(Group::alone()),
            Some(place) => Group::join(&place, options),
        }
    }

    /// The group of the job at `place`. MPI meets without it, but must give this process the same rank.
    ///
    /// # Errors
    ///
    /// The rendezvous fails, ranks do not arrive in time, or the algorithm asked for cannot be used on this group.
    pub fn join(place: &WorkerEnv, options: &Options) -> Result<Group, Error> {
        if let Some(kind) = options.backend {
            let said = (place.rank, place.world_size);
            return Group::foreign((kind.form)(Some(said), options)?, options);
        }
        Group::at(place, options, Host::Rank0)
    }

    /// As [`Group::join`], where somebody else serves the store at the place's master.
    ///
    /// # Errors
    ///
    /// As [`Group::join`].
    pub fn join_served(place: &WorkerEnv, options: &Options) -> Result<Group, Error> {
        Group::at(place, options, Host::Elsewhere)
    }

    fn at(place: &WorkerEnv, options: &Options, host: Host) -> Result<Group, Error> {
        if place.world_size == 1 {
            return Ok(Group::alone());
        }
        let formed = membership::form(place, options, host)?;
        let members = (0..place.world_size).map(Rank).collect();
        let bond = Bond::Store(Mutex::new(Some(formed.membership)));
        let pool = Pool::new(formed.founded.backing);
        Group::native(place.rank, members, formed.founded, formed.liveness, pool, bond, options)?.measured()
    }

    /// A group of one.
    pub fn alone() -> Group {
        let liveness = Arc::new(Liveness::new(1));
        let (bond, options) = (Bond::Alone, Options::default());
        let pool = Pool::new(Backing::Heap);
        Group::native(Rank(0), [Rank(0)].into(), Founded::alone(), liveness, pool, bond, &options)
            .expect("a group of one is asked for nothing special")
    }

    /// For [`crate::threads`].
    pub(crate) fn of_threads(
        rank: Rank,
        founded: Founded,
        liveness: Arc<Liveness>,
        options: &Options,
    ) -> Result<Group, Error> {
        let world = founded.topology.world();
        let (members, bond) = ((0..world).map(Rank).collect(), Bond::Threads(world));
        let pool = Pool::new(founded.backing);
        Group::native(rank, members, founded, liveness, pool, bond, options)
    }

    fn native(
        rank: Rank,
        members: Arc<[Rank]>,
        founded: Founded,
        liveness: Arc<Liveness>,
        pool: Arc<Pool>,
        bond: Bond,
        options: &Options,
    ) -> Result<Group, Error> {
        let Founded { transport, topology, ground, .. } = founded;
        let mut engine = Engine::new(
            rank,
            members.clone(),
            topology.clone(),
            transport,
            liveness.clone(),
            Deadline::new(options.timeout),
        );
        if members.len() > 1
            && let Err(error) = engine.force(options.algorithm)
        {
            // All ranks refuse alike; rank 0 keeps the store until all have heard all they need to see it.
            if let Bond::Store(membership) = bond {
                lock(&membership).take().into_iter().for_each(|membership| membership.leave(LINGER));
            }
            return Err(error);
        }
        let seats = Seats { rank, members, topology };
        Ok(Group::over(Box::new(engine), seats, Some(ground), liveness, pool, bond, options))
    }

    /// A group that a backend has formed by its own means.
    fn foreign(formed: FormedBackend, options: &Options) -> Result<Group, Error> {
        let FormedBackend { backend, rank, world, node, end } = formed;
        let members = (0..world).map(Rank).collect();
        let seats = Seats { rank, members, topology: Arc::new(Topology::separate(world)) };
        let liveness = Arc::new(Liveness::new(world));
        let pool = Pool::new(Backing::Heap);
        let mut group = Group::over(backend, seats, None, liveness, pool, Bond::Foreign(end), options);
        let nodes = group.all_gather_varied(node.as_bytes())?;
        group.topology = Arc::new(Topology::of_names(&nodes));
        Ok(group)
    }

    fn over(
        backend: Box<dyn Backend>,
        seats: Seats,
        ground: Option<Ground>,
        liveness: Arc<Liveness>,
        pool: Arc<Pool>,
        bond: Bond,
        options: &Options,
    ) -> Group {
        let Seats { rank, members, topology } = seats;
        let transport = backend.name();
        let (backend, queued) = (Mutex::new(backend), AtomicUsize::new(0));
        let shared = Arc::new(Shared { backend, liveness, queued, bond });
        let (worker, options) = (Mutex::default(), options.clone());
        Group { rank, members, topology, transport, pool, shared, worker, ground, options }
    }

    /// The sub-group of some ranks of this group, on ground that they have prepared together.
    pub(crate) fn within(&self, rank: Rank, members: &[Rank], founded: Founded) -> Result<Group, Error> {
        let members: Arc<[Rank]> = members.iter().map(|member| self.members[member.0]).collect();
        let mut options = self.options.clone();
        // What was asked for the whole group may be impossible on a part of it.
        options.algorithm = None;
        let (liveness, bond) = (self.shared.liveness.clone(), Bond::Within(self.shared.clone()));
        let group = Group::native(rank, members, founded, liveness, self.pool.clone(), bond, &options)?;
        let network = self.network();
        group.with_backend(|backend| backend.learn(network));
        if group.world_size() > 1 {
            // The same wish, where it can be granted.
            group.with_backend(|backend| backend.force(self.options.algorithm).is_ok());
        }
        Ok(group)
    }

    /// A backend for some ranks of this group, among them this one. All ranks call it, each with its own companions.
    pub(crate) fn split_backend(&self, rank: Rank, members: &[Rank]) -> Result<Box<dyn Backend>, Error> {
        let result = lock(&self.shared.backend).split(rank, members);
        result.map_err(|error| self.shared.failed(error))
    }

    /// The sub-group of some ranks of this group, over the backend that they have split off.
    pub(crate) fn beside(&self, rank: Rank, members: &[Rank], backend: Box<dyn Backend>) -> Group {
        let nodes: Vec<usize> = members.iter().map(|member| self.topology.node_of(*member)).collect();
        let topology = Arc::new(Topology::of_names(&nodes));
        let members = members.iter().map(|member| self.members[member.0]).collect();
        let (liveness, bond) = (self.shared.liveness.clone(), Bond::Within(self.shared.clone()));
        let seats = Seats { rank, members, topology };
        Group::over(backend, seats, None, liveness, self.pool.clone(), bond, &self.options)
    }
}
