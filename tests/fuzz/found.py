"""What the fuzzer has found, kept: target -> the content of the one file that was damaged."""

_DEEP = b"[" * 100_000
_FAR = (
    b'{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],'
    b' "normalizer": null,\n'
    b'"pre_tokenizer": null, "post_processor": null, "decoder": null,'
    b' "model": {"type": "WordPiece", "unk_token": "[UNK]",\n'
    b'"continuing_subword_prefix": "##", "max_input_chars_per_word": 100,'
    b' "vocab": {"[UNK]": 0, "d": 2147483648}}}'
)

FOUND: tuple[tuple[str, bytes], ...] = (
    # recipes
    ("recipe", b"data: {train_file: a.csv, '.': 1}\n"),
    ("recipe", b"evaluation: {'.': 1}\n"),
    ("recipe", b"training: {'http://127.0.0.1:9/x': 1}\n"),
    ("recipe", b'optimizer: {"first\\n::error file=a": 1}\n'),
    ("recipe", b'"a\\0b": 1\n'),
    ("recipe", b'name: "\\uD800"\n'),
    ("recipe", b"data: {train_file: a.csv, seed: 99999999999999999999999999}\n"),
    ("recipe", b"training: {epochs: 99999999999999999999999999}\n"),
    ("recipe", b"\xff\xfe"),
    ("recipe", b"a: &a [1]\nb: *a\n"),
    ("recipe", b"".join(b"k%d: 1\n" % i for i in range(20_000))),
    ("recipe", b"name: " + b"x" * 2_000_000 + b"\n"),
    ("recipe", b"data: " + b"[" * 5_000 + b"\n"),
    ("recipe", b'"\\uD800": "~"\n'),
    ("recipe", b"name: !!python/object/apply:os.system ['touch pwned']\n"),
    ("data sets", b'mine: {columns: {"a\\0b": text}}\n'),
    ("data sets", b'mine: {columns: {"first\\n::error file=a.py::second": text}}\n'),
    ("tokenizer tiny/tokenizer.json", _FAR),
    # rows
    ("rows in questions.json", b'{"version": "1.1", "data": []}'),
    ("rows in questions.json", b'{"data": [{"paragraphs": []}]}'),
    (
        "rows in scores.jsonl",
        b'{"text": "a", "pair": "b", "label": 1, "\\u001b[31mred\\u001b]0;title": 2}\n',
    ),
    ("rows in rows.csv", b"text,label\na\rb,pos\n"),
    ("rows in rows.csv", b'text,label\n"a\n::error file=x::y",pos\nb,neg\n'),
    ("rows in rows.jsonl", b'{"text": "a", "label": "\\ud800"}\n{"text": "b", "label": "x"}\n'),
    ("rows in rows.jsonl", b'{"text": "a", "label": 99999999999999999999999999}\n'),
    ("rows in rows.jsonl", _DEEP),
    (
        "rows in choices.jsonl",
        b'{"context": "a", "choices": ["b", "c"], "label": 0, "x": "%s"}\n{"%s": 1}\n'
        % (b"x", b"x" * 50_000),
    ),
    # runs
    ("run of text-classification status.json", b'"x"'),
    (
        "run of text-classification status.json",
        b'{"schema": 1, "state": "first\\n::error file=a.py::second"}',
    ),
    ("run of text-classification metrics.json", _DEEP),
    (
        "run of text-classification metrics.json",
        b'{"metrics": {"validation": {"accuracy": {"value": Infinity}}}}',
    ),
    (
        "run of text-classification metrics.json",
        b'{"metrics": {"validation": {"accuracy": 1e999}}, "primary": "x"}',
    ),
    (
        "run of text-classification performance.json",
        b'{"seconds": "long", "examples_per_second": Infinity}',
    ),
    ("run of text-classification performance.json", b'{"seconds": {}, "tokens_per_second": 1e999}'),
    ("run of text-classification performance.json", b'{"seconds": {"train": {}}}'),
    ("run of text-classification recipe.yaml", b"name: \x99\n"),
    ("run of text-classification recipe.yaml", b"name: made\n"),
    ("run of text-classification recipe.yaml", b'"first\\n::error file=a": 1\n'),
    (
        "run of text-classification predictions/validation.jsonl",
        b'{"id": ["a"], "gold": "a", "prediction": "b"}\n',
    ),
    (
        "run of text-classification predictions/validation.jsonl",
        b'{"id": "0", "probabilities": {"a": [1]}}\n',
    ),
    (
        "run of question-answering predictions/validation.jsonl",
        b'{"id": "0", "gold": [1.5], "prediction": 2.5}\n',
    ),
    (
        "run of token-classification predictions/validation.jsonl",
        b'{"id": "0", "gold": [1, "O"], "prediction": ["O"]}\n',
    ),
    ("run of text-classification history.jsonl", b"7\n"),
    ("run of text-classification environment.json", b'{"packages": "x", "device": {"a": 1}}'),
)
