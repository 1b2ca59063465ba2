"""Every file and key that transformers and peft write into a model's folder.

It also says what bertctl does with it.

A release that writes another one fails the first tests: whoever meets it decides whether it is
read, kept or refused.
"""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import transformers
from families import FAMILIES
from test_random_weights import edit_weights

from bertctl.errors import UnavailableError
from bertctl.inference.trained import open_run
from bertctl.modeling.output_names import output_names
from tests.conftest import Run
from tests.heard import Heard

FILES: Mapping[str, str] = {
    "config.json": "read",
    "model.safetensors": "read",
    "model.safetensors.index.json": "read: all files that it names, each of which must be there",
    "tokenizer.json": "read, but for its own truncation and padding: the recipe's lengths hold",
    "tokenizer_config.json": "read: TOKENIZER_KEYS",
    "adapter_config.json": "refused by name: an adapter names a model, which is not fetched",
    "adapter_model.safetensors": "refused with adapter_config.json",
    "adapter_model.bin": "refused with adapter_config.json",
    "pytorch_model.bin": "never loaded: pickled; a folder without safetensors is refused",
    "pytorch_model.bin.index.json": "never loaded: pickled",
    "pytorch_model_fsdp": "never loaded: pickled",
    "generation_config.json": "not read: nothing is generated",
    "training_args.bin": "never loaded: pickled",
    "trainer_state.json": "not read: what a Trainer did says nothing of what the model answers",
    "optimizer.pt": "never loaded: pickled",
    "scheduler.pt": "never loaded: pickled",
    "scaler.pt": "never loaded: pickled",
    "modelcard.json": "not read",
    "preprocessor_config.json": "not read: of images and sounds, whose families are refused",
    "processor_config.json": "not read: of images and sounds",
    "audio_tokenizer_config.json": "not read: of sounds",
    "video_preprocessor_config.json": "not read: of films",
    "transformers_modules": "never run: code",
}
"""File -> what is done with it."""

_OF_NETWORK = "read by the network of its family"
_OF_DROPOUT = "read in training; model.dropout of a recipe stands above it"
_OF_GENERATION = (
    "harmless: for generated text and memory from one call to the next, of which there is none"
)

CONFIG_KEYS: Mapping[str, str] = {
    "architectures": "read: which head was trained",
    "model_type": "read: the family",
    "id2label": "read: names of the outputs; gaps and repeated names are refused",
    "label2id": "read: names where id2label has none; refused where it says otherwise than "
    "id2label",
    "problem_type": "read: one label, several or a score",
    "vocab_size": "read, and compared with the tokenizer and the weights",
    "pad_token_id": "read where positions are counted from it, else the tokenizer's padding token",
    "dtype": "not followed: every model is loaded in fp32, and runtime.precision says how it "
    "computes",
    "_name_or_path": "dropped: where the model once lay",
    "transformers_version": "kept as today's",
    "return_dict": "set: outputs by name",
    "output_attentions": "set: whoever wants them asks",
    "output_hidden_states": "set: whoever wants them asks",
    "chunk_size_feed_forward": "set to 0: the same numbers, at any length",
    "is_encoder_decoder": "read by the network of its family",
    "tie_word_embeddings": "read by transformers where the head of words is loaded",
    **dict.fromkeys(
        (
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
            "hidden_act",
            "layer_norm_eps",
            "initializer_range",
            "is_decoder",
            "add_cross_attention",
            "embedding_size",
            "dim",
            "n_layers",
            "n_heads",
            "hidden_dim",
            "activation",
            "sinusoidal_pos_embds",
            "activation_function",
            "afn",
            "attention_bias",
            "attn_type",
            "bi_data",
            "clamp_len",
            "classifier_activation",
            "classifier_bias",
            "classifier_pooling",
            "d_head",
            "d_inner",
            "d_model",
            "decoder_bias",
            "ff_activation",
            "global_attn_every_n_layers",
            "hidden_activation",
            "initializer_cutoff_factor",
            "inner_group_num",
            "layer_norm_epsilon",
            "layer_types",
            "legacy",
            "local_attention",
            "max_relative_positions",
            "mlp_bias",
            "n_embd",
            "n_head",
            "n_inner",
            "n_layer",
            "n_positions",
            "norm_bias",
            "norm_eps",
            "num_hidden_groups",
            "pooler_hidden_act",
            "pooler_hidden_size",
            "pos_att_type",
            "position_biased_input",
            "relative_attention",
            "reorder_and_upcast_attn",
            "rope_parameters",
            "same_length",
            "scale_attn_by_inverse_layer_idx",
            "scale_attn_weights",
            "sparse_pred_ignore_index",
            "sparse_prediction",
            "start_n_top",
            "end_n_top",
            "summary_activation",
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
        ),
        _OF_NETWORK,
    ),
    **dict.fromkeys(
        (
            "hidden_dropout_prob",
            "attention_probs_dropout_prob",
            "classifier_dropout",
            "classifier_dropout_prob",
            "dropout",
            "attention_dropout",
            "qa_dropout",
            "seq_classif_dropout",
            "summary_first_dropout",
            "summary_last_dropout",
            "pooler_dropout",
            "embedding_dropout",
            "mlp_dropout",
            "embd_pdrop",
            "attn_pdrop",
            "resid_pdrop",
        ),
        _OF_DROPOUT,
    ),
    **dict.fromkeys(
        ("use_cache", "mem_len", "reuse_len", "use_mems_eval", "use_mems_train", "bos_token_id"),
        _OF_GENERATION,
    ),
    "eos_token_id": "read by heads at the last end token (T5, BART)",
    "sep_token_id": "read by Longformer's head for questions",
    "cls_token_id": "harmless: the tokenizer's own is taken",
    "deterministic_flash_attn": "harmless: that implementation is refused",
}
"""Key of a config.json -> what is done with it."""

OTHER_CONFIG_KEYS: Mapping[str, str] = {
    "num_labels": "read where id2label is absent",
    "auto_map": "never run, and dropped",
    "quantization_config": "refused by name",
    "attn_implementation": "refused but for eager and sdpa",
    "pruned_heads": "refused: the weights are not of the shapes of the config",
    "torch_dtype": "as dtype",
    "task_specific_params": "read for function_to_apply of text-classification; else of generated "
    "text",
    "function_to_apply": "refused where it contradicts problem_type",
    "sbert_ce_default_activation_function": "named in a warning: scores are those before it",
    "finetuning_task": "harmless: a name",
}
"""Keys that older releases, people and other libraries write."""

TOKENIZER_KEYS: Mapping[str, str] = {
    "tokenizer_class": "read where tokenizer.json is absent, and compared with it",
    "backend": "harmless: tokenizers is the only one",
    "model_max_length": "read: the most tokens of a text for a model of transformers, below its "
    "positions",
    "model_input_names": "set to what the network is given",
    "do_lower_case": "read, and compared with tokenizer.json and the vocabulary",
    "add_prefix_space": "read; set for words of byte-level families",
    **dict.fromkeys(
        (
            "strip_accents",
            "tokenize_chinese_chars",
            "split_by_punct",
            "keep_accents",
            "remove_space",
            "trim_offsets",
            "errors",
            "unk_id",
        ),
        "read where tokenizer.json is absent; else it says the same, or is followed with a word",
    ),
    **dict.fromkeys(
        (
            "bos_token",
            "cls_token",
            "eos_token",
            "mask_token",
            "pad_token",
            "sep_token",
            "unk_token",
            "extra_special_tokens",
        ),
        "read: roles of tokens",
    ),
}
"""Key of a tokenizer_config.json -> what is done with it."""

OTHER_TOKENIZER_KEYS: Mapping[str, str] = {
    "truncation_side": "read: left keeps the end of long texts, as model.long_text: tail",
    "padding_side": "set to the family's: padding changes no answer",
    "clean_up_tokenization_spaces": "set: no text is put together from tokens",
    "chat_template": "left to transformers, and kept",
}


def test_every_file_that_transformers_writes_has_a_decision() -> None:
    """The Trainer is read and not imported: its imports take seconds."""
    root = Path(transformers.__file__).parent
    modules = ("trainer.py", "trainer_callback.py", "utils/__init__.py", "utils/peft_utils.py")
    sources = [root / module for module in modules]
    constants = re.compile(r'^[A-Z_]+_NAME = "([^"]+)"', re.MULTILINE)
    written = set()
    for source in sources:
        written.update(constants.findall(source.read_text(encoding="utf-8")))
    assert {
        "config.json",
        "model.safetensors",
        "training_args.bin",
        "adapter_config.json",
    } <= written
    assert written <= FILES.keys(), written - FILES.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_of_a_config_and_of_a_tokenizer_has_a_decision(
    family: str, tmp_path: Path
) -> None:
    keys = {
        *transformers.PreTrainedConfig().to_dict(),
        *transformers.AutoConfig.for_model(family).to_dict(),
    }
    assert keys <= CONFIG_KEYS.keys(), keys - CONFIG_KEYS.keys()
    FAMILIES[family].tokenizer().save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= FILES.keys()
    written = json.loads((tmp_path / "tokenizer_config.json").read_text()).keys()
    assert written <= TOKENIZER_KEYS.keys(), written - TOKENIZER_KEYS.keys()


def test_a_key_is_decided_once() -> None:
    assert not CONFIG_KEYS.keys() & OTHER_CONFIG_KEYS.keys()
    assert not TOKENIZER_KEYS.keys() & OTHER_TOKENIZER_KEYS.keys()


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"id2label": {"0": "a", "1": "b"}}, ("a", "b")),
        ({"id2label": {"1": "b", "0": "a"}, "label2id": {"b": 1, "a": 0}}, ("a", "b")),
        ({"id2label": {str(i): f"n{i}" for i in range(12)}}, tuple(f"n{i}" for i in range(12))),
        ({"id2label": {"0": "a", "1": "b"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}}, ("a", "b")),
        (
            {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"pos": 1, "neg": 0}},
            ("neg", "pos"),
        ),
        (
            {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"pos": "1", "neg": "0"}},
            ("neg", "pos"),
        ),
        (
            {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"neg": 0}},
            ("LABEL_0", "LABEL_1"),
        ),
        ({"label2id": {"pos": 1, "neg": 0}}, ("neg", "pos")),
        ({"num_labels": 3}, ("LABEL_0", "LABEL_1", "LABEL_2")),
        ({"num_labels": 1}, ("LABEL_0",)),
        ({}, ("LABEL_0", "LABEL_1")),
    ],
)
def test_outputs_are_called_what_the_config_says(
    config: dict[str, Any], names: tuple[str, ...]
) -> None:
    assert output_names(config) == names


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"id2label": {"0": "a", "2": "c"}}, "numbers 0, 2"),
        ({"id2label": {"1": "a", "2": "b"}}, "numbers 1, 2"),
        ({"id2label": {"0": "a", "1": "a"}}, "two outputs 'a'"),
        (
            {"id2label": {"0": "neg", "1": "pos"}, "label2id": {"neg": 1, "pos": 0}},
            "'neg' is output 1",
        ),
        (
            {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 2, "c": 1}},
            "'b' is output 2",
        ),
    ],
)
def test_names_that_contradict_each_other_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UnavailableError, match=message):
        output_names(config)


@pytest.fixture(scope="module")
def classifier(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of transformers with names of its own."""
    folder = tmp_path_factory.mktemp("models") / "classifier"
    shutil.copytree(tiny_model, folder)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, id2label={0: "neg", 1: "pos"}, label2id={"neg": 0, "pos": 1}
    )
    network.save_pretrained(folder)
    return folder


def changed(folder: Path, copy: Path, file: str = "config.json", **fields: Any) -> Path:
    """Copies a folder with other fields in one of its documents."""
    shutil.copytree(folder, copy)
    document = json.loads((copy / file).read_text())
    (copy / file).write_text(json.dumps(document | fields))
    return copy


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"label2id": {"neg": 1, "pos": 0}}, "label2id that 'neg' is output 1"),
        ({"id2label": {"0": "neg", "5": "pos"}}, "numbers 0, 5"),
        ({"problem_type": "regression"}, "gives 2 scores"),
        ({"function_to_apply": "sigmoid"}, "function_to_apply is 'sigmoid'"),
        ({"function_to_apply": "none"}, "function_to_apply is 'none'"),
        (
            {"task_specific_params": {"text-classification": {"function_to_apply": "sigmoid"}}},
            "'sigmoid'",
        ),
        (
            {"problem_type": "multi_label_classification", "function_to_apply": "softmax"},
            "means 'sigmoid'",
        ),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantization_config"),
    ],
)
def test_settings_that_would_make_other_answers_are_refused_by_name(
    fields: dict[str, Any], message: str, classifier: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnavailableError, match=message):
        open_run(changed(classifier, tmp_path / "model", **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"function_to_apply": "softmax"},
        {"problem_type": "multi_label_classification", "function_to_apply": "sigmoid"},
        {"finetuning_task": "sst2", "torch_dtype": "bfloat16", "_name_or_path": "/elsewhere"},
        {"task_specific_params": {"summarization": {"max_length": 5}}},
    ],
)
def test_settings_that_say_what_is_done_anyway_are_let_through(
    fields: dict[str, Any], classifier: Path, tmp_path: Path
) -> None:
    run = open_run(changed(classifier, tmp_path / "model", **fields))
    assert run.task.labels == ("neg", "pos")


def test_names_of_label2id_are_used_where_id2label_has_none(
    classifier: Path, tmp_path: Path
) -> None:
    names = {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"good": 1, "bad": 0}}
    run = open_run(changed(classifier, tmp_path / "model", **names))
    assert run.task.labels == ("bad", "good")


@pytest.mark.parametrize(
    ("fields", "length", "long_text"),
    [
        ({"model_max_length": 16}, 16, "head"),
        ({"model_max_length": 10**30}, 41, "head"),
        ({"model_max_length": 512}, 41, "head"),
        ({"truncation_side": "left"}, 41, "tail"),
        ({"truncation_side": "left", "model_max_length": 20}, 20, "tail"),
        ({"truncation_side": "right", "padding_side": "left"}, 41, "head"),
    ],
)
def test_long_texts_are_read_as_the_tokenizer_says(
    fields: dict[str, Any], length: int, long_text: str, classifier: Path, tmp_path: Path
) -> None:
    listener = Heard()
    run = open_run(
        changed(classifier, tmp_path / "model", "tokenizer_config.json", **fields),
        listener=listener,
    )
    assert run.recipe.model.max_length == length
    assert run.recipe.model.long_text == long_text
    assert any("truncation_side" in line for line in listener.said) == (long_text == "tail")
    opened_run = open_run(
        tmp_path / "model", options={"model.max_length": 12, "model.long_text": "head"}
    )
    assert opened_run.recipe.model.max_length == 12
    assert opened_run.recipe.model.long_text == "head"


@pytest.mark.parametrize(
    ("fields", "is_warned"),
    [
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, True),
        (
            {
                "sentence_transformers": {
                    "activation_fn": "torch.nn.modules.activation.Sigmoid",
                    "version": "5.0",
                }
            },
            True,
        ),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, False),
        ({}, False),
    ],
)
def test_a_function_over_scores_that_is_not_applied_is_named(
    fields: dict[str, Any], is_warned: bool, classifier: Path, tmp_path: Path
) -> None:
    one_output = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    folder = changed(classifier, tmp_path / "model", **one_output, **fields)
    edit_weights(
        folder,
        lambda weights: {
            n: weight[:1] if "classifier" in n else weight for n, weight in weights.items()
        },
    )
    listener = Heard()
    assert open_run(folder, listener=listener).recipe.task == "text-regression"
    assert any("through Sigmoid" in line for line in listener.warned) == is_warned


@pytest.mark.in_process
@pytest.mark.parametrize("verb", ["predict", "evaluate", "finetune", "explain"])
def test_a_trainers_folder_of_checkpoints_names_them(
    verb: str, bertctl: Run, classifier: Path, opinions: Path, tmp_path: Path
) -> None:
    for step in (9, 10):
        shutil.copytree(classifier, tmp_path / "trained" / f"checkpoint-{step}")
    words = {"predict": ["good"], "evaluate": ["--file", opinions], "explain": ["good"]}
    command = (
        ["finetune", opinions, "--model", "./trained"]
        if verb == "finetune"
        else [verb, "trained", *words[verb]]
    )
    refused = bertctl(*command)
    assert refused.returncode == 4, refused.stderr
    remedy = refused.stderr.partition("Name the one that you mean: ")[2].split()
    assert [Path(word).name for word in (remedy[0], remedy[2])] == [
        "checkpoint-10",
        "checkpoint-9.",
    ]


@pytest.mark.in_process
@pytest.mark.parametrize("verb", ["predict", "evaluate", "explain"])
def test_an_adapter_is_called_one_by_verbs_that_answer(
    verb: str, bertctl: Run, opinions: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "lora"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "base_model_name_or_path": "bert-base-uncased"}'
    )
    (folder / "adapter_model.safetensors").write_bytes(b"")
    words: list[object] = ["--file", opinions] if verb == "evaluate" else ["good"]
    refused = bertctl(verb, "lora", *words)
    assert refused.returncode == 4, refused.stderr
    assert "an adapter names its model" in refused.stderr
    assert "merge_and_unload" in refused.stderr
