"""The checks of the book, each on a few lines in which the fault is known."""

import unittest
from pathlib import Path

import book
import command_line

HELP = {
    (): "Train\n\nUsage: kolo <COMMAND>\n\nCommands:\n  train  Train a model\n         over two lines\n  plan   Predict\n  help   Print\n\nOptions:\n  -h, --help  Print help\n",
    ("train",): "Train\n\nUsage: kolo train [OPTIONS]\n\nOptions:\n      --lr <LR>\n          The rate\n          \n          [default: 0.1]\n\n      --nesterov[=<true|false>]\n          Nesterov\n\n  -h, --help\n          Print help\n\nModels:\n  small  a small one\n",
    ("plan",): "Predict\n\nUsage: kolo plan <COMMAND>\n\nCommands:\n  step  A step\n  help  Print\n\nOptions:\n  -h, --help  Print help\n",
    ("plan", "step"): "Predict a step\n\nUsage: kolo plan step [OPTIONS]\n\nOptions:\n      --workers <N>\n          How many\n\n      --lr <LR>\n          The rate\n          \n          [default: 0.1]\n",
    ("launch",): "Launch\n\nUsage: kolo launch [OPTIONS] <COMMAND>...\n\nOptions:\n      --nproc <N>\n          Workers\n",
    ("chaos",): "Chaos\n\nUsage: kolo chaos\n\nOptions:\n      --seeds <N>\n          Runs\n",
}


def help_of(command: list[str]) -> str:
    text = HELP[tuple(word for word in command if word != "--help")]
    return text.replace("  plan ", "  launch  Launch\n  chaos  Chaos\n  plan ") if command == ["--help"] else text


class Text(unittest.TestCase):
    def test_code_generated_parts_and_link_targets_are_no_words(self):
        text = "# Two words\n\nthree [more words](a.md) `and one`\n```sh\nnot these\n```\n"
        self.assertEqual(book.words(text), 2 + 3 + 2)
        for begin, end in [
            ("<!-- peers:begin -->", "<!-- peers:end -->"),
            ("<!-- bench/soak.py: begin -->", "<!-- bench/soak.py: end -->"),
            ("<!-- bench/large_batches.py: begin -->", "<!-- end -->"),
            ("<!-- foresight.py: here -->", "<!-- /foresight.py: here -->"),
            ("<!-- compression.py -->", "<!-- /compression.py -->"),
        ]:
            self.assertEqual(book.words(f"one\n{begin}\nnot these\n{end}\ntwo\n"), 2, begin)

    def test_a_sentence_ends_at_its_full_stop(self):
        text = "It takes 0.5 s, as `a. B` says. Then\nit ends! *Why?* (See below.) Next\n\n- item one\n- item two\n"
        self.assertEqual(
            [found.strip() for found in book.sentences(text)],
            ["It takes 0.5 s, as `code` says", "Then it ends", "*Why", "(See below", "Next", "item one", "item two"],
        )

    def test_a_cell_is_a_sentence_and_code_is_one_word(self):
        long = " ".join(["word"] * 31)
        self.assertEqual(book.long_sentences(f"| a | b |\n|---|---|\n| {long} | short |\n"), [long])
        self.assertEqual(book.long_sentences(" ".join(["word"] * 29) + " `one two three`.\n"), [])
        self.assertEqual(book.long_sentences(f"```text\n{long}\n```\n"), [])

    def test_words_that_stop_readers_are_named(self):
        found = book.stopping_words("Rank 0 is told. It goes on. The colour; `crew` and\n```\nheard\n```\n")
        self.assertEqual([word.split("`")[1] for word in found], ["is told", "goes on", "colour"])


class Links(unittest.TestCase):
    def test_anchors_are_those_of_github(self):
        text = "# `kolo verify`\n## What it costs, and when\n## A\n## A\n### [Linked](x.md) – 2\n```\n# no heading\n```\n"
        self.assertEqual(
            book.anchors(text), {"kolo-verify", "what-it-costs-and-when", "a", "a-1", "linked--2"}
        )

    def test_links_lead_to_files_and_headings(self):
        folder = Path("/book").resolve()
        files = {
            folder / "a.md": "# A\n[b](b.md#here) [c](c.md) [d](b.md#gone) [e](#a) [f](#z) [g](https://h.org/x)\n",
            folder / "b.md": "# Here\n",
        }
        broken = list(book.broken_links(folder / "a.md", files.get))
        self.assertEqual(
            broken,
            ["the link c.md leads nowhere", "b.md#gone: there is no such heading", "#z: there is no such heading"],
        )

    def test_contents_have_the_part_of_each_page(self):
        summary = "# Summary\n\n# Guides\n\n- [A](a.md)\n  - [B `b`](b.md)\n\n# Internals\n\n- [C](c.md)\n"
        self.assertEqual(book.contents(summary), {"a.md": "Guides", "b.md": "Guides", "c.md": "Internals"})


class Commands(unittest.TestCase):
    def wrong(self, line: str) -> list[str]:
        return book.Commands(help_of).wrong(line)

    def test_options_and_commands_are_those_of_the_help(self):
        for right in [
            "kolo train --lr -1 --nesterov=false",
            "kolo plan step --workers 1,2",
            "kolo launch --nproc 2 -- ./mine --any",
            "kolo launch --nproc 2 -- kolo train --lr 1",
            "kolo chaos --seeds 3 -- --lr 1",
            "kolo --help",
        ]:
            self.assertEqual([found for found in self.wrong(right) if "--help" not in found], [], right)
        self.assertEqual(self.wrong("kolo train --rate 1"), ["`kolo train` has no option `--rate`"])
        self.assertEqual(self.wrong("kolo trace x"), ["there is no command `kolo trace`"])
        self.assertEqual(self.wrong("kolo plan steps"), ["there is no command `kolo plan steps`"])
        self.assertEqual(
            self.wrong("kolo launch -- kolo train --rate 1"), ["`kolo train` has no option `--rate`"]
        )
        self.assertEqual(self.wrong("kolo chaos -- --rate 1"), ["`kolo train` has no option `--rate`"])

    def test_commands_are_found_in_blocks_of_a_shell_alone(self):
        text = (
            "```sh\nKOLO_X=1 kolo train --lr 'a b' \\\n    --more &   # kolo plan\nfor i in 1; do\n"
            "  kolo plan step; done\n```\n```toml\nkolo = 1\n```\n```console\n$ kolo train\nkolo prints\n```\n"
        )
        self.assertEqual(
            book.shell_commands(text), ["kolo train --lr quoted      --more", "kolo plan step", "kolo train"]
        )
        self.assertEqual(book.inline_commands("`kolo train\n--lr 1` and `kolo`"), ["kolo train --lr 1"])


    def test_trainings_that_need_nothing_are_tried(self):
        text = (
            "```sh\nkolo launch -- kolo train --group 'a b' \\\n    --lr 1 &   # why\nkolo train --resume x\n"
            "kolo train --init FILE\nkolo train --seed $seed\nkolo evaluate x\n```\n`kolo train --lr 2`\n"
        )
        self.assertEqual(book.trainings(text), [["train", "--group", "a b", "--lr", "1"]])


class Rust(unittest.TestCase):
    def test_members_are_those_of_their_type(self):
        code = "pub struct Config { pub caps: u8 }", "impl<T: Copy> Ddp<T> where T: Send { pub fn step(&self) {} }"
        names = book.RustNames(iter(code))
        text = "`Config::caps`, `kolo::Config::cap`, `Ddp::step(0.1)`, `Ddp::stop`, `Unknown::x`, `module::name`"
        self.assertEqual(names.absent(text), ["`Config::cap`", "`Ddp::stop`"])


class Reference(unittest.TestCase):
    def test_a_help_has_options_defaults_and_tables(self):
        found = command_line.parsed(HELP[("train",)])
        self.assertEqual(found.usage, "kolo train [OPTIONS]")
        self.assertEqual(
            found.options, [("--lr <LR>", "The rate [default: 0.1]"), ("--nesterov[=<true|false>]", "Nesterov")]
        )
        self.assertEqual(found.tables, [("Models", "  small  a small one")])
        self.assertEqual(command_line.parsed(help_of(["--help"])).subcommands, ["train", "launch", "chaos", "plan"])

    def test_a_command_refers_to_the_options_of_training(self):
        text = command_line.page(lambda command: help_of([*command, "--help"]))
        section = text.split("### `kolo plan step`")[1]
        self.assertIn("| `--workers <N>` | How many |", section)
        self.assertIn("Also `--lr`, as for [`kolo train`](#kolo-train).", section)
        self.assertIn(r"| `--nesterov[=<true\|false>]` | Nesterov |", text)


class Environment(unittest.TestCase):
    def test_names_are_those_of_constants(self):
        folder = Path(__file__).resolve().parent.parent / "crates" / "kolo-rendezvous" / "src" / "env"
        self.assertLessEqual({"KOLO_HOST_TIMEOUT", "RANK"}, book.environment_names(iter([folder / "names.rs"])))
        slurm = book.launcher_names(iter([folder / "launchers" / "slurm.rs"]))
        self.assertIn("SLURM_STEP_NODELIST", slurm)
        self.assertNotIn("SLURM_NODEID", slurm, "the example of a test has it alone")


if __name__ == "__main__":
    unittest.main()
