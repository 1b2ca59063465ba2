"""The gate's verdicts.

By interval, paired and unpaired, refusals, and how often it errs in simulated builds.
"""

import json
import math

import numpy as np
import pytest
from scipy import stats

from bertctl.errors import BertctlError, DataError, ExitCode, UnavailableError, UsageError
from bertctl.metrics.classification import f1_of_labels
from bertctl.metrics.paired import (
    bootstrap_difference,
    detectable,
    mcnemar,
    score_interval,
    share_difference,
)
from bertctl.metrics.statistics import wilson_interval
from bertctl.reporting.gate import gate
from bertctl.reporting.gitlab import metrics_report
from bertctl.reporting.limits import Limit, decide, parse_limit
from bertctl.reporting.ways_out import examples_needed
from bertctl.run_folder import RunFolder
from bertctl.tasks.registry import answer_type
from bertctl.writing import write_json, write_jsonl, write_text
from tests.scoring import classification_metrics, loss_metric

LABELS = ["neg", "pos"]


def _answers(n=400, right=0.9, seed=0, gold_seed=0):
    gold = np.random.default_rng(gold_seed).integers(0, 2, n)
    rng = np.random.default_rng([seed, 1])
    answers = np.where(rng.random(n) < right, gold, 1 - gold)
    return gold, answers, rng.exponential(0.3, n)


def _lines(gold, answers, losses):
    return [
        {
            "id": str(i),
            "text": f"text {i}",
            "gold": LABELS[g],
            "prediction": LABELS[a],
            "probabilities": {"neg": 0.5, "pos": 0.5},
            "loss": float(loss),
            "source": "mail" if i % 4 else "chat",
        }
        for i, (g, a, loss) in enumerate(zip(gold, answers, losses, strict=True))
    ]


def _metrics(gold, answers, losses):
    metrics = classification_metrics(
        gold,
        answers,
        n_labels=2,
        positive=1,
        resamples=200,
        seed=0,
    )
    metrics["loss"] = loss_metric(losses, np.ones(len(losses)), resamples=200, seed=0)
    return {name: metric.as_json() for name, metric in metrics.items()}


def _write(path, lines, metrics, *, split="validation", task="text-classification", state="done"):
    folder = RunFolder.create(path)
    write_text(folder.recipe, f"task: {task}\n")
    primary = {"split": split, "name": next(iter(metrics))}
    write_json(folder.metrics, {"schema": 1, "metrics": {split: metrics}, "primary": primary})
    write_jsonl(folder.predictions(split), lines)
    folder.set_status(state, step=1)
    return path


def _run(path, *, split="validation", **arguments):
    rows = _answers(**arguments)
    return _write(path, _lines(*rows), _metrics(*rows), split=split)


def _limits(*typed):
    kinds = ["min-slice", "min", "max-drop", "max"]
    return [
        parse_limit(next(k for k in kinds if text.startswith(f"{k} ")), text.partition(" ")[2])
        for text in typed
    ]


def _gate(path, *typed, policy="strict", **more):
    return gate(path, _limits(*typed), policy=policy, **more)


@pytest.mark.parametrize(
    ("low", "high", "bound", "at_least", "verdict"),
    [
        (0.88, 0.92, 0.87, True, "pass"),
        (0.88, 0.92, 0.88, True, "pass"),
        (0.88, 0.92, 0.90, True, "inconclusive"),
        (0.88, 0.92, 0.92, True, "inconclusive"),
        (0.88, 0.92, 0.93, True, "fail"),
        (0.88, 0.92, 0.93, False, "pass"),
        (0.88, 0.92, 0.92, False, "pass"),
        (0.88, 0.92, 0.90, False, "inconclusive"),
        (0.88, 0.92, 0.87, False, "fail"),
        (None, None, 0.10, True, "inconclusive"),
    ],
)
def test_the_whole_interval_decides(low, high, bound, at_least, verdict):
    assert decide(0.9, low, high, bound, at_least=at_least, policy="strict") == verdict
    assert decide(0.9, low, high, bound, at_least=at_least, policy="lenient") == verdict
    good = bound <= 0.9 if at_least else bound >= 0.9
    assert decide(0.9, low, high, bound, at_least=at_least, policy="point") == (
        "pass" if good else "fail"
    )


def test_a_value_at_the_limit_keeps_to_it_whatever_the_last_digit():
    assert decide(0.90 - 0.905, None, None, -0.005, at_least=True, policy="point") == "pass"


def test_the_worst_verdict_is_the_gates(tmp_path):
    run = _run(tmp_path / "run")
    entry = "min accuracy=0.7"
    some = "min accuracy=0.9"
    none = "min accuracy=0.99"
    for typed, verdict, code in (
        ([entry], "pass", ExitCode.OK),
        ([entry, some], "inconclusive", ExitCode.GATE_INCONCLUSIVE),
        ([none, entry, some], "fail", ExitCode.GATE_NOT_MET),
    ):
        result = _gate(run, *typed)
        assert result.verdict == verdict
        assert result.exit_code == code
        assert [judgement.limit.name for judgement in result.judgements] == typed
    lenient = _gate(run, entry, some, policy="lenient")
    assert lenient.verdict == "inconclusive"
    assert lenient.exit_code == ExitCode.OK
    assert [check.verdict for check in lenient.checks()] == ["pass", "warning"]
    assert _gate(run, none, policy="lenient").exit_code == ExitCode.GATE_NOT_MET
    assert _gate(run, some, policy="point").exit_code in (ExitCode.OK, ExitCode.GATE_NOT_MET)


def test_a_loss_has_to_stay_below(tmp_path):
    run = _run(tmp_path / "run")
    low = _metrics(*_answers())["loss"]["low"]
    high = _metrics(*_answers())["loss"]["high"]
    assert _gate(run, f"max loss={high + 0.01}").verdict == "pass"
    assert _gate(run, f"max loss={low - 0.01}").verdict == "fail"
    assert _gate(run, f"max loss={(low + high) / 2}").verdict == "inconclusive"


def test_slices_are_judged_by_their_own_interval(tmp_path):
    gold, answers, losses = _answers(right=1.0)
    answers[(gold == 0) & (np.arange(400) % 3 == 0)] = 1
    run = _write(tmp_path / "run", _lines(gold, answers, losses), _metrics(gold, answers, losses))
    recall = float((answers[gold == 0] == 0).mean())
    (judgement,) = _gate(run, "min-slice label=neg:recall=0.85").judgements
    assert judgement.verdict == "fail"
    assert judgement.metric.value == pytest.approx(recall)
    assert judgement.metric.n == int((gold == 0).sum())
    assert _gate(run, "min-slice label=pos:recall=0.95").verdict == "pass"
    assert _gate(run, "min-slice source=chat:accuracy=0.5").verdict == "pass"


def test_without_labels_no_column_of_labels_is_offered(tmp_path):
    lines = [
        {
            "id": str(i),
            "context": "c",
            "choices": ["a", "b"],
            "gold": i % 2,
            "prediction": 0,
            "loss": 0.1,
        }
        for i in range(8)
    ]
    scores = answer_type("multiple-choice").from_lines(lines).score(lines, resamples=100, seed=0)
    actual = {name: score.as_json() for name, score in scores.items()}
    run = _write(tmp_path / "run", lines, actual, task="multiple-choice")
    with pytest.raises(UsageError, match="no column 'label'") as refused:
        _gate(run, "min-slice label=1:accuracy=0.5")
    assert str(refused.value.remedy).startswith("Columns: gold, context, choices, ")
    (judgement,) = _gate(run, "min-slice gold=1:accuracy=0.5").judgements
    assert judgement.metric.n == 4


def test_nothing_right_shows_no_step_of_nothing(tmp_path):
    run = _run(tmp_path / "run", n=20, right=0.0)
    (judgement,) = _gate(run, "min accuracy=0.1").judgements
    assert judgement.metric.value == judgement.metric.low == 0.0
    assert judgement.detectable == pytest.approx(
        detectable(-judgement.metric.high, judgement.metric.high)
    )


def test_a_part_of_speech_is_a_slice(tmp_path):
    gold = [["NOUN", "VERB", "NOUN"], ["DET", "NOUN", "VERB"]] * 20
    message = [["NOUN", "VERB", "VERB"], ["DET", "NOUN", "NOUN"]] * 20
    lines = [
        {"id": str(i), "words": ["a", "b", "c"], "gold": entry, "prediction": other, "loss": 0.1}
        for i, (entry, other) in enumerate(zip(gold, message, strict=True))
    ]
    scores = (
        answer_type("token-classification").from_lines(lines).score(lines, resamples=100, seed=0)
    )
    actual = {name: score.as_json() for name, score in scores.items()}
    run = _write(tmp_path / "run", lines, actual, task="token-classification")
    typed = [
        f"min-slice label={tag}:{name}=0.1"
        for tag, name in (("NOUN", "recall"), ("VERB", "precision"))
    ]
    values = [
        judgement.metric.value
        for judgement in _gate(run, *typed, "min-slice label=DET:f1=0.1").judgements
    ]
    assert values == pytest.approx([2 / 3, 1 / 2, 1.0])
    with pytest.raises(UsageError, match="'ADJ'") as refused:
        _gate(run, "min-slice label=ADJ:recall=0.1")
    assert "'DET', 'NOUN', 'VERB'" in str(refused.value.remedy)


def test_a_drop_is_tested_paired(tmp_path):
    """The same examples are hard for both models.

    8 lost and 1 won are clear to McNemar, invisible unpaired.
    """
    gold, base, losses = _answers(n=872, right=0.85, seed=3)
    worse = base.copy()
    right = np.flatnonzero(base == gold)
    wrong = np.flatnonzero(base != gold)
    worse[right[:17]] = 1 - worse[right[:17]]
    worse[wrong[:1]] = gold[wrong[:1]]
    old = _write(tmp_path / "old", _lines(gold, base, losses), _metrics(gold, base, losses))
    new = _write(
        tmp_path / "new", _lines(gold, worse, losses * 1.01), _metrics(gold, worse, losses * 1.01)
    )
    paired = _gate(new, "max-drop accuracy=0", baseline=old)
    (judgement,) = paired.judgements
    assert paired.verdict == "fail"
    assert judgement.change.p == pytest.approx(mcnemar(17, 1))
    assert judgement.change.value == pytest.approx(-16 / 872)
    assert judgement.change.changed == 18
    assert "McNemar" in judgement.message
    unpaired = _gate(new, "max-drop accuracy=0", baseline=old / "metrics.json")
    assert unpaired.verdict == "inconclusive"
    assert "unpaired" in unpaired.notes[0]
    assert unpaired.judgements[0].change.changed is None
    assert unpaired.judgements[0].detectable > 2 * judgement.detectable
    assert _gate(old, "max-drop accuracy=0", baseline=new).verdict == "pass"


def test_a_drop_of_f1_and_a_rise_of_the_loss(tmp_path):
    new = _run(tmp_path / "new", right=0.7, seed=1)
    old = _run(tmp_path / "old", right=0.95, seed=2)
    result = _gate(
        new, "max-drop f1=0.01", "max-drop matthews=0.05", "max-drop loss=0.5", baseline=old
    )
    assert [judgement.verdict for judgement in result.judgements] == ["fail", "fail", "pass"]
    methods = [judgement.change.method.partition(",")[0] for judgement in result.judgements]
    assert methods == ["posterior", "posterior", "paired bootstrap"]
    assert "a rise of at most 0.5" in result.judgements[2].message, "of a loss a rise is allowed"


def test_ids_pair_examples_whatever_their_order(tmp_path):
    new_answers = _answers(seed=1)
    old_answers = _answers(seed=2)
    reversed_lines = _lines(*new_answers)[::-1]
    new = _write(tmp_path / "new", reversed_lines, _metrics(*new_answers))
    old = _write(tmp_path / "old", _lines(*old_answers), _metrics(*old_answers))

    (judgement,) = _gate(new, "max-drop accuracy=0.1", baseline=old).judgements

    new_is_right = new_answers[1] == new_answers[0]
    old_is_right = old_answers[1] == old_answers[0]
    assert judgement.change == share_difference(new_is_right, old_is_right)


@pytest.mark.parametrize(
    ("n", "right", "kind"), [(60, 48, "min"), (200, 170, "min"), (200, 170, "max")]
)
def test_a_limit_as_far_away_as_is_said_is_kept_to_in_four_of_five_cases(tmp_path, n, right, kind):
    """The interval of a share is lopsided: what counts is the side that the limit is on."""
    name = {"min": "accuracy", "max": "loss"}[kind]
    gold = np.zeros(n, dtype=np.int64)
    share = _share(right, n) | {"higher_is_better": kind == "min"}
    run = _write(
        tmp_path / "run",
        _lines(gold, (np.arange(n) >= right).astype(int), np.zeros(n)),
        {name: share},
    )
    (judgement,) = _gate(run, f"{kind} {name}=0.5", allow_constant=True).judgements
    limit = right / n + judgement.detectable * (1 if kind == "max" else -1)
    low, high = np.array([wilson_interval(k, n) for k in range(n + 1)]).T
    chances = stats.binom.pmf(np.arange(n + 1), n, right / n)
    assert chances[low >= limit if kind == "min" else high <= limit].sum() == pytest.approx(
        0.8, abs=0.04
    )


def _share(right, n):
    low, high = wilson_interval(right, n)
    return {"value": right / n, "low": low, "high": high, "n": n, "higher_is_better": True}


def test_a_model_and_itself_do_not_differ_however_few_the_examples(tmp_path):
    new = _run(tmp_path / "new", n=40)
    old = _run(tmp_path / "old", n=40)
    (judgement,) = _gate(new, "max-drop accuracy=0", "max-drop f1=0", baseline=old).judgements[:1]
    assert judgement.verdict == "pass"
    assert judgement.detectable == pytest.approx(detectable(*score_interval(0, 0, 40)))
    answers = _answers(n=40)
    twin = _write(
        tmp_path / "twin", _lines(answers[0], answers[1], answers[2] + 1e-9), _metrics(*answers)
    )
    assert _gate(twin, "max-drop accuracy=0", baseline=old).verdict == "inconclusive", (
        "the same answers by two models"
    )


def test_several_labels_pair_whatever_their_order(tmp_path):
    labels = ("joy", "fear", "anger")
    runs = []
    golds = [[name for place, name in enumerate(labels) if i >> place & 1] for i in range(64)]
    for number, order in enumerate((labels, labels[::-1])):
        lines = [
            {
                "id": str(i),
                "text": f"text {i}",
                "gold": sorted(gold, key=order.index),
                "prediction": gold[number:],
                "probabilities": {name: 0.9 if name in gold[number:] else 0.1 for name in order},
                "loss": 0.1,
            }
            for i, gold in enumerate(golds)
        ]
        scores = (
            answer_type("text-classification").from_lines(lines).score(lines, resamples=100, seed=0)
        )
        actual = {name: score.as_json() for name, score in scores.items()}
        runs.append(_write(tmp_path / str(number), lines, actual))
    (judgement,) = _gate(runs[1], "max-drop f1_micro=0.01", baseline=runs[0]).judgements
    assert judgement.change is not None
    assert judgement.change.changed == sum(map(bool, golds))
    assert judgement.verdict == "fail"


def test_other_data_are_never_a_pass(tmp_path):
    run = _run(tmp_path / "run")
    others = {
        "other gold": _run(tmp_path / "gold", gold_seed=7),
        "fewer": _run(tmp_path / "fewer", n=399),
    }
    rows = _answers()
    lines = _lines(*rows)
    lines[3] = lines[3] | {"text": "another text"}
    others["other text"] = _write(tmp_path / "text", lines, _metrics(*rows))
    lines = _lines(*rows)
    lines[3] = lines[3] | {"id": "x"}
    others["other id"] = _write(tmp_path / "id", lines, _metrics(*rows))
    lines[3] = lines[3] | {"id": "4"}
    others["an id twice"] = _write(tmp_path / "twice", lines, _metrics(*rows))
    for other in others.values():
        with pytest.raises(UsageError, match="different data"):
            _gate(run, "max-drop accuracy=1", baseline=other)
    with pytest.raises(UsageError, match="different data"):
        _gate(run, "max-drop accuracy=1", baseline=others["fewer"] / "metrics.json")


def test_other_tasks_and_labels_are_refused(tmp_path):
    run = _run(tmp_path / "run")
    rows = _answers()
    other = _write(tmp_path / "other", _lines(*rows), _metrics(*rows), task="multiple-choice")
    with pytest.raises(UsageError, match="different tasks"):
        _gate(run, "max-drop accuracy=0.1", baseline=other)
    lines = [line | {"probabilities": {"pos": 0.5, "neg": 0.5}} for line in _lines(*rows)]
    turned = _write(tmp_path / "turned", lines, _metrics(*rows))
    with pytest.raises(UsageError, match="different labels"):
        _gate(run, "max-drop f1=0.1", baseline=turned)


def test_a_metric_that_is_undefined_is_never_a_pass(tmp_path):
    run = _run(tmp_path / "run")
    document = json.loads((run / "metrics.json").read_text())
    document["metrics"]["validation"]["accuracy"] |= {"value": None, "low": None, "high": None}
    (run / "metrics.json").write_text(json.dumps(document))
    verdicts = {}
    for policy in ("strict", "point", "lenient"):
        gated = gate(run, [parse_limit("min", "accuracy=-1")], policy=policy)
        verdicts[policy] = gated.judgements[0].verdict
        assert "accuracy is undefined on" in gated.judgements[0].message
    assert verdicts == {"strict": "inconclusive", "point": "inconclusive", "lenient": "fail"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.9", True])
def test_what_is_no_number_is_never_a_pass(tmp_path, value):
    run = _run(tmp_path / "run")
    document = json.loads((run / "metrics.json").read_text())
    document["metrics"]["validation"]["accuracy"]["value"] = value
    (run / "metrics.json").write_text(json.dumps(document))
    for policy in ("strict", "point", "lenient"):
        with pytest.raises(BertctlError, match=r"finite|valid number|JSON compliant"):
            _gate(run, "min accuracy=0.1", policy=policy)


def test_a_metric_or_a_split_that_is_not_there(tmp_path):
    run = _run(tmp_path / "run")
    with pytest.raises(UsageError, match=r"metric 'acuracy'.*accuracy"):
        _gate(run, "min acuracy=0.1")
    with pytest.raises(UsageError, match="split 'test'") as refusal:
        _gate(run, "min accuracy=0.1", split="test")
    assert f"bertctl evaluate {run} --split test" in refusal.value.remedy


def test_without_validation_the_split_that_chose_the_weights_is_taken_and_named(tmp_path):
    run = _run(tmp_path / "run", split="validation_matched")
    result = _gate(run, "min accuracy=0.7")
    assert result.split == "validation_matched"
    assert "validation_matched" in result.notes[0]
    assert not _gate(run, "min accuracy=0.7", split="validation_matched").notes


def test_no_finished_run_is_judged(tmp_path):
    rows = _answers()
    for state in ("running", "failed", "interrupted"):
        run = _write(tmp_path / state, _lines(*rows), _metrics(*rows), state=state)
        with pytest.raises(UnavailableError, match=f"'{state}'"):
            _gate(run, "min accuracy=0.1")
    with pytest.raises(UnavailableError, match="does not exist"):
        _gate(tmp_path / "nothing", "min accuracy=0.1")


def test_a_bare_metrics_file_is_judged_too(tmp_path):
    run = _run(tmp_path / "run")
    assert _gate(run / "metrics.json", "min accuracy=0.7").verdict == "pass"
    with pytest.raises(UnavailableError, match="metrics only"):
        _gate(run / "metrics.json", "min-slice label=neg:recall=0.1")
    (tmp_path / "other.json").write_text('{"accuracy": 0.9}')
    with pytest.raises(DataError, match=r"other\.json: metrics: field required") as refusal:
        _gate(tmp_path / "other.json", "min accuracy=0.1")
    assert "A metrics.json of bertctl has" in refusal.value.remedy


def test_predictions_that_contradict_the_metrics_are_refused(tmp_path):
    run = _run(tmp_path / "run")
    rows = _answers(seed=5)
    stale = _write(tmp_path / "stale", _lines(*rows), _metrics(*_answers(right=0.5)))
    with pytest.raises(DataError, match=r"predictions of 'validation' .*accuracy"):
        _gate(run, "max-drop accuracy=0.1", baseline=stale)


def test_a_metric_without_interval_is_only_decided_by_its_value(tmp_path):
    rows = _answers()
    metrics = _metrics(*rows) | {
        "mine": {"value": 0.8, "low": None, "high": None, "n": 400, "higher_is_better": True}
    }
    run = _write(tmp_path / "run", _lines(*rows), metrics)
    result = _gate(run, "min mine=0.7")
    assert result.verdict == "inconclusive"
    assert "`policy=point`" in result.judgements[0].message
    assert _gate(run, "min mine=0.7", policy="point").verdict == "pass"
    assert _gate(run, "min mine=0.9", policy="point").verdict == "fail"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("min accuracy", " METRIC=NUMBER"),
        ("min accuracy=high", " METRIC=NUMBER"),
        ("min =0.9", " METRIC=NUMBER"),
        ("min accuracy=nan", " METRIC=NUMBER"),
        ("max loss=inf", " METRIC=NUMBER"),
        ("min accuracy=91", "91.*fraction"),
        ("max-drop f1=-0.01", "-0.01.*drop"),
        ("min-slice recall=0.9", "COLUMN=VALUE:METRIC=NUMBER"),
        ("min-slice label=neg:recall=85", "85.*fraction"),
    ],
)
def test_limits_that_can_not_be_meant(typed, message):
    with pytest.raises(UsageError, match=message):
        _limits(typed)


def test_a_slices_value_may_hold_anything():
    (limit,) = _limits("min-slice source=https://a=b:8080/x:f1_macro=0.5")
    assert limit.slice == ("source", "https://a=b:8080/x")
    assert limit.metric == "f1_macro"
    assert limit.limit == 0.5


def test_limits_on_the_wrong_side_and_incomplete_questions(tmp_path):
    run = _run(tmp_path / "run")
    for typed, message in (
        ("min loss=0.1", "better when lower"),
        ("max accuracy=0.1", "better when higher"),
    ):
        with pytest.raises(UsageError, match=message):
            _gate(run, typed)
    with pytest.raises(UsageError, match="nothing to check"):
        _gate(run)
    with pytest.raises(UsageError, match="max_drop="):
        _gate(run, "max-drop accuracy=0.1")
    with pytest.raises(UsageError, match="decides nothing"):
        _gate(run, "min accuracy=0.1", baseline=run)


def test_the_answer_is_json_that_says_everything(tmp_path):
    new = _run(tmp_path / "new", seed=1)
    old = _run(tmp_path / "old", seed=2)
    result = _gate(
        new, "min accuracy=0.7", "min-slice label=neg:recall=0.1", "max-drop f1=0.1", baseline=old
    )
    document = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert document["verdict"] == result.verdict
    plain, part, drop = document["checks"]
    assert plain["check"] == "min accuracy=0.7"
    assert part["slice"] == {"column": "label", "value": "neg"}
    assert drop["change"]["paired"] is True
    assert drop["baseline_value"] == _metrics(*_answers(seed=2))["f1"]["value"]
    assert all(check["detectable"] > 0 for check in document["checks"])
    names = {name for name, _, _ in result.samples()}
    assert {"accuracy", "accuracy_low", "f1_high", "loss", "gate_checks"} <= names


# How often the gate errs.


def _codes(trials, judge_one):
    return np.array(
        [
            {"pass": 0, "fail": 7, "inconclusive": 8}[judge_one(np.random.default_rng(i))]
            for i in range(trials)
        ]
    )


def _drop_verdict(expected, limit):
    return decide(
        expected.value, expected.low, expected.high, -limit, at_least=True, policy="strict"
    )


@pytest.mark.parametrize(("n", "share_wrong"), [(150, 0.03), (872, 0.05)])
def test_two_equal_models_fail_a_drop_of_nothing_in_at_most_2_5_percent(n, share_wrong):
    trials = 2_000

    def judge_one(rng):
        right = rng.random((2, n)) >= share_wrong
        return _drop_verdict(share_difference(*right), 0.0)

    codes = _codes(trials, judge_one)
    assert np.mean(codes == 7) <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / trials)
    assert np.mean(codes == 7) > 0


@pytest.mark.parametrize(("n", "limit"), [(277, 0.02), (872, 0.005)])
def test_a_model_worse_than_the_limit_by_twice_the_detectable_drop_passes_in_at_most_2_5_percent(
    n, limit
):
    base = 0.9
    trials = 1_000
    shares = (
        0.1 * 0.9 * 2
    )  # of examples that two independent models of this quality answer differently
    drop = 2 * detectable(-1.96 * math.sqrt(shares / n), 1.96 * math.sqrt(shares / n))

    def judge_one(rng):
        right_b = rng.random(n) < base
        right_a = rng.random(n) < base - limit - drop
        return _drop_verdict(share_difference(right_a, right_b), limit)

    codes = _codes(trials, judge_one)
    assert np.mean(codes == 0) <= 0.025
    assert np.mean(codes == 7) > 0.9, "twice the detectable drop is found nearly always"


def test_the_detectable_drop_below_the_limit_is_failed_in_four_of_five_builds():
    n = 872
    limit = 0.01
    trials = 1_500
    base = 0.9
    worse = 0.85
    # the worse model's errors widen the interval that its distance from the limit is measured by
    for _ in range(20):
        variance = worse * (1 - worse) + base * (1 - base)
        half_width = 1.96 * math.sqrt(variance / n)
        worse = base - limit - detectable(-half_width, half_width)

    def judge_one(rng):
        return _drop_verdict(share_difference(rng.random(n) < worse, rng.random(n) < base), limit)

    assert np.mean(_codes(trials, judge_one) == 7) == pytest.approx(0.8, abs=0.06)


def test_the_error_rates_of_a_paired_f1():
    n = 200
    trials = 120

    def make(rows):
        cells = 2 * rows[:, :1] + rows[:, 1:]
        return f1_of_labels(*rows.T.astype(int), n_labels=2, of=1).make(cells)

    def rows_of(rng, gold, share_right):
        is_right = rng.random(n) < share_right
        predicted = np.where(is_right, gold, 1 - gold)
        return np.stack([gold, predicted], axis=1).astype(float)

    def difference(rng, share_a, share_b):
        gold = rng.integers(0, 2, n)
        rows_a = rows_of(rng, gold, share_a)
        rows_b = rows_of(rng, gold, share_b)
        return bootstrap_difference(rows_a, rows_b, make, resamples=300)

    detectable_drops = []
    for seed in range(20):
        interval = difference(np.random.default_rng(seed), 0.9, 0.9)
        detectable_drops.append(detectable(interval.low, interval.high))
    large_drop = 0.01 + 2 * float(np.mean(detectable_drops))

    equal = _codes(trials, lambda rng: _drop_verdict(difference(rng, 0.9, 0.9), 0.0))
    worse = _codes(100, lambda rng: _drop_verdict(difference(rng, 0.9 - large_drop, 0.9), 0.01))

    noise = math.sqrt(0.025 * 0.975 / trials)
    assert np.mean(equal == 7) <= 0.025 + 3 * noise
    assert np.mean(worse == 0) <= 0.025


def test_the_error_rates_of_a_minimum_are_computed():
    """A model exactly at the limit fails, and passes, in about 2.5 % each.

    Far below it never passes.
    """
    from scipy import stats

    n = 872
    limit = 0.9
    verdicts = [
        decide(k / n, *wilson_interval(k, n), limit, at_least=True, policy="strict")
        for k in range(n + 1)
    ]
    chance = stats.binom.pmf(np.arange(n + 1), n, limit)
    for verdict in ("pass", "fail"):
        rate = float(chance[[actual == verdict for actual in verdicts]].sum())
        assert 0.015 <= rate <= 0.035, verdict
    below = limit - 2 * detectable(*wilson_interval(round(0.9 * n), n))
    passed = stats.binom.pmf(np.arange(n + 1), n, below)[
        [actual == "pass" for actual in verdicts]
    ].sum()
    assert passed < 1e-6


def test_labels_of_other_scripts_are_samples_of_their_own(tmp_path):
    names = ["正面", "负面", "中性"]
    lines = [
        {
            "id": str(i),
            "gold": names[i % 3],
            "prediction": names[i % 3 if i % 5 else 0],
            "loss": 0.1,
        }
        for i in range(90)
    ]
    scored = answer_type("text-classification").from_lines(lines).score(lines, resamples=0, seed=0)
    metrics = {name: value.as_json() for name, value in scored.items()}
    metrics |= {
        f"recall:{name}": metrics["accuracy"] | {"value": i / 4} for i, name in enumerate(names)
    }
    _write(tmp_path / "run", lines, metrics)
    samples = _gate(tmp_path / "run", "min accuracy=0.1").samples()
    assert {"split": "validation", "label": "负面"} in [labels for _, labels, _ in samples]
    report = metrics_report(samples).splitlines()
    keys = [line.rpartition(" ")[0] for line in report]
    assert len(set(keys)) == len(keys)
    assert sum(line.startswith("bertctl_recall_") for line in report) == 3


@pytest.mark.parametrize(
    ("right", "n", "bound"), [(57, 60, 0.9), (60, 60, 0.97), (180, 200, 0.88), (30, 50, 0.55)]
)
def test_as_many_examples_as_are_named_pass_at_the_same_share(right, n, bound):
    """Recomputed by Wilson's interval, which is that of a share of right answers."""
    low, _ = wilson_interval(right, n)
    needed = examples_needed(Limit("min", "accuracy", bound), right / n, low, bound, n)
    assert needed > n
    assert wilson_interval(right / n * needed, needed)[0] >= bound - 1e-9
    assert wilson_interval(right / n * (needed - 1), needed - 1)[0] < bound


def test_no_number_of_examples_helps_a_value_beyond_the_limit():
    assert examples_needed(Limit("min", "accuracy", 0.9), 0.89, 0.8, 0.9, 50) is None
    assert examples_needed(Limit("max", "loss", 0.4), 0.41, 0.5, 0.4, 50) is None
    assert examples_needed(Limit("max", "loss", 0.4), 0.38, 0.42, 0.4, 50) == 200
