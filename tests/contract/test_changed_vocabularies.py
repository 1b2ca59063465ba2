"""Models under another vocabulary.

Grown by words, shrunk to a corpus; what is read the same gives the same states.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from families import FAMILIES, encoder_config, make_encoder_of_its_kind
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from bertctl.errors import UnavailableError, UsageError
from bertctl.modeling.own_vocabulary import grow, shrink
from bertctl.tokenization.route import find_route
from bertctl.tokenization.stream import TextChunk
from bertctl.tokenization.tokenizer_files import OpenTokenizer
from bertctl.tokenization.vocab_changes import shrunk

DOMAIN = [
    "the Goodness of the foodness was dull",
    "a goodness, not a foodness; 22 22",
    "it was dull 22",
]
BEFORE = ["the film was very good", "a bad food", "it was not dull"]


def with_head(name: str, folder: Path, **fields: Any) -> Path:
    """A folder of a family of BERT's tokenizer, with its masked-word head.

    Every weight is random.
    """
    tokenizer = FAMILIES["bert"].tokenizer()
    tokenizer.save_pretrained(folder)
    (folder / "vocab.txt").write_text(
        "\n".join(sorted(tokenizer.vocab, key=tokenizer.vocab.get)) + "\n"
    )
    torch.manual_seed(1)
    config = encoder_config(name, len(tokenizer), id2label={0: "no", 1: "yes"}, **fields)
    network = transformers.AutoModelForMaskedLM.from_config(config)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    network.save_pretrained(folder)
    return folder


def opened(folder: Path, auto: str = "AutoModelForMaskedLM") -> tuple[Any, Any]:
    return transformers.AutoTokenizer.from_pretrained(folder), getattr(
        transformers, auto
    ).from_pretrained(folder).eval()


def states(folder: Path, text: str) -> torch.Tensor:
    tokenizer, network = opened(folder, "AutoModel")
    with torch.inference_mode():
        return network(**tokenizer(text, return_tensors="pt")).last_hidden_state


def check_sizes(folder: Path, network: Any, tokenizer: Any) -> None:
    rows = network.get_input_embeddings().weight.shape[0]
    assert rows == len(tokenizer) == network.config.vocab_size
    written = json.loads((folder / "config.json").read_text())
    assert written["vocab_size"] == rows
    if (folder / "vocab.txt").exists():
        assert len((folder / "vocab.txt").read_text().splitlines()) == rows


@pytest.mark.parametrize(
    ("name", "tied"), [("bert", True), ("bert", False), ("distilbert", True), ("electra", True)]
)
def test_words_enter_wordpiece_itself(name: str, tied: bool, tmp_path: Path) -> None:
    old = with_head(name, tmp_path / "old", tie_word_embeddings=tied)
    new = tmp_path / "new"

    document = grow(str(old), [TextChunk(DOMAIN)], new, words=10)

    # 22 has no letter; dull is a token, the others are seen once
    first, second = document["words"]
    assert {first["word"], second["word"]} == {"goodness", "foodness"}
    assert first["count"] == 2
    assert second["count"] == 2
    old_tokenizer, old_network = opened(old)
    new_tokenizer, new_network = opened(new)
    check_sizes(new, new_network, new_tokenizer)
    assert new_network.config.id2label == {0: "no", 1: "yes"}
    n_pieces = document["corpus_pieces"]
    assert n_pieces["before"] == _pieces_of_domain(old_tokenizer)
    assert n_pieces["after"] == _pieces_of_domain(new_tokenizer)
    assert new_tokenizer.tokenize("Goodness goodnesss") == ["goodness", "goodness", "##s"]

    input_rows = new_network.get_input_embeddings().weight
    output_layer = new_network.get_output_embeddings()
    old_input_rows = old_network.get_input_embeddings().weight
    old_output_layer = old_network.get_output_embeddings()
    changes = [
        (old_input_rows, input_rows, False),
        (old_output_layer.weight, output_layer.weight, False),
        (old_output_layer.bias, output_layer.bias, True),
    ]
    for old_rows, new_rows, is_bias in changes:
        assert torch.equal(new_rows[: len(old_tokenizer)], old_rows)
        for word in (first, second):
            pieces = word["pieces"]
            row = new_rows[new_tokenizer.convert_tokens_to_ids(word["word"])]
            expected = _row_by_hand(old_tokenizer, old_rows, pieces, is_bias=is_bias)
            assert torch.allclose(row, expected, atol=1e-5)

    for text in BEFORE:
        assert torch.equal(states(old, text), states(new, text))
    inputs = old_tokenizer(BEFORE[0], return_tensors="pt")
    old_logits = old_network(**inputs).logits
    new_logits = new_network(**inputs).logits
    assert torch.allclose(old_logits, new_logits[..., : len(old_tokenizer)], atol=1e-5)


def _pieces_of_domain(tokenizer: Any) -> int:
    return sum(len(tokenizer.tokenize(text)) for text in DOMAIN)


def _row_by_hand(
    tokenizer: Any, old_rows: torch.Tensor, pieces: list[str], *, is_bias: bool
) -> torch.Tensor:
    """The row of a word that was seen twice: the mean of its pieces' rows.

    Pieces inside a word are moved from the mean of such pieces to that of pieces at its start. A
    bias is moved by the logarithm of how much more often the word was seen than its pieces.
    """
    domain_ids = tokenizer(" ".join(DOMAIN), add_special_tokens=False)["input_ids"]
    counts = torch.bincount(torch.tensor(domain_ids)).float()
    tokens = tokenizer.convert_ids_to_tokens(range(len(counts)))
    is_inside = torch.tensor([token.startswith("##") for token in tokens])
    seen_rows = old_rows[: len(counts)]

    def weighted_mean(is_of_kind: torch.Tensor) -> torch.Tensor:
        weights = counts * is_of_kind
        return (weights @ seen_rows) / weights.sum()

    move = weighted_mean(~is_inside) - weighted_mean(is_inside)
    ids = tokenizer.convert_tokens_to_ids(pieces)
    rows_of_pieces = old_rows[ids].clone()
    rows_of_pieces[1:] += move
    row = rows_of_pieces.mean(0)
    if is_bias:
        geometric_mean = counts[ids].prod() ** (1 / len(ids))
        row = row + torch.log(2 / geometric_mean)
    return row


def test_tokens_that_were_added_keep_their_ids_beside_new_words(tmp_path: Path) -> None:
    old = with_head("bert", tmp_path / "old")
    tokenizer, network = opened(old)
    tokenizer.add_tokens(["<drug>"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["[DOC]"]})
    network.resize_token_embeddings(len(tokenizer))
    (old / "vocab.txt").unlink()
    tokenizer.save_pretrained(old)
    network.save_pretrained(old)
    grow(str(old), [TextChunk(DOMAIN)], tmp_path / "new", words=10)
    after, changed = opened(tmp_path / "new")
    check_sizes(tmp_path / "new", changed, after)
    vocabulary = after.get_vocab()
    assert len({*vocabulary.values()}) == len(vocabulary) == len(tokenizer) + 2
    assert {token: vocabulary[token] for token in tokenizer.get_vocab()} == tokenizer.get_vocab()
    text = "[DOC] the <drug> was very good"
    assert after(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert torch.equal(states(old, text), states(tmp_path / "new", text))


def test_the_fast_route_is_still_taken(tmp_path: Path) -> None:
    old = with_head("bert", tmp_path / "old")
    grow(str(old), [TextChunk(DOMAIN)], tmp_path / "new", words=1)
    routes = [
        find_route(Tokenizer.from_file(str(folder / "tokenizer.json")))
        for folder in (old, tmp_path / "new")
    ]
    assert all(routes)
    [words] = [json.loads((tmp_path / "new" / "tokenizer.json").read_text())["model"]["vocab"]]
    assert len(words) == len(FAMILIES["bert"].tokenizer()) + 1


@pytest.mark.parametrize("older", [False, True])
def test_tokens_that_files_beside_the_vocabulary_tell_of_are_its_own(
    tmp_path: Path, older: bool
) -> None:
    """As a slow tokenizer of transformers 4 was saved, and one of before 4.34.

    They keep their rows.
    """
    old = with_head("bert", tmp_path / "old")
    tokenizer, network = opened(old)
    number = len(tokenizer)
    network.resize_token_embeddings(number + 2)
    network.save_pretrained(old)
    (old / "tokenizer.json").unlink()
    added = {"<drug>": number, "[DOC]": number + 1}
    messages: dict[str, Any] = {"do_lower_case": True, "tokenizer_class": "BertTokenizer"}
    if older:
        (old / "added_tokens.json").write_text(json.dumps(added))
    else:
        messages["added_tokens_decoder"] = {
            str(i): {"content": token, "normalized": token != "[DOC]", "special": token == "[DOC]"}
            for token, i in added.items()
        }
    messages["additional_special_tokens"] = ["[DOC]"]
    (old / "tokenizer_config.json").write_text(json.dumps(messages))
    grow(str(old), [TextChunk(DOMAIN)], tmp_path / "grown", words=2)
    shrink(str(old), [TextChunk(BEFORE)], tmp_path / "shrunk")
    text = "[DOC] the <drug> film was very good"
    for folder in (tmp_path / "grown", tmp_path / "shrunk"):
        after, changed = opened(folder)
        check_sizes(folder, changed, after)
        before, now = (
            entry.convert_ids_to_tokens(entry(text)["input_ids"])
            for entry in (opened(old)[0], after)
        )
        assert now == before
        assert "<drug>" in now
        assert torch.equal(states(old, text), states(folder, text))


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    other = make_encoder_of_its_kind("roberta", tmp_path / "other")
    with pytest.raises(UsageError, match="for BERT's WordPiece") as refused:
        grow(str(other), [TextChunk(DOMAIN)], tmp_path / "new", words=1)
    assert "bert-base" in refused.value.remedy
    both = make_encoder_of_its_kind("t5", tmp_path / "both")
    with pytest.raises(UsageError, match="decoder"):
        shrink(str(both), [TextChunk(DOMAIN)], tmp_path / "new")
    few = with_head("bert", tmp_path / "few")
    document = json.loads((few / "tokenizer.json").read_text())
    document["model"]["vocab"]["surplus"] = len(document["model"]["vocab"])
    (few / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(UnavailableError, match="and its tokenizer more tokens"):
        grow(str(few), [TextChunk(DOMAIN)], tmp_path / "new", words=1)
    assert not (tmp_path / "new").exists()


KINDS = (
    "bert",
    "distilbert",
    "electra",
    "roberta",
    "albert",
    "modernbert",
    "xlm-roberta",
    "deberta-v2",
    "gpt2",
    "openai-gpt",
)


@pytest.mark.parametrize("name", KINDS)
def test_a_corpus_is_read_the_same_by_the_pieces_that_it_uses(name: str, tmp_path: Path) -> None:
    old = make_encoder_of_its_kind(name, tmp_path / "old")
    texts = ["the film was bad", "good food, not dull?"]
    actual = shrink(str(old), [TextChunk(texts)], tmp_path / "new")
    before, _ = opened(old, "AutoModel")
    after, network = opened(tmp_path / "new", "AutoModel")
    check_sizes(tmp_path / "new", network, after)
    assert (
        actual["vocabulary"]["after"] == len(after) < len(before) == actual["vocabulary"]["before"]
    )
    assert after.special_tokens_map == before.special_tokens_map
    for role in ("pad", "cls", "sep", "bos", "eos"):
        number = getattr(network.config, f"{role}_token_id", None)
        was = transformers.AutoConfig.from_pretrained(old)
        if number is not None:
            assert after.convert_ids_to_tokens(number) == before.convert_ids_to_tokens(
                getattr(was, f"{role}_token_id")
            )
    for text in texts:
        ids = [entry(text)["input_ids"] for entry in (before, after)]
        assert before.convert_ids_to_tokens(ids[0]) == after.convert_ids_to_tokens(ids[1])
        assert torch.equal(states(old, text), states(tmp_path / "new", text))
    vocab = after.get_vocab()
    assert all(token in vocab for token in before.get_vocab() if len(token) == 1)


def test_the_head_shrinks_with_its_table(tmp_path: Path) -> None:
    for name in ("bert", "mobilebert"):
        old = with_head(name, tmp_path / name)
        shrink(str(old), [TextChunk(BEFORE[:1])], tmp_path / f"{name}-new")
        (before, network) = opened(old)
        (after, changed) = opened(tmp_path / f"{name}-new")
        check_sizes(tmp_path / f"{name}-new", changed, after)
        ids = before.convert_tokens_to_ids(sorted(after.vocab, key=after.vocab.get))
        with torch.inference_mode():
            first = network(**before(BEFORE[0], return_tensors="pt")).logits
            second = changed(**after(BEFORE[0], return_tensors="pt")).logits
        assert torch.allclose(first[..., ids], second, atol=1e-5)


def _trained(kind: str, lines: list[str]) -> Tokenizer:
    """A tokenizer with a few hundred tokens.

    The words of a corpus are made of them in several steps.
    """
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    if kind == "Unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer: Any = trainers.UnigramTrainer(
            vocab_size=700, special_tokens=special, unk_token="<unk>", show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
        tokenizer.normalizer = normalizers.NFC()
        trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


@pytest.mark.parametrize("kind", ["Unigram", "BPE"])
def test_what_leads_to_a_piece_stays(kind: str) -> None:
    page = Path(__file__).resolve().parents[2] / "bertctl" / "docs" / "training.md"
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.strip()]
    tokenizer = _trained(kind, lines)
    source = OpenTokenizer(kind, tokenizer, kind, is_bert=False)
    for i in range(0, len(lines), 7):
        texts = [*lines[i : i + 7], "ünknown \U0001f600 cháracters"]
        changed = shrunk(source, [TextChunk(texts)])
        assert changed.tokenizer.get_vocab_size() == len(changed.kept) < tokenizer.get_vocab_size()
        for text in texts:
            assert changed.tokenizer.encode(text).tokens == tokenizer.encode(text).tokens


def test_what_any_text_breaks_into_stays() -> None:
    """The mark of a space by itself, and the bytes of characters that are no tokens.

    Without them texts are unknown.
    """
    space = "\u2581"
    letters = [f"<0x{byte:02X}>" for byte in range(256)]
    unigram = Tokenizer(
        models.Unigram(
            [("<unk>", 0.0), (space, -4.0), ("a", -4.0), (space + "the", -2.0)], unk_id=0
        )
    )
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    vocabulary = {
        token: i for i, token in enumerate(["<unk>", "a", "b", space, space + "a", *letters])
    }
    pairs = models.BPE(
        vocabulary, [(space, "a")], unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    bytes_behind = Tokenizer(pairs)
    bytes_behind.normalizer = normalizers.Replace(" ", space)
    for kind, tokenizer in (("Unigram", unigram), ("BPE", bytes_behind)):
        source = OpenTokenizer(kind, tokenizer, kind, is_bert=False)
        changed = shrunk(source, [TextChunk(["the" if kind == "Unigram" else "ab"])])
        for text in ("a \U0001f600 a", "\u00fc"):
            before = tokenizer.encode(text)
            after = changed.tokenizer.encode(text)
            assert after.tokens == before.tokens
            assert [changed.kept[i] for i in after.ids] == before.ids


def test_a_head_whose_sides_have_one_size_is_refused(tmp_path: Path) -> None:
    """By its shape the hidden layer of the head would have a row for each token."""
    rows = len(FAMILIES["bert"].tokenizer())
    model = with_head("bert", tmp_path / "model", hidden_size=rows, num_attention_heads=1)
    for change in (
        lambda out: grow(str(model), [TextChunk(DOMAIN)], out, words=1),
        lambda out: shrink(str(model), [TextChunk(DOMAIN)], out),
    ):
        with pytest.raises(UnavailableError, match="as many tokens as numbers in a vector"):
            change(tmp_path / "new")
        assert not (tmp_path / "new").exists()
