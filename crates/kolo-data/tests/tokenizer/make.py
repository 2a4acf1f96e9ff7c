#!/usr/bin/env python3
"""Writes tokenizer.json and expected.json: what Hugging Face's `tokenizers` makes of some texts.

    python3 -m pip install tokenizers
    python3 crates/kolo-data/tests/tokenizer/make.py
"""

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

HERE = Path(__file__).resolve().parent
END = "<|endoftext|>"
SIZE = 420

DOCUMENTS = [
    "Two workers add their gradients; a third one waits for both of the workers.\n" * 3,
    "The gradient's sum isn't the workers' sum: they've added 1234 and 5678.\n\n    indented = 12\n\tand more\n",
    "Größe, naïve café, Ελληνικά και Ελληνικά, русский текст и русский текст.\n",
    "漢字とかな漢字とかな 🙂🙂🙃 👩‍👩‍👧 한국어 한국어\n",
    "aaaaaaaa aaaa aa ---- -------- ....\r\n\r\nrows\r\nof rows\r\n",
]
TEXTS = DOCUMENTS + [
    "",
    " ",
    "\n",
    "\n\n\n",
    "  two  spaces  ",
    "a\nb\n\nc \n d",
    f"It ends with {END} and goes on.",
    END,
    "\x00\x01\x1b[31m\x7f\u0085\u00a0\u200b\u2028\ufeff\ufffd",
    "e\u0301 \u0915\u094d\u0937 \U0001f1e9\U0001f1ea \U0010ffff",
    "we'll WE'LL they're 'tis it's 's",
    "x² ½ Ⅷ ٣ 42 4.2e-1",
]


def main() -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, min_frequency=2, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(DOCUMENTS, trainer)
    # A text that has the token's words does not end there.
    tokenizer.encode_special_tokens = True
    tokenizer.save(str(HERE / "tokenizer.json"))
    texts = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids} for text in TEXTS]
    expected = {"size": SIZE, "documents": DOCUMENTS, "texts": texts}
    (HERE / "expected.json").write_text(json.dumps(expected, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
