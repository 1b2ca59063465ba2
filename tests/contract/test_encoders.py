"""Encoders as people bring them, of any family, with any tool's files.

Each works, or is refused with a sentence.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from families import FAMILIES, corpus, make_encoder, make_family
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from bertctl.config.recipe_sections import ModelSection
from bertctl.errors import UnavailableError
from bertctl.modeling.load import load_model, load_tokenizer_of, read_model
from bertctl.modeling.source import inspect_model
from bertctl.tokenization.tokenizer_files import open_tokenizer
from tests.conftest import Run
from tests.nursery import Nursery

Make = Callable[..., Path]

SENTENCES = (
    "the\tO\nfood\tB-X\nwas\tO\nn't\tO\nvery-good\tB-X",
    "a\tO\nbright\tB-X\nfilm\tI-X",
    "dull\tO",
)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes a tiny encoder of a family with BERT's tokenizer.

    Each is made once, and tests change copies of it.
    """
    made: dict[str, Path] = {}

    def make(family: str, into: Path | None = None) -> Path:
        if family not in made:
            made[family] = make_encoder(family, tmp_path_factory.mktemp(family))
        return made[family] if into is None else Path(shutil.copytree(made[family], into))

    return make


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    path = tmp_path / "tagged.conll"
    path.write_text("\n\n".join(SENTENCES * 2) + "\n")
    return path


def tuned(
    data: Path, model: Path, *more: object, task: str = "text-classification"
) -> list[object]:
    """What is typed for one short epoch."""
    files = [
        "--train-file",
        data,
        "--validation-file",
        data,
        "--model",
        model,
        "-o",
        "run",
        "--max-length",
        "32",
    ]
    return [
        "finetune",
        task,
        *files,
        "--epochs",
        "1",
        "--device",
        "cpu",
        "--overwrite",
        "--set",
        "evaluation.bootstrap_resamples=100",
        *more,
    ]


def vectors(data: Path, model: Path, *more: object) -> list[object]:
    """What is typed for features of a file."""
    return [
        "extract-features",
        data,
        "--model",
        model,
        "-o",
        "x.npz",
        "--overwrite",
        "--max-length",
        "32",
        "--device",
        "cpu",
        "--precision",
        "fp32",
        *more,
    ]


@pytest.mark.in_process
@pytest.mark.parametrize("verb", ["extract-features", "probe", "finetune"])
def test_weights_under_other_names_are_refused_by_every_verb(
    verb: str, bertctl: Run, encoder: Make, opinions: Path, tmp_path: Path
) -> None:
    folder = encoder("bert", tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    renamed = {f"module.{name}": tensor for name, tensor in weights.items()}
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    command = vectors(opinions, folder) if verb == "extract-features" else tuned(opinions, folder)
    if verb == "probe":
        command = [
            "probe",
            "text-classification",
            "--train-file",
            opinions,
            "--model",
            folder,
            "--max-length",
            "32",
        ]
    refused = bertctl(*command)
    assert refused.returncode == 4, refused.stderr
    assert "would be random" in refused.stderr


@pytest.mark.in_process
def test_a_missing_layer_is_refused_without_a_head_too(
    bertctl: Run, encoder: Make, opinions: Path, tmp_path: Path
) -> None:
    folder = encoder("electra", tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    retained = {name: tensor for name, tensor in weights.items() if ".layer.1." not in name}
    assert 0 < len(retained) < len(weights)
    save_file(retained, folder / "model.safetensors", metadata={"format": "pt"})
    for command in (vectors(opinions, folder), tuned(opinions, folder)):
        refused = bertctl(*command)
        assert refused.returncode == 4, refused.stderr
        assert "encoder.layer.1" in refused.stderr


@pytest.mark.parametrize("family", ["roberta", pytest.param("modernbert", marks=pytest.mark.slow)])
def test_words_of_byte_level_families_are_read_in_one_way(
    family: str, bertctl: Run, tagged: Path, tmp_path: Path
) -> None:
    model = make_family(family, tmp_path / "model")
    done = bertctl(*tuned(tagged, model, task="token-classification"))
    assert done.returncode == 0, done.stderr
    saved = transformers.AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    words = [[line.split("\t")[0] for line in sentence.split("\n")] for sentence in SENTENCES * 2]
    theirs = [saved(sentence, is_split_into_words=True)["input_ids"] for sentence in words]
    plain = transformers.AutoTokenizer.from_pretrained(model)
    assert theirs[1] == plain(" a bright film")["input_ids"]
    assert theirs[2] != plain("dull")["input_ids"]
    extracted = bertctl(*vectors(tagged, model, "--words", "first"))
    assert extracted.returncode == 0, extracted.stderr
    network = transformers.AutoModel.from_pretrained(model).eval()
    expected = []
    for sentence in words:
        encoded = saved(sentence, is_split_into_words=True, return_tensors="pt")
        states = network(**encoded).last_hidden_state[0]
        positions = [encoded.word_ids().index(number) for number in range(len(sentence))]
        expected.append(states[positions].detach().numpy())
    np.testing.assert_allclose(
        np.load(tmp_path / "x.npz")["vectors"], np.concatenate(expected), atol=1e-4
    )


CASED = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "The",
    "the",
    "film",
    "Film",
    "was",
    "good",
    "bad",
    "food",
    "it",
]
HINDI = [*CASED[:5], "अच्छी", "फिल्म", "है", "बुरा", "खाना", "यह", "नही", "बहुत"]


def with_vocabulary(folder: Path, tokens: list[str], *, as_json: bool = False) -> Path:
    """Its tokenizer is a vocabulary alone, or a cased tokenizer.json alone."""
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    if as_json:
        tokenizer = transformers.BertTokenizerFast(
            vocab=dict(zip(tokens, range(99), strict=False)), do_lower_case=False
        )
        (folder / "vocab.txt").unlink()
        tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def saved_ids(run: Path, text: str) -> list[str]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(run / "model")
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
    assert Tokenizer.from_file(str(run / "model" / "tokenizer.json")).encode(text).tokens == tokens
    return [token for token in tokens if token not in ("[CLS]", "[SEP]")]


@pytest.mark.parametrize("as_json", [False, True], ids=["vocab.txt", "tokenizer.json"])
def test_a_cased_vocabulary_alone_is_not_lower_cased(
    as_json: bool, bertctl: Run, encoder: Make, opinions: Path, tmp_path: Path
) -> None:
    folder = with_vocabulary(encoder("bert", tmp_path / "model"), CASED, as_json=as_json)
    done = bertctl(*tuned(opinions, folder))
    assert done.returncode == 0, done.stderr
    assert saved_ids(tmp_path / "run", "The Film was") == ["The", "Film", "was"]


def test_a_script_without_capitals_is_neither_cased_nor_uncased(
    bertctl: Run, encoder: Make, tmp_path: Path
) -> None:
    folder = with_vocabulary(encoder("bert", tmp_path / "model"), HINDI)
    data = tmp_path / "hindi.csv"
    data.write_text("text,label\n" + "यह फिल्म अच्छी है,pos\nयह खाना बुरा है,neg\n" * 4)
    refused = bertctl(*tuned(data, folder))
    assert refused.returncode == 2, refused.stderr
    assert "does not tell if its text is lower-cased" in refused.stderr
    done = bertctl(*tuned(data, folder, "--set", "model.lowercase=false"))
    assert done.returncode == 0, done.stderr
    assert saved_ids(tmp_path / "run", "यह फिल्म अच्छी है") == ["यह", "फिल्म", "अच्छी", "है"]


HALF = [
    "deberta",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("big_bird", "fnet", "xmod")),
]


@pytest.mark.parametrize("family", HALF)
def test_a_family_that_breaks_in_half_precision_computes_in_fp32_and_says_so(
    family: str, bertctl: Run, encoder: Make, opinions: Path, tmp_path: Path
) -> None:
    done = bertctl(*tuned(opinions, encoder(family), "--precision", "bf16"))
    assert done.returncode == 0, done.stderr
    assert f"fp32 (not bf16: {family} in half precision" in done.stderr
    config = (tmp_path / "run" / "recipe.yaml").read_text()
    assert "precision: fp32" in config
    message = vectors(opinions, encoder(family))
    message[message.index("fp32")] = "bf16"
    assert bertctl(*message).returncode == 0
    answer = bertctl(
        "doctor",
        "text-classification",
        "--train-file",
        opinions,
        "--model",
        encoder(family),
        "--max-length",
        "32",
        "--device",
        "cpu",
        "--precision",
        "bf16",
        "--offline",
        "--json",
    )
    assert f"not bf16: {family}" in json.loads(answer.stdout)["compute"]


@pytest.mark.slow
def test_a_sweep_over_such_a_family_runs_in_fp32_too(
    bertctl: Run, encoder: Make, opinions: Path, tmp_path: Path
) -> None:
    command = tuned(opinions, encoder("deberta"), "--precision", "bf16", "--seeds", "2", "--json")
    command.remove("--overwrite")
    done = bertctl("sweep", *command[1:])
    assert done.returncode == 0, done.stdout
    cells = [*(tmp_path / "run" / "cells").iterdir()]
    assert len(cells) == 2
    assert all("precision: fp32" in (cell / "recipe.yaml").read_text() for cell in cells)


OFFSET = [
    "mpnet",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in (
            "xlm-roberta-xl",
            "xmod",
            "ibert",
            "data2vec-text",
            "luke",
            "lilt",
            "roberta-prelayernorm",
        )
    ),
]


@pytest.mark.parametrize("family", OFFSET)
def test_the_longest_input_is_what_the_positions_hold(
    family: str, bertctl: Run, encoder: Make, tmp_path: Path
) -> None:
    data = tmp_path / "long.csv"
    data.write_text("text,label\n" + f"{'good film ' * 80},pos\n{'bad food ' * 80},neg\n" * 2)
    refused = bertctl(*tuned(data, encoder(family), "--max-length", "64"))
    assert refused.returncode == 2, refused.stderr
    longest = refused.stderr.split("Use --max-length ")[1].split()[0]
    done = bertctl(*tuned(data, encoder(family), "--max-length", longest))
    assert done.returncode == 0, done.stderr


@pytest.mark.in_process
def test_a_tokenizer_with_more_tokens_than_the_model_has_vectors_is_refused(
    bertctl: Run, encoder: Make, opinions: Path, tmp_path: Path
) -> None:
    folder = encoder("bert", tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["film"], special_tokens=True)
    tokenizer.add_tokens(["dullness"])
    tokenizer.save_pretrained(folder)
    for command in (tuned(opinions, folder), vectors(opinions, folder)):
        refused = bertctl(*command)
        assert refused.returncode == 4, refused.stderr
        assert "'dullness'" in refused.stderr
        assert "resize_token_embeddings" in refused.stderr


def test_a_tokenizer_that_names_no_padding_token_gets_one_and_its_cut_side_is_saved_as_it_is(
    bertctl: Run, encoder: Make, opinions: Path, tmp_path: Path
) -> None:
    folder = encoder("bert", tmp_path / "model")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "truncation_side": "left"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    done = bertctl(*tuned(opinions, folder))
    assert done.returncode == 0, done.stderr
    assert "'[PAD]'" in done.stderr
    saved = transformers.AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    assert saved.pad_token == "[PAD]"
    assert saved.truncation_side == "right"


@pytest.mark.parametrize(
    "fields",
    [{"output_attentions": True, "output_hidden_states": True}, {"attn_implementation": "eager"}],
)
def test_a_model_that_was_saved_for_a_look_inside_is_trained(
    fields: dict[str, Any], bertctl: Run, encoder: Make, opinions: Path, tmp_path: Path
) -> None:
    folder = encoder("bert", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))
    done = bertctl(*tuned(opinions, folder))
    assert done.returncode == 0, done.stderr
    assert bertctl("predict", tmp_path / "run", "the film was good").returncode == 0


def test_pairs_are_put_together_as_tokenizer_json_says_whoever_reads_it(
    encoder: Make, tmp_path: Path
) -> None:
    """Answers come from the file alone.

    Training comes from transformers' class, which would take its own way.
    """
    folder = encoder("bert", tmp_path / "model")
    document = json.loads((folder / "tokenizer.json").read_text())
    numbers = {token["content"]: token["id"] for token in document["added_tokens"]}
    ends = {"sep": ["[SEP]", numbers["[SEP]"]], "cls": ["[CLS]", numbers["[CLS]"]]}
    document["post_processor"] = {
        "type": "RobertaProcessing",
        "trim_offsets": True,
        "add_prefix_space": False,
        **ends,
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    source = inspect_model(ModelSection(name=str(folder), max_length=40))
    answers = read_model(source, "AutoModel")
    trained = load_model(source, "AutoModel", head=None)
    assert type(answers.network) is not type(trained.network), (
        "one of them is read without transformers"
    )
    read = [entry.tokenizer.encode("the film", "was good") for entry in (answers, trained)]
    assert read[0].tokens == read[1].tokens
    assert read[0].tokens.count("[SEP]") == 3


def test_a_head_of_the_hub_is_not_taken_for_other_labels(
    bertctl: Run, encoder: Make, opinions: Path, tmp_path: Path
) -> None:
    folder = encoder("bert", tmp_path / "model")
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    torch.nn.init.constant_(network.classifier.bias, 7.0)
    network.config.problem_type = None
    network.save_pretrained(folder)
    rate = ("--learning-rate", "1e-9")
    done = bertctl(*tuned(opinions, folder, *rate))
    assert done.returncode == 0, done.stderr
    assert "other labels, so it gets a new head" in done.stderr
    assert (
        load_file(tmp_path / "run" / "model" / "model.safetensors")["classifier.bias"].abs().max()
        < 1
    )
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    config |= {"id2label": {"0": "neg", "1": "pos"}, "label2id": {"neg": 0, "pos": 1}}
    (folder / "config.json").write_text(json.dumps(config))
    done = bertctl(*tuned(opinions, folder, *rate))
    assert "its trained head is kept" in done.stderr
    assert load_file(tmp_path / "run" / "model" / "model.safetensors")["classifier.bias"].min() > 6


@pytest.mark.parametrize("family", ["albert", "ibert"])
def test_word_embeddings_of_another_width_than_the_layers(
    family: str, bertctl: Run, encoder: Make, opinions: Path, tmp_path: Path
) -> None:
    done = bertctl(
        *vectors(opinions, encoder(family), "--layers", "word-embeddings", "--pooling", "max")
    )
    assert done.returncode == 0, done.stderr
    table = transformers.AutoModel.from_pretrained(encoder(family)).get_input_embeddings().weight
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder(family))
    ids = tokenizer("the film was good fine 0")["input_ids"]
    actual = np.load(tmp_path / "x.npz")["vectors"]
    np.testing.assert_allclose(actual[0], table[ids].amax(0).detach().numpy(), atol=1e-6)


@pytest.mark.in_process
def test_options_that_a_family_has_not_are_refused_with_a_sentence(
    bertctl: Run, encoder: Make, opinions: Path, tmp_path: Path
) -> None:
    refused = bertctl(*tuned(opinions, encoder("albert"), "--gradient-checkpointing", "--dry-run"))
    assert refused.returncode == 2, refused.stderr
    assert "transformers has none for albert" in refused.stderr
    refused = bertctl(*vectors(opinions, encoder("t5")))
    assert refused.returncode == 2, refused.stderr
    assert "'t5' is an encoder and a decoder" in refused.stderr


def test_families_that_cannot_be_used_are_refused_by_name_before_torch_is_imported(
    encoder: Make, opinions: Path, tagged: Path, tmp_path: Path, nursery: Nursery
) -> None:
    own_code = encoder("bert", tmp_path / "neobert")
    config = json.loads((own_code / "config.json").read_text()) | {
        "auto_map": {"AutoModel": "model.NeoBERT"}
    }
    (own_code / "config.json").write_text(json.dumps(config | {"model_type": "neobert"}))
    unheard = encoder("bert", tmp_path / "unheard")
    (unheard / "config.json").write_text(json.dumps(config | {"model_type": "unheard"}))
    choices = tmp_path / "choices.jsonl"
    choices.write_text(
        '{"context": "the film", "choices": ["was good", "was bad"], "label": 0}\n' * 4
    )
    commands = {
        "'neobert': its network is custom code, which is never run": tuned(opinions, own_code),
        "'unheard': its network is custom code, which is never run": vectors(opinions, unheard),
        "'deberta' for this task (MultipleChoice)": tuned(
            choices, encoder("deberta"), task="multiple-choice"
        ),
        "'gpt2' for this task (MultipleChoice)": tuned(
            choices, encoder("gpt2"), task="multiple-choice"
        ),
        "type `bertctl probe` in place": tuned(
            tagged, encoder("openai-gpt"), task="token-classification"
        ),
    }
    code = (
        "import json, sys; from bertctl.cli.main import main\n"
        "codes = [main(command) for command in json.loads(sys.argv[1])]\n"
        "print(codes, 'torch' in sys.modules)"
    )
    typed = json.dumps([[str(word) for word in command] for command in commands.values()])
    done = nursery.run_code(code, typed, cwd=tmp_path)
    assert done.stdout.strip() == f"{[2] * len(commands)} False", done.stderr
    for message in commands:
        assert message in done.stderr


def test_tags_are_learned_on_frozen_vectors_where_a_family_has_no_head_for_them(
    bertctl: Run, encoder: Make, tagged: Path
) -> None:
    """What the refusal says to type, and what is done with it then."""
    words = ("probe", "token-classification", "--train-file", tagged, "--validation-file", tagged)
    probed = bertctl(
        *words,
        "--model",
        encoder("openai-gpt"),
        "--max-length",
        "32",
        "-o",
        "probe",
        "--device",
        "cpu",
    )
    assert probed.returncode == 0, probed.stderr
    assert bertctl("evaluate", "probe", "--device", "cpu").returncode == 0
    answered = bertctl("predict", "probe", tagged, "--device", "cpu", "--json")
    assert answered.returncode == 0, answered.stderr


def test_a_longformer_whose_tokenizer_sets_too_few_separators_is_refused_for_pairs(
    bertctl: Run, encoder: Make, tmp_path: Path
) -> None:
    choices = tmp_path / "choices.jsonl"
    choices.write_text(
        '{"context": "the film", "choices": ["was good", "was bad"], "label": 0}\n' * 4
    )
    refused = bertctl(*tuned(choices, encoder("longformer"), task="multiple-choice"))
    assert refused.returncode == 4, refused.stderr
    assert "three separators (id 3)" in refused.stderr


def test_a_family_whose_steps_take_long_says_so(
    bertctl: Run, encoder: Make, opinions: Path
) -> None:
    done = bertctl(*tuned(opinions, encoder("longformer"), "--dry-run"))
    assert done.returncode == 0, done.stderr
    assert "a step takes longer than that of a BERT of this shape: it pads each text" in done.stderr


@pytest.mark.in_process
def test_doctor_is_ready_only_for_what_can_be_loaded(
    bertctl: Run, encoder: Make, opinions: Path, tagged: Path, tmp_path: Path
) -> None:
    def doctor(task: str, data: Path, model: Path, *settings: str) -> str:
        files = [
            "--train-file",
            data,
            "--validation-file",
            data,
            "--model",
            model,
            "--max-length",
            "32",
        ]
        answer = bertctl("doctor", task, *files, *settings, "--offline")
        assert (
            answer.returncode
            == bertctl(*tuned(data, model, "--dry-run", *settings, task=task)).returncode
        )
        return answer.stderr

    folder = encoder("bert", tmp_path / "model")
    assert "ready" in doctor("text-classification", opinions, folder)
    one_label = tmp_path / "one.csv"
    one_label.write_text("text,label\n" + "the film,good\n" * 4)
    assert "have one label" in doctor("text-classification", one_label, folder)
    for setting, message in {
        "training.freeze_layers=5": "has 2 layers",
        "evaluation.primary_metric=f1_nope": "unknown metric",
        "training.gradient_checkpointing=true": "",
    }.items():
        assert message in doctor("text-classification", opinions, folder, "--set", setting)
    recomputed = ("--set", "training.gradient_checkpointing=true")
    assert "has none for albert" in doctor(
        "text-classification", opinions, encoder("albert"), *recomputed
    )
    renamed = encoder("bert", tmp_path / "renamed")
    weights = {
        f"module.{name}": tensor
        for name, tensor in load_file(renamed / "model.safetensors").items()
    }
    save_file(weights, renamed / "model.safetensors", metadata={"format": "pt"})
    assert "would be random" in doctor("text-classification", opinions, renamed)
    (folder / "tokenizer.json").write_text("{}")
    assert "can't be used" in doctor("text-classification", opinions, folder)
    assert "no network of the family 'openai-gpt'" in doctor(
        "token-classification", tagged, encoder("openai-gpt")
    )


@pytest.mark.in_process
@pytest.mark.parametrize(
    "name", ["spm.model", "sentencepiece.model", "tokenizer.model", "spiece.model"]
)
def test_a_tokenizer_of_sentencepiece_is_known_and_names_what_converts_it(
    name: str, bertctl: Run, encoder: Make, opinions: Path, tmp_path: Path
) -> None:
    folder = encoder("albert", tmp_path / "model")
    for path in (*folder.glob("token*"), *folder.glob("vocab*")):
        path.unlink()
    (folder / name).write_bytes(b"\x00")
    hidden = tmp_path / "hidden" / "sentencepiece"
    hidden.mkdir(parents=True)
    refused = bertctl(*tuned(opinions, folder))
    assert refused.returncode == 4, refused.stderr
    assert f"{name} is a tokenizer of sentencepiece" in refused.stderr
    assert "pip install sentencepiece protobuf" in refused.stderr


def test_a_folder_of_an_adapter_is_called_one(bertctl: Run, opinions: Path, tmp_path: Path) -> None:
    folder = tmp_path / "lora"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "base_model_name_or_path": "bert-base-uncased"}'
    )
    (folder / "adapter_model.safetensors").write_bytes(b"")
    refused = bertctl(*tuned(opinions, folder))
    assert refused.returncode == 4, refused.stderr
    assert "an adapter names its model" in refused.stderr


READ = (
    "The film wasn't GOOD, was it?",
    " a  bright film\tfood",
    "naïve ﬁlm, don't 東京 3.14",
    "dull",
    "",
)
OF_EACH_KIND = ("bert", "roberta", "albert", "gpt2")


@pytest.mark.parametrize("personal", ["as it is", "a normalizer of its own"])
@pytest.mark.parametrize(
    "family",
    [
        name if name in OF_EACH_KIND else pytest.param(name, marks=pytest.mark.slow)
        for name in FAMILIES
    ],
)
def test_a_tokenizer_gives_the_same_ids_whichever_of_its_files_are_there(
    family: str, personal: str, tmp_path: Path
) -> None:
    """All of them, tokenizer.json alone, the files of the slow form.

    In training, in features, in `tokenize`, saved.
    """
    full = make_family(family, tmp_path / "full")
    tokenizer_json = full / "tokenizer.json"
    document = json.loads(tokenizer_json.read_text())
    if personal != "as it is":
        document["normalizer"] = {
            "type": "Sequence",
            "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}],
        }
        tokenizer_json.write_text(json.dumps(document))
    expected = _ids_of(Tokenizer.from_file(str(tokenizer_json)))
    alone = shutil.copytree(full, tmp_path / "alone")
    (alone / "tokenizer_config.json").unlink()

    for folder in (full, alone):
        _check_ids(folder, expected, tmp_path / "saved")
        assert _ids_of(open_tokenizer(str(folder)).tokenizer) == expected, folder.name
    if personal != "as it is":
        return

    slow = _slow_form(full, document["model"], tmp_path / "slow")
    kind = document["model"]["type"]
    if kind == "Unigram" or family == "modernbert":
        settings = ModelSection(name=str(slow), max_length=40)
        with pytest.raises(UnavailableError):  # sentencepiece would be needed for the slow form
            load_model(inspect_model(settings), "AutoModel", head=None)
        return
    _check_ids(slow, expected, tmp_path / "saved")
    if kind == "WordPiece":
        assert _ids_of(open_tokenizer(str(slow)).tokenizer) == expected


def _ids_of(tokenizer: Tokenizer) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(READ)]


def _slow_form(full: Path, model: dict[str, Any], folder: Path) -> Path:
    """A model's folder with the files of its slow tokenizer instead of tokenizer.json."""
    shutil.copytree(full, folder)
    (folder / "tokenizer.json").unlink()
    vocabulary = model["vocab"]
    if model["type"] == "WordPiece":
        tokens = sorted(vocabulary, key=vocabulary.get)
        (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    elif model["type"] == "BPE":
        merges = map(" ".join, model["merges"])
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
        (folder / "merges.txt").write_text("\n".join(merges) + "\n")
    return folder


def _check_ids(folder: Path, expected: list[list[int]], saved_folder: Path) -> None:
    """Checks the ids of a folder's tokenizer wherever it is loaded, and where it is saved."""
    source = inspect_model(ModelSection(name=str(folder), max_length=40))
    model = load_model(source, "AutoModel", head=None)
    head = load_tokenizer_of(source, "AutoModelForSequenceClassification", head=None)
    model.save(saved_folder)
    saved = transformers.AutoTokenizer.from_pretrained(saved_folder)
    without_weights = read_model(source, "AutoModel")

    assert _ids_of(model.tokenizer) == expected, folder.name
    assert _ids_of(head) == expected, folder.name
    assert [saved(text)["input_ids"] for text in READ] == expected, folder.name
    text_pairs = [(text, READ[0]) for text in READ]
    for texts in (READ, text_pairs):
        theirs = model.tokenizer.encode_batch(texts)
        ours = without_weights.tokenizer.encode_batch(texts)
        for our_encoding, their_encoding in zip(ours, theirs, strict=True):
            assert our_encoding.ids == their_encoding.ids
            assert our_encoding.type_ids == their_encoding.type_ids
    assert without_weights.has_segments == model.has_segments
    assert without_weights.cls_id == model.cls_id
    assert without_weights.padding == model.padding


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "file", "special"),
    [
        (
            "albert",
            "spiece.model",
            {
                "pad_id": 0,
                "unk_id": 1,
                "bos_id": -1,
                "eos_id": -1,
                "control_symbols": ["[CLS]", "[SEP]"],
                "user_defined_symbols": ["[MASK]"],
            },
        ),
        (
            "deberta-v2",
            "spm.model",
            {
                "pad_id": 0,
                "bos_id": 1,
                "eos_id": 2,
                "unk_id": 3,
                "pad_piece": "[PAD]",
                "bos_piece": "[CLS]",
                "eos_piece": "[SEP]",
                "unk_piece": "[UNK]",
                "user_defined_symbols": ["[MASK]"],
            },
        ),
        (
            "xlm-roberta",
            "sentencepiece.bpe.model",
            {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1},
        ),
    ],
)
def test_a_tokenizer_of_sentencepiece_alone_is_saved_with_the_same_ids(
    family: str, file: str, special: dict[str, Any], encoder: Make, tmp_path: Path
) -> None:
    """It is converted; what is saved then needs sentencepiece no more."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="converts a tokenizer of its own")
    pytest.importorskip("google.protobuf", reason="reads its files")
    folder = encoder(family, tmp_path / "model")
    for path in (*folder.glob("token*"), *folder.glob("vocab*")):
        path.unlink()
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(corpus()))
    sentencepiece.SentencePieceTrainer.train(
        input=str(texts),
        model_prefix=str(tmp_path / "own"),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
        **special,
    )
    shutil.copy(tmp_path / "own.model", folder / file)
    model = load_model(
        inspect_model(ModelSection(name=str(folder), max_length=40)), "AutoModel", head=None
    )
    model.save(tmp_path / "saved")
    plain = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    ids = [entry.ids for entry in model.tokenizer.encode_batch(READ)]
    assert [plain(text)["input_ids"] for text in READ] == ids
    (tmp_path / "saved" / "tokenizer_config.json").unlink()
    alone = load_model(
        inspect_model(ModelSection(name=str(tmp_path / "saved"), max_length=40)),
        "AutoModel",
        head=None,
    )
    assert [entry.ids for entry in alone.tokenizer.encode_batch(READ)] == ids


@pytest.mark.in_process
@pytest.mark.parametrize(("family", "place"), [("xlnet", "first"), ("xlm", "last")])
def test_a_head_that_reads_another_place_than_its_familys_never_reads_padding(
    family: str, place: str, bertctl: Run, opinions: Path, tmp_path: Path
) -> None:
    model = make_encoder(family, tmp_path / "model", summary_type=place)
    trained = bertctl(*tuned(opinions, model, "--precision", "fp32"))
    assert trained.returncode == 0, trained.stderr
    assert f"its head reads '{place}' (summary_type)" in trained.stderr
    texts = ["good", "a very very good film was it", "bad food"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    together = bertctl(
        "predict", "run", "texts.txt", "--precision", "fp32", "--format", "jsonl", "--device", "cpu"
    )
    for text, line in zip(texts, together.stdout.splitlines(), strict=True):
        alone = bertctl(
            "predict", "run", text, "--precision", "fp32", "--format", "jsonl", "--device", "cpu"
        )
        theirs = json.loads(alone.stdout)["probabilities"]
        assert json.loads(line)["probabilities"] == pytest.approx(theirs, abs=1e-6)


@pytest.mark.in_process
@pytest.mark.parametrize("family", ["xlnet", "flaubert", "xlm"])
def test_a_head_for_questions_that_is_called_simple_answers(
    family: str, bertctl: Run, encoder: Make, tmp_path: Path
) -> None:
    folder = encoder(family, tmp_path / "model")
    transformers.AutoModelForQuestionAnswering.from_pretrained(folder).save_pretrained(folder)
    requests = [
        "--question",
        "what was good?",
        "--context",
        "the food was good",
        "--max-length",
        "32",
    ]
    done = bertctl("predict", folder, *requests, "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["prediction"] in "the food was good"


@pytest.mark.in_process
def test_adapters_of_no_language_are_refused(
    bertctl: Run, encoder: Make, opinions: Path, tmp_path: Path
) -> None:
    folder = encoder("xmod", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "default_language": None}))
    for command in (tuned(opinions, folder), vectors(opinions, folder)):
        refused = bertctl(*command)
        assert refused.returncode == 2, refused.stderr
        assert "Set default_language there" in refused.stderr


def test_big_bird_attends_in_blocks_whatever_came_before(tmp_path: Path) -> None:
    folder = make_encoder("big_bird", tmp_path / "model", max_position_embeddings=128)
    network = load_model(
        inspect_model(ModelSection(name=str(folder), max_length=96)), "AutoModel", head=None
    ).network
    short = torch.arange(5, 15)[None]
    long = (torch.arange(96) % 80 + 5)[None]
    drawn = torch.random.get_rng_state()
    with torch.inference_mode():
        for ids in (long, short, long):
            theirs = (
                transformers.AutoModel.from_pretrained(folder)
                .eval()(input_ids=ids)
                .last_hidden_state
            )
            torch.random.set_rng_state(drawn)
            torch.testing.assert_close(network(input_ids=ids).last_hidden_state, theirs)
            assert torch.equal(torch.random.get_rng_state(), drawn)


@pytest.mark.parametrize("long_text", ["head", "window"])
def test_texts_with_end_tokens_of_their_own_share_a_batch_in_a_network_that_reads_the_last(
    long_text: str, bertctl: Run, encoder: Make, tmp_path: Path
) -> None:
    texts = ["good film", "bad [SEP] film", "the [SEP] food [SEP] was good", "dull"]
    data = tmp_path / "texts.csv"
    data.write_text(
        "text,label\n" + "".join(f"{text},{'ab'[i % 2]}\n" for i, text in enumerate(texts * 2))
    )
    trained = bertctl(*tuned(data, encoder("t5"), "--long-text", long_text, "--precision", "fp32"))
    assert trained.returncode == 0, trained.stderr
    answered = bertctl(
        "predict", "run", data, "--precision", "fp32", "--format", "jsonl", "--device", "cpu"
    )
    assert answered.returncode == 0, answered.stderr
    network = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "run" / "model"
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    for text, line in zip(texts, answered.stdout.splitlines(), strict=False):
        with torch.inference_mode():
            theirs = network(**tokenizer(text, return_tensors="pt")).logits[0].softmax(0)
        assert list(json.loads(line)["probabilities"].values()) == pytest.approx(
            theirs.tolist(), abs=1e-5
        )
