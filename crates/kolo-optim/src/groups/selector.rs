//! Selectors of tensors: by a pattern of names, or by role.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::layout::{Layout, ParamSpec};

/// Selector of tensors. A word of [`CLASSES`] selects that class; any other text is a pattern of names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Selector {
    /// All tensors of a class.
    Class(TensorClass),
    /// Tensors whose whole name matches. `*` stands for any run of characters, including dots or none:
    /// `head.weight`, `layer4.*`, `*.bias`.
    Pattern(String),
}

/// Role of a tensor. It depends on name and shape alone, so that it is the same for every tensor library. The
/// name is a path of components separated by dots, as in Burn and PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorClass {
    /// Scale and shift of a normalization: one-dimensional tensors named `gamma` or `beta` (Burn), `weight`
    /// or `scale` (PyTorch, Flax: weights of all other layers have more dimensions), and the `bias` beside
    /// such a `weight` or `scale`.
    Norm,
    /// Additive terms: tensors named `bias` or `…_bias`, and a one-dimensional `beta`. This includes those of
    /// normalizations.
    Bias,
    /// Tables of vectors, including positions: tensors of at least two dimensions whose last or second to
    /// last component contains `embed`, or is `wte` or `wpe`.
    Embedding,
    /// All tensors of fewer than two dimensions: biases, normalizations and scalars of any name. This is the
    /// rule of timm and nanoGPT for tensors without weight decay.
    BelowTwoDimensions,
}

/// Words for classes on the command line and in files, with descriptions.
pub const CLASSES: [(&str, TensorClass, &str); 4] = [
    ("norm", TensorClass::Norm, "scale and shift of normalizations"),
    ("bias", TensorClass::Bias, "biases, also those of normalizations"),
    ("embedding", TensorClass::Embedding, "embeddings, also of positions"),
    ("1d", TensorClass::BelowTwoDimensions, "all tensors of fewer than two dimensions"),
];

impl TensorClass {
    fn word(self) -> &'static str {
        CLASSES.iter().find(|(_, class, _)| *class == self).map_or("", |(word, ..)| word)
    }

    fn contains(self, spec: &ParamSpec, model: &Layout) -> bool {
        let (layer, name) = spec.name.rsplit_once('.').unwrap_or(("", &spec.name));
        let dimensions = spec.shape.len();
        match self {
            TensorClass::Norm => {
                let scale = matches!(name, "gamma" | "beta" | "weight" | "scale");
                dimensions == 1 && (scale || name == "bias" && is_norm(layer, model))
            }
            TensorClass::Bias => {
                name == "bias" || name.ends_with("_bias") || (name == "beta" && dimensions == 1)
            }
            TensorClass::Embedding => {
                let layer = layer.rsplit('.').next().unwrap_or(layer);
                dimensions >= 2
                    && [layer, name]
                        .iter()
                        .any(|word| word.contains("embed") || ["wte", "wpe"].contains(word))
            }
            TensorClass::BelowTwoDimensions => dimensions < 2,
        }
    }
}

/// Returns true if the layer has a one-dimensional `weight` or `scale`.
fn is_norm(layer: &str, model: &Layout) -> bool {
    model.spans().iter().filter(|span| span.spec.shape.len() == 1).any(|span| {
        let (of, name) = span.spec.name.rsplit_once('.').unwrap_or(("", &span.spec.name));
        of == layer && matches!(name, "weight" | "scale")
    })
}

impl Selector {
    /// Returns true if it selects this tensor of `model`.
    pub fn selects(&self, spec: &ParamSpec, model: &Layout) -> bool {
        match self {
            Selector::Class(class) => class.contains(spec, model),
            Selector::Pattern(pattern) => matches(pattern, &spec.name),
        }
    }
}

/// Returns true if `pattern` matches all of `name`; `*` stands for any run of characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let Some((middle, end)) = rest.rsplit_once('*') else { return name.ends_with(rest) };
    // Taking the first match of a middle part is safe: it leaves the most characters for the parts after it.
    for part in middle.split('*') {
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(end)
}

impl From<TensorClass> for Selector {
    fn from(class: TensorClass) -> Self {
        Selector::Class(class)
    }
}

impl From<&str> for Selector {
    fn from(text: &str) -> Self {
        let text = text.trim();
        let class = CLASSES.iter().find(|(word, ..)| *word == text);
        class.map_or_else(|| Selector::Pattern(text.into()), |(_, class, _)| Selector::Class(*class))
    }
}

impl From<String> for Selector {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl FromStr for Selector {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.into())
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> Self {
        selector.to_string()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Selector::Class(class) => class.word(),
            Selector::Pattern(pattern) => pattern,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Kind;

    #[test]
    fn a_star_is_any_run_of_characters() {
        for (pattern, yes, no) in [
            ("fc.weight", &["fc.weight"][..], &["fc.weights", "a.fc.weight", ""][..]),
            ("layer4.*", &["layer4.", "layer4.0.conv1.weight"], &["layer4", "layer40.x", "a.layer4.x"]),
            ("*.bias", &[".bias", "a.b.bias"], &["bias", "a.bias.b"]),
            ("*", &["", "a.b"], &[]),
            ("a*b*c", &["abc", "abbbc", "a.b.b.c", "abcbc"], &["ac", "acb", "abcb", "xabc"]),
            // No character matches two parts of a pattern.
            ("ab*ba", &["abba", "ab.ba"], &["aba"]),
            ("*ab*ab", &["abab", "xabyab"], &["ab", "xab"]),
            ("a**b", &["ab", "a.b"], &["a"]),
            ("ü*ü", &["üaü", "üü"], &["ü"]),
            ("", &[""], &["a"]),
        ] {
            yes.iter().for_each(|name| assert!(matches(pattern, name), "{pattern} is {name}"));
            no.iter().for_each(|name| assert!(!matches(pattern, name), "{pattern} is not {name}"));
        }
    }

    /// Names as in Burn, PyTorch and Flax, with the classes of each.
    #[test]
    fn classes_by_names_and_shapes() {
        let tensors: [(&str, &[usize], &[TensorClass]); 22] = {
            use TensorClass::*;
            [
                ("conv1.weight", &[8, 3, 3, 3], &[]),
                ("bn1.gamma", &[8], &[Norm, BelowTwoDimensions]),
                ("bn1.beta", &[8], &[Norm, Bias, BelowTwoDimensions]),
                ("layer1.0.bn2.weight", &[8], &[Norm, BelowTwoDimensions]),
                ("layer1.0.bn2.bias", &[8], &[Norm, Bias, BelowTwoDimensions]),
                ("layer1.0.bn20.bias", &[8], &[Bias, BelowTwoDimensions]),
                ("LayerNorm_0.scale", &[8], &[Norm, BelowTwoDimensions]),
                ("LayerNorm_0.bias", &[8], &[Norm, Bias, BelowTwoDimensions]),
                ("fc.weight", &[10, 8], &[]),
                ("fc.bias", &[10], &[Bias, BelowTwoDimensions]),
                ("attention.in_proj_bias", &[24], &[Bias, BelowTwoDimensions]),
                ("attention.relative_bias", &[24, 24], &[Bias]),
                ("embed_tokens.weight", &[100, 8], &[Embedding]),
                ("model.pos_embed", &[1, 16, 8], &[Embedding]),
                ("wte.weight", &[100, 8], &[Embedding]),
                ("patch_embed.proj.weight", &[8, 3, 4, 4], &[]),
                ("patch_embed.proj.bias", &[8], &[Bias, BelowTwoDimensions]),
                ("embeddings.norm.gamma", &[8], &[Norm, BelowTwoDimensions]),
                ("logit_scale", &[], &[BelowTwoDimensions]),
                ("prelu.alpha", &[1], &[BelowTwoDimensions]),
                ("weight", &[8], &[Norm, BelowTwoDimensions]),
                ("bias", &[8], &[Norm, Bias, BelowTwoDimensions]),
            ]
        };
        let kind = Kind::Parameter { decay: true };
        let spec = |(name, shape, _): &(&str, &[usize], _)| ParamSpec::new(*name, shape.to_vec(), kind);
        let model = Layout::new(tensors.iter().map(spec).collect());
        for (span, (name, _, classes)) in model.spans().iter().zip(tensors) {
            let found: Vec<TensorClass> = CLASSES.iter().map(|(_, class, _)| *class).collect();
            let found: Vec<TensorClass> = found
                .into_iter()
                .filter(|class| Selector::from(*class).selects(&span.spec, &model))
                .collect();
            assert_eq!(found, classes, "{name}");
        }
    }

    #[test]
    fn class_words_are_classes_and_other_text_is_a_pattern() {
        for (word, class, _) in CLASSES {
            assert_eq!(Selector::from(word), Selector::Class(class));
            assert_eq!(Selector::from(class).to_string(), word);
        }
        assert_eq!(Selector::from("norm*"), Selector::Pattern("norm*".into()));
        assert_eq!(Selector::from("norm*").to_string(), "norm*");
    }
}
