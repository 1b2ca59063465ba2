"""Every key of a sentence-transformers folder has its effect.

It is read, changes no vector, or is refused by its name.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertctl.errors import UnavailableError
from bertctl.modeling.sentence_folder import files_of, read_modules
from bertctl.modeling.sentence_folder_keys import FILE_KEYS, MODULE_KEYS, REFUSED_MODULES
from tests.sentence_folders import make_folder, sentence_transformers

PLACES = {
    **{name: name for name in FILE_KEYS},
    "Transformer": "sentence_bert_config.json",
    "Pooling": "1_Pooling/config.json",
    "Dense": "2_Dense/config.json",
    "Normalize": "3_Normalize/config.json",
    "Dropout": "4_Dropout/config.json",
}
TABLES = {**FILE_KEYS, **MODULE_KEYS}

REFUSED = {
    "model_type": "SparseEncoder",
    "truncate_dim": 8,
    "kwargs": {"task": "query"},
    "transformer_task": "fill-mask",
    "modality_config": {"image": {"method": "get_image_features"}},
    "module_output_name": "other",
    "module_input_name": "token_embeddings",
    "processing_kwargs": {"text": {"truncation": False}},
    "query_length": 8,
    "document_length": 8,
    "query_expansion": {"strategy": "fixed", "length": 32},
    "pooling_mode_mean_sqrt_len_tokens": True,
    "pooling_mode_weightedmean_tokens": True,
    "pooling_mode_lasttoken": True,
    "use_residual": True,
}
"""A value of each refused key that changes vectors; the arguments of loaders have one in common."""


def _folder(tiny_model: Path, tmp_path: Path) -> Path:
    """A folder with every module that can be computed."""
    folder = make_folder("dense", tiny_model, tmp_path / "made")
    parts = json.loads((folder / "modules.json").read_text())
    parts.append(
        {"idx": 4, "name": "4", "path": "4_Dropout", "type": "sentence_transformers.models.Dropout"}
    )
    (folder / "modules.json").write_text(json.dumps(parts))
    for name in ("3_Normalize", "4_Dropout"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "config.json").write_text(
            json.dumps({"dropout": 0.1} if "Dropout" in name else {})
        )
    return folder


def _say(folder: Path, place: str, key: str, value: Any) -> None:
    path = folder / PLACES[place]
    document = json.loads(path.read_text())
    entry = document[1] if isinstance(document, list) else document
    entry[key] = value
    path.write_text(json.dumps(document))


def _keys(use: str) -> list[Any]:
    return [
        pytest.param(place, name, id=f"{place}:{name}")
        for place, table in TABLES.items()
        for name, key in table.items()
        if key.use == use
    ]


@pytest.mark.parametrize("place", PLACES)
def test_a_key_outside_the_table_is_refused_by_name(
    place: str, tiny_model: Path, tmp_path: Path
) -> None:
    folder = _folder(tiny_model, tmp_path)
    assert read_modules(folder) is not None, "the premise"
    _say(folder, place, "new_key", 3)
    with pytest.raises(UnavailableError, match="'new_key', which is not known here") as refused:
        read_modules(folder)
    assert PLACES[place] in refused.value.message


@pytest.mark.parametrize(("place", "name"), _keys("refused"))
def test_a_key_that_is_not_computed_is_refused_by_name(
    place: str, name: str, tiny_model: Path, tmp_path: Path
) -> None:
    folder = _folder(tiny_model, tmp_path)
    before = read_modules(folder)
    for value in TABLES[place][name].accepted:
        _say(folder, place, name, value)
        assert read_modules(folder) == before, "so it says nothing"
    _say(folder, place, name, REFUSED.get(name, {"attn_implementation": "eager"}))
    with pytest.raises(UnavailableError, match=name):
        read_modules(folder)


@pytest.mark.parametrize(("place", "name"), _keys("ignored"))
def test_a_key_that_is_ignored_changes_nothing(
    place: str, name: str, tiny_model: Path, tmp_path: Path
) -> None:
    folder = _folder(tiny_model, tmp_path)
    before = read_modules(folder)
    _say(folder, place, name, 7)
    assert read_modules(folder) == before


@pytest.mark.parametrize(
    ("place", "name", "value", "attribute"),
    [
        ("config_sentence_transformers.json", "similarity_fn_name", "dot", "similarity"),
        ("config_sentence_transformers.json", "similarity_fn_name", "euclidean", "similarity"),
        ("config_sentence_transformers.json", "similarity_fn_name", "manhattan", "similarity"),
        ("config_sentence_transformers.json", "prompts", {"query": "q: "}, "prompts"),
        ("config_sentence_transformers.json", "default_prompt_name", "query", "default_prompt"),
        ("Transformer", "max_seq_length", 9, "max_length"),
        ("Transformer", "do_lower_case", True, "lowercase"),
        ("Pooling", "pooling_mode", "cls", "poolings"),
        ("Pooling", "pooling_mode_cls_token", True, "poolings"),
        ("Dense", "out_features", 12, "steps"),
        ("Dense", "bias", False, "steps"),
        ("Dense", "activation_function", "torch.nn.modules.activation.GELU", "steps"),
    ],
)
def test_a_key_that_is_read_counts_and_is_written_again(
    place: str, name: str, value: Any, attribute: str, tiny_model: Path, tmp_path: Path
) -> None:
    folder = _folder(tiny_model, tmp_path)
    before = read_modules(folder)
    _say(folder, place, name, value)
    after = read_modules(folder)
    assert before is not None
    assert after is not None
    assert getattr(after, attribute) != getattr(before, attribute)
    for file, document in files_of(after, size=36).items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(json.dumps(document))
    again = read_modules(folder)
    assert again is not None
    if attribute == "prompts":
        assert again.prompts["query"] == "q: "
    else:
        assert getattr(again, attribute) == getattr(after, attribute)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("similarity_fn_name", "maxsim", "compares vectors by 'maxsim'"),
        ("default_prompt_name", "nowhere", "'nowhere', which is none of its prompts"),
    ],
)
def test_a_value_that_is_not_known_is_refused(
    key: str, value: str, message: str, tiny_model: Path, tmp_path: Path
) -> None:
    folder = _folder(tiny_model, tmp_path)
    _say(folder, "config_sentence_transformers.json", key, value)
    with pytest.raises(UnavailableError, match=message):
        read_modules(folder)


@pytest.mark.parametrize(
    "kind", [*sorted(REFUSED_MODULES), "pylate.models.Dense", "custom_st.Transformer"]
)
def test_a_module_that_is_not_computed_is_refused_by_name(
    kind: str, tiny_model: Path, tmp_path: Path
) -> None:
    folder = _folder(tiny_model, tmp_path)
    parts = json.loads((folder / "modules.json").read_text())
    of_library = f"sentence_transformers.models.{kind}"
    part = {"idx": 5, "name": "5", "path": f"5_{kind}", "type": kind if "." in kind else of_library}
    (folder / "modules.json").write_text(json.dumps([*parts, part]))
    with pytest.raises(
        UnavailableError, match=re.escape(REFUSED_MODULES.get(kind, "code of its own"))
    ):
        read_modules(folder)


@pytest.mark.slow
def test_every_key_that_the_library_writes_is_in_the_table(
    tiny_model: Path, tmp_path: Path
) -> None:
    """Of all modules that the installed version has; a new module or key fails here."""
    sentence_transformers()
    unknown = []
    for kind, keys in _written_keys():
        if kind in REFUSED_MODULES:
            continue
        table = MODULE_KEYS.get(kind)
        unknown += [f"{kind}: {key}" for key in keys if table is None or key not in table]
    assert not unknown
    for folder in _written_folders(tiny_model, tmp_path):
        for name, table in FILE_KEYS.items():
            document = json.loads((folder / name).read_text())
            for entry in document if isinstance(document, list) else [document]:
                assert entry.keys() <= table.keys(), name
        assert read_modules(folder) is not None


def _written_keys() -> Iterator[tuple[str, list[str]]]:
    """Every module class of the library with the keys of its file."""
    import importlib
    import inspect
    import pkgutil

    import sentence_transformers as library
    from sentence_transformers.base.modules.module import Module

    unique = set()
    for package in (
        "base",
        "sentence_transformer",
        "sparse_encoder",
        "multi_vector_encoder",
        "cross_encoder",
    ):
        folder = Path(str(library.__file__)).parent / package / "modules"
        for actual in pkgutil.iter_modules([str(folder)]):
            module = importlib.import_module(
                f"sentence_transformers.{package}.modules.{actual.name}"
            )
            for name, cls in inspect.getmembers(module, inspect.isclass):
                is_own = issubclass(cls, Module) and cls.__module__ == module.__name__
                if is_own and not inspect.isabstract(cls) and name not in unique:
                    unique.add(name)
                    yield name, list(cls.config_keys)


def _written_folders(tiny_model: Path, tmp_path: Path) -> Iterator[Path]:
    """Folders as the library saves them.

    Each measure, prompts, a default prompt, every module that is computed.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Dropout, Pooling

    for measure in ("cosine", "dot", "euclidean", "manhattan"):
        modules = [
            Transformer(str(tiny_model)),
            Pooling(36),
            Dropout(0.1),
            Dense(36, 20),
            Normalize(),
        ]
        model = SentenceTransformer(
            modules=modules,
            prompts={"query": "q: ", "document": "d: "},
            default_prompt_name="query",
            similarity_fn_name=measure,
            device="cpu",
        )
        model.save(str(tmp_path / measure))
        yield tmp_path / measure
