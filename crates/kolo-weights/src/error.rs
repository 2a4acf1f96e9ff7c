//! Errors of an export, and of exported files.

use std::path::PathBuf;

/// Reason that weights could not be exported or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum WeightsError {
    /// The file of weights cannot be read.
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The run folder cannot be used, or a file cannot be written or read.
    #[error(transparent)]
    Recipe(#[from] kolo_recipe::Error),
    /// The checkpoint cannot be read, or is damaged.
    #[error(transparent)]
    Checkpoint(#[from] kolo_ddp::CheckpointError),
    /// The weights or their description cannot be encoded.
    #[error("cannot write {}: {problem}", what.display())]
    Encode { what: PathBuf, problem: String },
    /// The folder is not a run folder.
    #[error(
        "{} is no run folder: it has no config.toml; give the folder that `kolo train` has written to",
        path.display()
    )]
    NoRun { path: PathBuf },
    /// The run has no checkpoint of the step.
    #[error("{} holds no checkpoint of step {step}; it has those of {}", folder.display(), listed(found))]
    NoStep { folder: PathBuf, step: u64, found: Vec<u64> },
    /// The file to write exists already.
    #[error("the file {} exists; choose another --out", path.display())]
    OutTaken { path: PathBuf },
    /// torchvision has no such model.
    #[error("torchvision has no model `{model}`, only {known}; export it with --format burn")]
    NotInTorchvision { model: String, known: String },
    /// torchvision's model begins with another convolution than the run's.
    #[error(
        "{model} begins with a 3×3 convolution (--stem small), and torchvision's with one of 7×7; export \
         it with --format burn"
    )]
    OtherStem { model: String },
    /// transformers has no such model.
    #[error("transformers has no model `{model}`, only those named gpt2; export it with --format burn")]
    NotInTransformers { model: String },
    /// The model of a folder for transformers is another one than Kolo's GPT-2.
    #[error("{}: `{key}` is {found}, and Kolo's GPT-2 has {needed}", path.display())]
    OtherConfig { path: PathBuf, key: &'static str, found: serde_json::Value, needed: serde_json::Value },
    /// The model of the weights is unknown.
    #[error(
        "Kolo does not know the model of {0}: there is neither {0}.json nor a run folder around it; give \
         --model and --data", path.display()
    )]
    Undescribed { path: PathBuf },
    /// The path of a weights file is a folder.
    #[error(
        "{} is a folder; give the file that `kolo export` has written, a checkpoint's folder, or its \
         weights.safetensors", path.display()
    )]
    Folder { path: PathBuf },
    /// The path is another file of a checkpoint than its weights.
    #[error("{} is another part of a checkpoint; its weights are in weights.safetensors beside it", path.display())]
    OtherPart { path: PathBuf },
    /// The file is only a pointer of Git LFS.
    #[error(
        "{} is a pointer of Git LFS and not the file itself; fetch it with `git lfs pull` where the file comes from",
        path.display()
    )]
    LfsPointer { path: PathBuf },
    /// The file has none of the formats.
    #[error(
        "{} is not a file of weights in a format that `kolo export` writes: {known}",
        path.display()
    )]
    NoFormat { path: PathBuf, known: String },
    /// The file is cut off or violates its format.
    #[error("{}: is damaged: {problem}; export it again", path.display())]
    Damaged { path: PathBuf, problem: String },
    /// A tensor has elements of an unsupported type.
    #[error("{} holds `{tensor}` as {dtype}; Kolo reads F32, I64 and BOOL, so convert it", path.display())]
    DType { path: PathBuf, tensor: String, dtype: String },
    /// The model has a tensor that the file lacks.
    #[error(
        "{} has no tensor `{tensor}`, which the model has; it holds the weights of another model",
        path.display()
    )]
    Missing { path: PathBuf, tensor: String },
    /// A tensor has another shape in the model.
    #[error(
        "{} holds `{tensor}` as {found:?} where the model needs {needed:?}; train with the model, channels \
         and number of classes of the file, or with --init-skip '{}'",
        path.display(), layer(skipped)
    )]
    Shape { path: PathBuf, tensor: String, skipped: String, found: Vec<usize>, needed: Vec<usize> },
    /// The weights are of a language model over other tokens.
    #[error(
        "{} holds the vectors of {found} tokens, and the run's tokenizer has {needed}; give the --tokenizer of these \
         weights, or begin with new vectors by --init-skip 'wte.*'", path.display()
    )]
    Vocabulary { path: PathBuf, found: usize, needed: usize },
    /// The weights are of a language model over the tokens of another tokenizer.
    #[error(
        "{}: these weights are for {}{}",
        path.display(),
        if *is_bytes {
            "bytes as tokens; take them without a tokenizer.json"
        } else {
            "another tokenizer; take the tokenizer.json of their run, or of its exports"
        },
        if *is_init { ", or begin with new vectors by --init-skip 'wte.*'" } else { "" }
    )]
    OtherTokenizer {
        path: PathBuf,
        /// True if they are for bytes.
        is_bytes: bool,
        /// True if a run was to begin with them.
        is_init: bool,
    },
    /// The description of a folder for transformers contradicts its weights.
    #[error("{}: `{key}` is {found}, and the weights beside it have {there}; the two are of different models", path.display())]
    ConfigDiffers { path: PathBuf, key: &'static str, found: serde_json::Value, there: usize },
    /// A selector of the tensors to leave out selects none.
    #[error(
        "--init-skip {selector}: this selects no tensor of the model; its tensors have names like {example}"
    )]
    SkipsNothing { selector: String, example: String },
    /// The tensors to leave out are all that the model has.
    #[error("--init-skip: this leaves nothing to load; skip fewer tensors, or leave out --init")]
    NothingLeft,
    /// A tensor has elements of another type in the model.
    #[error("{} holds `{tensor}` as {found} where the model needs {needed}; convert it", path.display())]
    Element {
        path: PathBuf,
        tensor: String,
        /// Its type in the file, as safetensors spells it.
        found: &'static str,
        needed: &'static str,
    },
    /// A tensor has a value that no network can compute with.
    #[error(
        "{} holds the value {value} in `{tensor}`{}; give weights of a training that did not diverge, or leave \
         the tensor out with --init-skip",
        path.display(),
        if value.is_finite() { ", a variance" } else { "" }
    )]
    Value { path: PathBuf, tensor: String, value: f32 },
    /// The file has two different tensors where the model has one parameter at two places.
    #[error(
        "{} holds `{tensor}` with other values than `{first}`, and they are one parameter of the model; build \
         the model with a parameter for each",
        path.display()
    )]
    Tied { path: PathBuf, tensor: String, first: String },
    /// The file has a tensor that the model lacks.
    #[error(
        "{} holds `{tensor}`, which the model does not have; it holds the weights of another model",
        path.display()
    )]
    Unknown { path: PathBuf, tensor: String },
}

impl WeightsError {
    /// Returns true if the user's input is at fault.
    pub fn is_input(&self) -> bool {
        match self {
            WeightsError::Recipe(error) => error.is_input(),
            WeightsError::Checkpoint(_) | WeightsError::Encode { .. } => false,
            _ => true,
        }
    }
}

fn listed(steps: &[u64]) -> String {
    steps.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the pattern of all tensors in the layer of one.
fn layer(tensor: &str) -> String {
    tensor.rsplit_once('.').map_or(tensor.into(), |(layer, _)| format!("{layer}.*"))
}
