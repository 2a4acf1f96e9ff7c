//! The format for transformers: a folder with `config.json` and `model.safetensors`, as
//! `GPT2LMHeadModel.from_pretrained` loads it.
//!
//! | here | transformers | shape |
//! |---|---|---|
//! | `wte.weight`, `wpe.weight` | the same | the same |
//! | `transformer.h.….gamma`, `.beta` of a normalization | `h.….weight`, `.bias` | the same |
//! | `transformer.h.….weight`, `.bias` of a linear layer | `h.….weight`, `.bias` | the same: a `Conv1D` is `[in, out]` |
//! | `transformer.ln_f.gamma`, `.beta` | `ln_f.weight`, `.bias` | the same |
//!
//! The names are those of GPT-2's own checkpoint; a file may have `transformer.` before each of them. The
//! last layer (`lm_head.weight`) is the embedding. Masks that older checkpoints hold (`h.….attn.bias`) are
//! constants.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kolo_recipe::Recipe;
use serde_json::{Value, json};

use super::safetensors_file::{self, KEY};
use crate::description::{Description, EMBEDDING, GPT2};
use crate::error::WeightsError;
use crate::format::{Draft, FolderFormat, NamedTensor, Stored, TensorHead, Tensors, WeightFormat};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
/// Width of a head in all of them.
const HEAD: usize = 64;
/// Activation of the feed-forward networks: GELU by tanh.
const ACTIVATION: &str = "gelu_new";
/// Constant of layer normalizations.
const EPSILON: f64 = 1e-5;

/// Metadata by which transformers knows a file of PyTorch.
const FORMAT: (&str, &str) = ("format", "pt");
/// The last layer, which is the embedding.
const HEADS: &str = "lm_head.weight";
/// Constants of older checkpoints.
const MASKS: [&str; 2] = [".attn.bias", ".attn.masked_bias"];

pub(super) const ENTRY: WeightFormat = WeightFormat {
    name: "transformers",
    about: "a folder for `GPT2LMHeadModel.from_pretrained`, of a model gpt2",
    check,
    stored,
    write,
    recognizes,
    description: safetensors_file::description,
    decode,
    folder: Some(FolderFormat { weights: WEIGHTS, config: CONFIG, encode: config }),
};

/// Returns true if a path is a folder of a model for transformers.
pub fn is_transformers(path: &Path) -> bool {
    path.join(CONFIG).is_file()
}

/// Returns the file of weights in a folder for transformers, if its model is Kolo's.
///
/// # Errors
///
/// The folder's `config.json` cannot be read, or describes another network; names the first difference.
pub fn weights_in(folder: &Path) -> Result<PathBuf, WeightsError> {
    let (path, config) = config_in(folder)?;
    let width = config["n_embd"].as_u64();
    for (key, usual, needed) in [
        ("model_type", None, json!("gpt2")),
        ("activation_function", Some(json!(ACTIVATION)), json!(ACTIVATION)),
        ("layer_norm_epsilon", Some(json!(EPSILON)), json!(EPSILON)),
        ("scale_attn_weights", Some(json!(true)), json!(true)),
        ("scale_attn_by_inverse_layer_idx", Some(json!(false)), json!(false)),
        ("tie_word_embeddings", Some(json!(true)), json!(true)),
        ("n_head", None, json!(width.map(|width| width / HEAD as u64))),
    ] {
        let found = config.get(key).cloned().or(usual).unwrap_or(Value::Null);
        if found != needed {
            return Err(WeightsError::OtherConfig { path, key, found, needed });
        }
    }
    Ok(folder.join(WEIGHTS))
}

/// Refuses a folder whose `config.json` describes tensors of other shapes than its weights have, which
/// `shape` returns by their names there.
pub(crate) fn check_shapes<'a>(
    folder: &Path,
    shape: &dyn Fn(&str) -> Option<&'a [usize]>,
) -> Result<(), WeightsError> {
    let (path, config) = config_in(folder)?;
    let layers = (0..).take_while(|layer| shape(&format!("h.{layer}.ln_1.weight")).is_some()).count();
    let side = |tensor: &str, side: usize| shape(tensor).and_then(|shape| shape.get(side).copied());
    for (key, there) in [
        ("n_layer", Some(layers)),
        ("vocab_size", side(EMBEDDING, 0)),
        ("n_embd", side(EMBEDDING, 1)),
        ("n_positions", side("wpe.weight", 0)),
    ] {
        if let (Some(found), Some(there)) = (config.get(key), there)
            && *found != json!(there)
        {
            return Err(WeightsError::ConfigDiffers { path, key, found: found.clone(), there });
        }
    }
    Ok(())
}

/// Reads the `config.json` of a folder; returns its path, too.
fn config_in(folder: &Path) -> Result<(PathBuf, Value), WeightsError> {
    let path = folder.join(CONFIG);
    let text =
        kolo_durable::read(&path).map_err(|source| WeightsError::Read { path: path.clone(), source })?;
    match serde_json::from_slice(&text) {
        Ok(config) => Ok((path, config)),
        Err(error) => Err(WeightsError::Damaged { path, problem: error.to_string() }),
    }
}

fn check(run: &Recipe) -> Result<(), WeightsError> {
    match run.model.starts_with(GPT2) {
        true => Ok(()),
        false => Err(WeightsError::NotInTransformers { model: run.model.clone() }),
    }
}

fn stored(path: &str) -> Stored {
    let name = path.strip_prefix("transformer.").unwrap_or(path);
    let name = match name.rsplit_once('.') {
        Some((module, "gamma")) => format!("{module}.weight"),
        Some((module, "beta")) => format!("{module}.bias"),
        _ => name.into(),
    };
    Stored { name, transposed: false }
}

fn write(
    tensors: &Arc<dyn Tensors>,
    description: &Description,
    draft: &Draft<'_>,
) -> Result<usize, WeightsError> {
    let (key, value) = FORMAT;
    let metadata = [(key, value.into()), (KEY, description.json()?)];
    safetensors_file::write(safetensors_file::parts(&**tensors), &**tensors, &metadata, draft)
}

/// Describes the model to transformers. A token ends a document, as GPT-2's `<|endoftext|>` does.
fn config(tensors: &[TensorHead], description: &Description) -> Result<String, WeightsError> {
    let shape = |name: &str| {
        let found = tensors.iter().find(|tensor| tensor.name == name).map(|tensor| tensor.shape.as_slice());
        let Some(&[rows, columns]) = found else {
            let problem = format!("the weights have no matrix `{name}`");
            return Err(WeightsError::Encode { what: CONFIG.into(), problem });
        };
        Ok([rows, columns])
    };
    let ([vocabulary, width], [positions, _]) = (shape(EMBEDDING)?, shape("wpe.weight")?);
    let layers = tensors.iter().filter(|tensor| tensor.name.ends_with(".ln_1.weight")).count();
    let end = description.end_of_document.map_or(vocabulary - 1, usize::from);
    let config = json!({
        "activation_function": ACTIVATION,
        "architectures": ["GPT2LMHeadModel"],
        "bos_token_id": end,
        "eos_token_id": end,
        "layer_norm_epsilon": EPSILON,
        "model_type": "gpt2",
        "n_ctx": description.context.unwrap_or(positions),
        "n_embd": width,
        "n_head": width / HEAD,
        "n_layer": layers,
        "n_positions": positions,
        "tie_word_embeddings": true,
        "vocab_size": vocabulary,
    });
    Ok(format!("{config:#}\n"))
}

/// True for safetensors with the names of transformers' GPT-2, which says so, or has a last normalization of
/// that name.
pub(super) fn recognizes(data: &[u8]) -> bool {
    let length = data.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
    let end = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(8).min(data.len());
    let header = data.get(8..end).unwrap_or_default();
    let has = |text: &str| header.windows(text.len()).any(|part| part == text.as_bytes());
    let is_named = has("\"format\":\"pt\"") || has("ln_f.weight\"");
    safetensors_file::recognizes(data) && is_named && has(&format!("{EMBEDDING}\""))
}

fn decode(path: &Path, data: Vec<u8>) -> Result<Vec<NamedTensor>, WeightsError> {
    let is_needed = |name: &str| !MASKS.iter().any(|mask| name.ends_with(mask));
    let mut tensors = safetensors_file::decode(path, &data, is_needed)?;
    for tensor in &mut tensors {
        if let Some(name) = tensor.name.strip_prefix("transformer.") {
            tensor.name = name.into();
        }
    }
    let Some(head) = tensors.iter().position(|tensor| tensor.name == HEADS) else { return Ok(tensors) };
    let head = tensors.swap_remove(head);
    match tensors.iter().find(|tensor| tensor.name == EMBEDDING) {
        Some(embedding) if embedding.to_bytes() != head.to_bytes() => {
            Err(WeightsError::Tied { path: path.into(), tensor: HEADS.into(), first: EMBEDDING.into() })
        }
        _ => Ok(tensors),
    }
}

#[cfg(test)]
mod tests {
    use kolo_ddp::Element;

    use super::super::tests::{InMemory, written};
    use super::*;

    #[test]
    fn every_kind_of_name_is_translated() {
        for (here, there) in [
            ("wte.weight", "wte.weight"),
            ("wpe.weight", "wpe.weight"),
            ("transformer.h.0.ln_1.gamma", "h.0.ln_1.weight"),
            ("transformer.h.11.ln_2.beta", "h.11.ln_2.bias"),
            ("transformer.h.3.attn.c_attn.weight", "h.3.attn.c_attn.weight"),
            ("transformer.h.3.mlp.c_proj.bias", "h.3.mlp.c_proj.bias"),
            ("transformer.ln_f.gamma", "ln_f.weight"),
        ] {
            assert_eq!(stored(here), Stored { name: there.into(), transposed: false });
        }
    }

    fn tensor(name: &str, shape: &[usize], value: f32) -> NamedTensor {
        let values = vec![value; shape.iter().product()];
        NamedTensor { name: name.into(), shape: shape.to_vec(), element: Element::F32, values }
    }

    #[test]
    fn checkpoints_of_any_age_are_read() {
        let file = |tensors: &[NamedTensor]| {
            let tensors = InMemory::new(tensors.to_vec());
            written(|draft| {
                let parts = safetensors_file::parts(&tensors);
                safetensors_file::write(parts, &tensors, &[(FORMAT.0, FORMAT.1.into())], draft)
            })
        };
        let names = |data: &[u8]| {
            let tensors = decode(Path::new("x"), data.to_vec()).unwrap();
            let mut names: Vec<String> = tensors.into_iter().map(|tensor| tensor.name).collect();
            names.sort_unstable();
            names
        };
        let (embedding, head) = (tensor("transformer.wte.weight", &[3, 2], 0.5), tensor(HEADS, &[3, 2], 0.5));
        let bias = tensor("transformer.h.0.attn.c_attn.bias", &[6], 0.0);
        let mask = tensor("transformer.h.0.attn.bias", &[1, 1, 4, 4], 1.0);
        let whole = file(&[embedding.clone(), head, bias, mask]);
        assert!(recognizes(&whole) && names(&whole) == ["h.0.attn.c_attn.bias", "wte.weight"]);
        let other = file(&[embedding, tensor(HEADS, &[3, 2], 0.25)]);
        let error = decode(Path::new("x"), other).unwrap_err().to_string();
        assert!(error.contains("x holds `lm_head.weight` with other values than `wte.weight`"), "{error}");
    }

    #[test]
    fn another_network_of_transformers_is_refused_with_the_first_difference() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |config: Value| {
            std::fs::write(folder.path().join(CONFIG), config.to_string()).unwrap();
            weights_in(folder.path()).err().map(|error| error.to_string())
        };
        let gpt2 =
            json!({ "model_type": "gpt2", "n_embd": 768, "n_head": 12, "activation_function": "gelu_new" });
        assert!(refused(gpt2.clone()).is_none() && is_transformers(folder.path()));
        let with = |key: &str, value: Value| {
            let mut config = gpt2.clone();
            config[key] = value;
            refused(config).unwrap()
        };
        let error = with("model_type", json!("llama"));
        assert!(
            error.contains("config.json: `model_type` is \"llama\", and Kolo's GPT-2 has \"gpt2\""),
            "{error}"
        );
        assert!(with("n_head", json!(6)).contains("`n_head` is 6, and Kolo's GPT-2 has 12"));
        assert!(with("activation_function", json!("relu")).contains("`activation_function` is \"relu\""));
    }
}
