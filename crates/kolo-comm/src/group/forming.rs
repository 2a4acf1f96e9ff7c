//! Ways to form a group: from the environment, at a place, over a backend, or as a part of another group.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::Group;
use super::shared::{GroupOrigin, Shared};
use crate::backend::{Backend, FormedBackend};
use crate::connect::{self, StoreHost};
use crate::deadline::Deadline;
use crate::engine::Engine;
use crate::options::Options;
use kolo_rendezvous::env::{self, WorkerEnv};
use kolo_rendezvous::{Error, Liveness};
use kolo_schedule::{Rank, Topology};
use kolo_transport::Connected;
use kolo_transport::{Backing, GroupContext, LINGER, Lending, Pool};
use parking_lot::Mutex;

/// The ranks of a group, and this process's rank among them.
struct Members {
    rank: Rank,
    /// The job's rank of each rank of the group.
    members: Arc<[Rank]>,
    topology: Arc<Topology>,
}

impl Group {
    /// Forms the group of this process's job from the launcher's environment (see
    /// [`kolo_rendezvous::env`]). Without a launcher it is a group of one. See [`Options::backend`] for
    /// groups that another backend forms.
    ///
    /// # Errors
    ///
    /// The environment contradicts itself, the rendezvous fails, or ranks do not arrive in time.
    pub fn from_env() -> Result<Group, Error> {
        Group::of_job(&Options::from_env()?)
    }

    /// Forms the group of this process's job, as [`Group::from_env`] does, but with the given options. Fails
    /// as [`Group::from_env`] does.
    pub fn of_job(options: &Options) -> Result<Group, Error> {
        if let Some(kind) = options.backend {
            return Group::foreign((kind.form)(env::rank_and_world_size()?, options)?, options);
        }
        match WorkerEnv::from_env()? {
            None => Ok(Group::alone()),
            Some(place) => Group::join(&place, options),
        }
    }

    /// Forms the group of the job at `place`. MPI forms its own group, but must give the same rank.
    ///
    /// # Errors
    ///
    /// The rendezvous fails, ranks do not arrive in time, or the forced algorithm cannot run on this group.
    pub fn join(place: &WorkerEnv, options: &Options) -> Result<Group, Error> {
        if let Some(kind) = options.backend {
            let launcher = (place.rank, place.world_size);
            return Group::foreign((kind.form)(Some(launcher), options)?, options);
        }
        Group::at(place, options, StoreHost::Rank0, &|| false)
    }

    /// Forms the group as [`Group::join`] does, but another process serves the store at the place's master.
    /// While ranks are missing, this one gives up as soon as `is_over` returns true. Fails as [`Group::join`]
    /// does.
    pub fn join_served(
        place: &WorkerEnv,
        options: &Options,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Group, Error> {
        Group::at(place, options, StoreHost::Elsewhere, is_over)
    }

    fn at(
        place: &WorkerEnv,
        options: &Options,
        host: StoreHost,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Group, Error> {
        if place.world_size == 1 {
            return Ok(Group::alone());
        }
        let formed = connect::form(place, options, host, is_over)?;
        let members = (0..place.world_size).map(Rank).collect();
        let origin = GroupOrigin::Store(Mutex::new(Some(formed.session)));
        // Shared blocks of all kinds lie in one file.
        let pool = match formed.connected.backing {
            Backing::Shared => formed.connected.context.copies.clone(),
            Backing::Heap => Pool::new(Backing::Heap),
        };
        Group::native(place.rank, members, formed.connected, formed.liveness, pool, origin, options)?
            .measured()
    }

    /// Creates a group of one.
    pub fn alone() -> Group {
        let liveness = Arc::new(Liveness::new(1));
        let (origin, options) = (GroupOrigin::Alone, Options::default());
        let pool = Pool::new(Backing::Heap);
        Group::native(
            Rank(0),
            [Rank(0)].into(),
            Connected::alone(GroupContext::of_threads(options.arrival())),
            liveness,
            pool,
            origin,
            &options,
        )
        .expect("a group of one is asked for nothing special")
    }

    pub(crate) fn of_threads(
        rank: Rank,
        connected: Connected,
        liveness: Arc<Liveness>,
        options: &Options,
    ) -> Result<Group, Error> {
        let world = connected.topology.world();
        let (members, origin) = ((0..world).map(Rank).collect(), GroupOrigin::Threads(world));
        let pool = Pool::new(connected.backing);
        Group::native(rank, members, connected, liveness, pool, origin, options)
    }

    fn native(
        rank: Rank,
        members: Arc<[Rank]>,
        connected: Connected,
        liveness: Arc<Liveness>,
        pool: Arc<Pool>,
        origin: GroupOrigin,
        options: &Options,
    ) -> Result<Group, Error> {
        let Connected { routes, topology, context, .. } = connected;
        let mut engine = Engine::new(
            rank,
            members.clone(),
            topology.clone(),
            routes,
            liveness.clone(),
            Deadline::new(options.timeout),
        );
        if options.algorithm_is_optional {
            engine.make_optional();
        }
        if members.len() > 1
            && let Err(error) = engine.force(options.algorithm)
        {
            // All ranks refuse alike. Rank 0 serves the store until all have received what they need.
            if let GroupOrigin::Store(session) = origin {
                session.into_inner().into_iter().for_each(|session| session.leave(LINGER));
            }
            return Err(error);
        }
        let ranks = Members { rank, members, topology };
        Ok(Group::over(Box::new(engine), ranks, Some(context), liveness, pool, origin, options))
    }

    /// Creates a group that a backend has formed by its own means.
    fn foreign(formed: FormedBackend, options: &Options) -> Result<Group, Error> {
        let FormedBackend { backend, rank, world, node, end } = formed;
        let members = (0..world).map(Rank).collect();
        let ranks = Members { rank, members, topology: Arc::new(Topology::separate(world)) };
        let liveness = Arc::new(Liveness::new(world));
        let pool = Pool::new(Backing::Heap);
        let mut group = Group::over(backend, ranks, None, liveness, pool, GroupOrigin::Foreign(end), options);
        let nodes = group.all_gather_varied(node.as_bytes())?;
        group.topology = Arc::new(Topology::of_names(&nodes));
        Ok(group)
    }

    fn over(
        backend: Box<dyn Backend>,
        ranks: Members,
        context: Option<GroupContext>,
        liveness: Arc<Liveness>,
        pool: Arc<Pool>,
        origin: GroupOrigin,
        options: &Options,
    ) -> Group {
        let Members { rank, members, topology } = ranks;
        let (transport, reach, shares_the_wire) =
            (backend.name(), backend.reach(), backend.shares_the_wire());
        let lending = Lending::new(context.as_ref().map_or(&pool, |context| &context.copies).clone());
        let (backend, queued) = (Mutex::new(backend), AtomicUsize::new(0));
        let shared = Arc::new(Shared { rank: members[rank.0], backend, liveness, queued, origin });
        let (comm_thread, options) = (Mutex::default(), options.clone());
        Group {
            rank,
            members,
            topology,
            transport,
            reach,
            shares_the_wire,
            pool,
            lending,
            shared,
            comm_thread,
            context,
            options,
        }
    }

    /// Creates the sub-group of some ranks of this group, which are already connected.
    pub(crate) fn within(&self, rank: Rank, members: &[Rank], connected: Connected) -> Result<Group, Error> {
        let members: Arc<[Rank]> = members.iter().map(|member| self.members[member.0]).collect();
        let mut options = self.options.clone();
        // An algorithm that the whole group can run may be impossible on a part of it.
        options.algorithm = None;
        let (liveness, origin) = (self.shared.liveness.clone(), GroupOrigin::Within(self.shared.clone()));
        let group = Group::native(rank, members, connected, liveness, self.pool.clone(), origin, &options)?;
        let network = self.network();
        group.with_backend(|backend| backend.learn(network));
        if let Some(pace) = self.with_backend(|backend| backend.pace()) {
            group.follow_pace(&pace);
        }
        if group.world_size() > 1 {
            // Use the same algorithm if the sub-group can run it.
            group.with_backend(|backend| backend.force(self.options.algorithm).is_ok());
        }
        Ok(group)
    }

    /// Creates a backend for some ranks of this group, including this one. All ranks call it, each with
    /// the members of its own sub-group.
    pub(crate) fn split_backend(&self, rank: Rank, members: &[Rank]) -> Result<Box<dyn Backend>, Error> {
        let result = self.shared.backend.lock().split(rank, members);
        result.map_err(|error| self.shared.failed(error))
    }

    /// Creates the sub-group of some ranks of this group, over a backend that they have split off.
    pub(crate) fn beside(&self, rank: Rank, members: &[Rank], backend: Box<dyn Backend>) -> Group {
        let nodes: Vec<usize> = members.iter().map(|member| self.topology.node_of(*member)).collect();
        let topology = Arc::new(Topology::of_names(&nodes));
        let members = members.iter().map(|member| self.members[member.0]).collect();
        let (liveness, origin) = (self.shared.liveness.clone(), GroupOrigin::Within(self.shared.clone()));
        let ranks = Members { rank, members, topology };
        Group::over(backend, ranks, None, liveness, self.pool.clone(), origin, &self.options)
    }
}
