//! Tests of kolo-ddp's promises, with a model that is differentiated by hand. They are one program, because
//! their common part takes long to build. The tests that depend on time are `straggler.rs` and `tune.rs`.

mod binding;
mod checkpoints;
#[path = "../common/mod.rs"]
mod common;
mod cross_shard;
mod deferred;
mod delayed;
mod delayed_stops;
mod divided_values;
mod ef_sign;
mod elastic;
mod elastic_islands;
#[path = "../../../kolo-optim/tests/equations/mod.rs"]
mod equations;
mod exact;
mod exclusions;
mod failed_bucket;
mod frozen;
mod groups;
mod groups_formulas;
mod groups_refused;
mod host_memory;
mod islands;
mod loading;
mod loss_scaling;
mod noise_scale;
mod not_finite;
mod offload;
mod reduction;
mod reduction_values;
mod refused_steps;
mod same_settings;
mod saved_together;
mod servers;
mod sharding;
mod sharding_elastic;
mod stale;
mod stale_failures;
mod state_list;
mod step;
mod sync_values;
mod tied;
mod transforms;
mod turns;
