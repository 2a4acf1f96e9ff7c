//! Names of the environment variables, and the limit of the counts in them.

/// Most processes that a job may have, and most replacements for them.
pub const MOST_PROCESSES: usize = 1 << 20;

/// Rank of this worker in the job, `0 ≤ RANK < WORLD_SIZE`.
pub const RANK: &str = "RANK";
/// Number of workers in the job.
pub const WORLD_SIZE: &str = "WORLD_SIZE";
/// Rank of this worker among those of its node.
pub const LOCAL_RANK: &str = "LOCAL_RANK";
/// Number of workers on this node.
pub const LOCAL_WORLD_SIZE: &str = "LOCAL_WORLD_SIZE";
/// Index of this node.
pub const GROUP_RANK: &str = "GROUP_RANK";
/// Host on which rank 0 serves the store.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// Port on which rank 0 serves the store.
pub const MASTER_PORT: &str = "MASTER_PORT";
/// Index of this pod in an Indexed Job of Kubernetes, from 0.
pub const JOB_COMPLETION_INDEX: &str = "JOB_COMPLETION_INDEX";
/// Name of the job, the same for all its workers.
pub const RUN_ID: &str = "TORCHELASTIC_RUN_ID";
/// File into which a failing worker writes its error, for the launcher to print.
pub const ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";
/// `native` or `mpi`: the engine that runs the collectives. Default `native`.
pub const BACKEND: &str = "KOLO_BACKEND";
/// `shm` or `tcp`: overrides the choice of transport.
pub const TRANSPORT: &str = "KOLO_TRANSPORT";
/// Name of an algorithm: overrides the choice for the operations that the algorithm supports.
pub const ALGORITHM: &str = "KOLO_ALGORITHM";
/// The job's token, which lets a worker in; at least 16 characters.
pub const TOKEN: &str = "KOLO_TOKEN";
/// File that holds the job's token.
pub const TOKEN_FILE: &str = "KOLO_TOKEN_FILE";
/// `1` encrypts traffic between hosts; needs a token. Default 0.
pub const ENCRYPT: &str = "KOLO_ENCRYPT";
/// Number of TCP connections between two workers, from 1 to 64. Default 1.
pub const STREAMS: &str = "KOLO_STREAMS";
/// Congestion control of TCP connections between hosts, by its name in the kernel. `system` leaves the
/// choice to the system. Default `cubic`.
pub const TCP_CONGESTION: &str = "KOLO_TCP_CONGESTION";
/// Artificial latency of TCP messages in microseconds: simulates distance on one host. Default 0.
pub const TCP_DELAY_US: &str = "KOLO_TCP_DELAY_US";
/// Name of this worker's node; workers of one name share memory. By default, the workers of one host do.
pub const NODE: &str = "KOLO_NODE";
/// Seconds that a worker waits for others, at the rendezvous and in a collective. Default: 300 to arrive; in
/// a collective 20 times the longest one so far, at least 120; in elastic jobs 10 times, at least 15.
pub const TIMEOUT: &str = "KOLO_TIMEOUT";
/// Whole seconds for which a host may be unreachable before its connections to the store break and its ranks
/// count as dead. Default 8.
pub const HOST_TIMEOUT: &str = "KOLO_HOST_TIMEOUT";
/// `1` makes this process a summation server: it has no shards and adds for the workers. Default 0.
pub const SERVER: &str = "KOLO_SERVER";
/// Number of summation servers in the job, which [`WORLD_SIZE`] includes. Default 0.
pub const SERVERS: &str = "KOLO_SERVERS";
/// Maximum number of workers of the job, without servers, if nodes may come and go. This many shards are
/// enough to give every worker some. `kolo launch` sets it.
pub const MOST_WORKERS: &str = "KOLO_MOST_WORKERS";
/// Name of the network interface at which peers reach this worker: overrides the choice.
pub const IFACE: &str = "KOLO_IFACE";
/// Nodes of the job, as torchrun's option `--nnodes`: a number, or `MIN:MAX`.
pub const PET_NNODES: &str = "PET_NNODES";
