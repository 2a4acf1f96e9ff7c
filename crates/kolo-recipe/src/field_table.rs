//! The table of a recipe's fields: what becomes of each where it differs between two parts of one run, or
//! between its workers.

/// Answer to a field that has changed since the checkpoint from which a run continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnResume {
    /// Each part of the run may have its own value: no result depends on it.
    Free,
    /// The run continues with the new value, reports the change and records it.
    Reported,
    /// Like [`OnResume::Reported`], but only the start of a run uses the field.
    Unused,
    /// The field decides which samples come in which step: refused unless the user accepts other ones.
    Samples,
    /// The checkpoint holds what the field has decided: refused.
    Refused,
}

use OnResume::{Free, Refused, Reported, Samples, Unused};

/// Value of a field without one.
pub(crate) const NOTHING: &str = "nothing";

/// A field of a recipe, or a section whose fields are alike.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) on_resume: OnResume,
    /// True if each worker may have a value of its own.
    pub(crate) between_workers: bool,
    /// Reason for the answer, or for the freedom of the workers.
    pub(crate) why: &'static str,
}

const fn field(name: &'static str, on_resume: OnResume, why: &'static str) -> Field {
    Field { name, on_resume, between_workers: false, why }
}

/// A field of which each worker may have a value of its own, such as a path on its host.
const fn local(name: &'static str, on_resume: OnResume, why: &'static str) -> Field {
    Field { name, on_resume, between_workers: true, why }
}

/// All fields of a recipe.
pub(crate) const FIELDS: &[Field] = &[
    field("kolo", Free, "a newer version goes on with the runs of older ones"),
    local("nproc", Free, "who computes what; as many as were started count"),
    local("shares", Free, "who computes what; rank 0's count"),
    field("straggler", Free, "who computes what"),
    field("bucket_cap_mb", Free, "how gradients travel"),
    field("tune", Free, "how gradients travel"),
    field("verify_every", Free, "comparisons change no value"),
    field("backup_steps", Free, "copies change no value, but see `ends_rounds`"),
    field("activation_checkpointing", Free, "activations are computed again in the same bits"),
    field("shard", Free, "who holds what"),
    field("redundancy", Free, "who holds what"),
    local("offload", Free, "what holds the state; a host may have another disk"),
    field("checkpoint_epochs", Free, "checkpoints change no value"),
    field("checkpoint_steps", Free, "checkpoints change no value, but see `ends_rounds`"),
    field("max_hours", Free, "a run that ends earlier goes on in the same bits"),
    local("keep_checkpoints", Free, "rank 0 alone removes checkpoints"),
    local("input.data_threads", Free, "batches are the same by any thread"),
    local("data", Reported, "a host may have its files elsewhere; their content is compared"),
    field("augment", Reported, "the images change"),
    field("mixup", Reported, "the images change"),
    field("cutmix", Reported, "the images change"),
    field("epochs", Reported, "the end and the schedule move"),
    field("steps", Reported, "the end moves"),
    field("threads", Reported, "kernels may round differently"),
    field("device", Reported, "kernels round differently"),
    field("dropout", Reported, "other features are dropped"),
    field("no_decay", Reported, "the optimizer steps differently"),
    field("no_trust_ratio", Reported, "the optimizer steps differently"),
    field("ema_warmup", Reported, "the average moves differently"),
    field("noise_scale", Reported, "it is measured from here on, or no longer"),
    field("best_metric", Reported, "another checkpoint is the best"),
    field("eval_steps", Reported, "patience counts evaluations"),
    field("patience", Reported, "the run may end elsewhere"),
    field("test_batch_size", Reported, "scores may round differently"),
    field("input.size", Reported, "the images change; their content is compared"),
    field("input.channels", Reported, "the images change; their content is compared"),
    field("input.label", Reported, "the labels change; the content is compared"),
    field("input.context", Reported, "the samples change; their content is compared"),
    field("input.val_split", Reported, "the samples change; their content is compared"),
    field("input.skip_unreadable", Reported, "the number of samples is compared"),
    field("optimizer.settings", Reported, "the optimizer steps differently"),
    field("rate", Reported, "the optimizer steps differently"),
    field("large_batch.label_smoothing", Reported, "the loss changes"),
    field("precision.compute", Reported, "kernels round differently"),
    field("precision.growth", Reported, "the loss scale moves differently"),
    field("precision.backoff", Reported, "the loss scale moves differently"),
    field("precision.interval", Reported, "the loss scale moves differently"),
    field("transforms", Reported, "the optimizer's gradients change"),
    field("groups", Reported, "the optimizer steps differently"),
    field("own", Reported, "the program's own parts step differently"),
    local("init", Unused, "the weights are those of the checkpoint"),
    field("init_skip", Unused, "the weights are those of the checkpoint"),
    field("large_batch.zero_gamma", Unused, "the weights are those of the checkpoint"),
    field("precision.scale", Unused, "the loss scale is that of the checkpoint"),
    field("seed", Samples, "it draws the order of the samples"),
    field("batch_size", Samples, "it divides the samples into steps"),
    field("shards", Samples, "they divide the samples of a step"),
    field("large_batch.grow_batch", Samples, "it divides the samples into steps"),
    field("model", Refused, "its weights are those of another model"),
    field("stem", Refused, "its weights are those of other layers"),
    field("batch_norm", Refused, "its running statistics are of other samples"),
    field("freeze", Refused, "its optimizer's state is of other parameters; --init begins with its weights"),
    field("ema", Refused, "its average of the weights, or the lack of one, belongs to the other value"),
    field("optimizer.name", Refused, "its state is that of another optimizer"),
    field("reduction", Refused, "its residuals, or the lack of them, belong to the other reduction"),
    field("sync.mode", Refused, "its state is that of another synchronization"),
    field("sync.islands", Refused, "its state is that of other islands"),
    local("input.tokenizer", Refused, "its weights know the text by another tokenizer"),
];

/// Returns the entry of a field, or of the section around it.
pub(crate) fn entry(name: &str) -> Option<&'static Field> {
    let is_within = |section: &str| name.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'));
    FIELDS.iter().find(|field| field.name == name || is_within(field.name))
}
