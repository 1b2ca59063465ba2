"""Token classification: a tag for each word (paper, section 5.3).

The tags are named entities or parts of speech.
"""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Array, Floats32, Ints
from bertctl.config.losses import CLASS_LOSSES
from bertctl.config.recipe_sections import TrainingSection
from bertctl.config.schema import Recipe
from bertctl.data.label_cells import spelt_alike
from bertctl.data.rows import Rows
from bertctl.data.tag_schemes import SCHEMES, Scheme, as_marks, entity_types, tag_kind, write_tags
from bertctl.errors import DataError, UnknownLabelError
from bertctl.metrics.tagging import Entity, entities
from bertctl.modeling.output_names import output_names
from bertctl.runtime.batching import Padding
from bertctl.tasks.answers import Answers
from bertctl.tasks.array_losses import cross_entropies
from bertctl.tasks.base import (
    AnswerFormat,
    Outputs,
    Task,
    TaskObjective,
    TruncationMessage,
    alike_labels,
    label_fields,
)
from bertctl.tasks.batches import present
from bertctl.tasks.classification.class_weights import class_weights
from bertctl.tasks.probabilities import softmax
from bertctl.tasks.tagging.tag_answers import TagAnswers
from bertctl.tasks.tagging.tag_formats import FORMATS
from bertctl.tasks.tagging.word_windows import WordArrays, WordBatch, WordFeatures, encode_words
from bertctl.tasks.targets import Answered, Part, Target
from bertctl.words import count, did_you_mean, listing

if TYPE_CHECKING:
    from torch import Tensor

_PLAIN = "plain"
_LIMIT = 12


@dataclass(frozen=True)
class TokenClassification(Task):
    """One of C tags for each word.

    Tags that mark entities are learned in IOB2, whatever scheme the training rows have, and
    answered in that scheme again, those of a labelled file in its own; other tags are taken as they
    are.

    Attributes:
        labels: Tag names, in the order of the head's outputs.
        scheme: Scheme of the training rows; None where tags mark no entities.
        context: Whether a sentence is read with its document's neighbours.
        keep_text: Whether answers hold the words of entities.
        answer_scheme: Scheme of all answers, and of the gold tags beside them; None where the
            recipe names none, so that answers have the scheme of the file.
        threshold: Probability from which an entity is answered.
        numbered: Names of the tags 0, 1, ... of files with numbers; empty without.
        renamed: Tags or types of a file, each with what the model calls it.
    """

    labels: tuple[str, ...]
    scheme: Scheme | None
    context: bool
    keep_text: bool = True
    answer_scheme: Scheme | None = None
    threshold: float = 0.0
    numbered: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()

    name: ClassVar[str] = "token-classification"
    auto_class: ClassVar[str] = "AutoModelForTokenClassification"
    columns: ClassVar[tuple[str, ...]] = ("words",)
    answer_type: ClassVar[type[Answers]] = TagAnswers
    baselines: ClassVar[tuple[str, ...]] = ("frozen", "word-tags")
    formats: ClassVar[Mapping[str, AnswerFormat]] = FORMATS
    truncation: ClassVar[TruncationMessage] = TruncationMessage(
        "have a word that is longer than {max_length} tokens"
    )

    @property
    def answers(self) -> TagAnswers:
        """What the tags mean."""
        return TagAnswers(self.labels, self.scheme is not None)

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels, in the order of the head's outputs."""
        return self.labels

    @property
    def explained_labels(self) -> tuple[str, ...]:
        """The tags, and the types of entities that they mark."""
        types = [label.removeprefix("B-").removeprefix("I-") for label in self.labels]
        return tuple(dict.fromkeys([*self.labels, *types]))

    @property
    def primary_metric(self) -> str:
        """F1 of entities; accuracy of words where tags mark none."""
        if self.scheme:
            return "entity_f1"
        return "accuracy"

    @classmethod
    def from_data(
        cls, recipe: Recipe, train: Rows, labels: Sequence[str] | None
    ) -> "TokenClassification":
        """Learns the scheme and the tag names.

        They are those of the recipe, else the data set's official order, else sorted.

        Raises:
            DataError: Sentences without tags, an unknown scheme, one tag only; or the context of
                documents is asked for, and the rows name no documents.
        """
        settings = recipe.token_classification
        numbered = tuple(settings.labels or ())
        renamed = _renamed(recipe)
        tags = [_tags(train, i, numbered, renamed) for i in range(len(train))]
        # Tags that are still numbers have no names in the recipe.
        if any(tags) and all(tag.isdecimal() for tag in chain.from_iterable(tags)):
            message = f"{train.source}: the tags are numbers without names"
            raise DataError(
                message,
                remedy="Name them, from 0 on: `token_classification.labels='[O, B-PER, I-PER]'`.",
            )
        # The reader knows the scheme of entity tags from the whole file. If it saw no entities, the
        # tags are looked at again, as the recipe may have given them names of entities.
        if train.tag_kind and train.tag_kind.entities:
            kind = train.tag_kind
        else:
            kind = tag_kind(tags, train.where)
        context = settings.context == "document"
        if context and not train.has("document"):
            raise DataError(
                f"{train.source}: it is not known which sentences are of one document",
                remedy="Documents begin with a line of -DOCSTART- (CoNLL-U: # newdoc), or are "
                "named by a column `document` (JSONL); else leave token_classification.context "
                "out.",
            )
        known_labels = list(settings.labels or labels or ())
        tag_counts = Counter(chain.from_iterable(tags))
        if len(tag_counts) < 2:
            if kind.entities:
                tags_there = "no entity"
            else:
                tags_there = f"one tag ({', '.join(tag_counts)})"
            message = f"{train.source}: the training rows have {tags_there}; nothing can be learned"
            raise DataError(
                message, remedy="Check `data.label_column=`, or add rows with other tags."
            )
        if kind.entities:
            names = _entity_tags(known_labels, tag_counts)
        else:
            names = known_labels or sorted(tag_counts)
        return cls(tuple(names), kind.answered, context, **_answer_settings(recipe))

    @classmethod
    def from_model(cls, recipe: Recipe, model_config: Mapping[str, Any]) -> "TokenClassification":
        """Returns the task by the trained model's config: `id2label` and `tag_scheme`."""
        labels = output_names(model_config)
        scheme = model_config.get("tag_scheme")
        if scheme is None:  # a model that was trained elsewhere
            labels = as_marks(labels)  # B_PER and b-per become B-PER
            has_marks = any(label.startswith(("B-", "I-")) for label in labels)
            if has_marks and "O" in labels:
                scheme = "IOB2"
        if scheme in SCHEMES:
            known = cast(Scheme, scheme)
        else:
            known = None
        context = recipe.token_classification.context == "document"
        return cls(labels, known, context, **_answer_settings(recipe))

    def head(self) -> dict[str, Any]:
        """Returns the names of the tags and the scheme of the answers."""
        return label_fields(self.labels, "single_label_classification") | {
            "tag_scheme": self.scheme or _PLAIN
        }

    def check(self, rows: Rows) -> None:
        """Refuses tags or entity types that training has never seen.

        Raises:
            DataError: There is such a tag; the message has file, line, word, and what the model
                knows.
        """
        known = set(self.labels)
        for i in range(len(rows)):
            tags = self._gold_tags(rows, i)
            for word, (tag, learned) in enumerate(zip(tags, self._learned(tags), strict=True)):
                # Entity tags are rewritten in IOB2, where NN, or PER without B- or I-, becomes O.
                is_unmarked = learned == "O" and tag != "O"
                if is_unmarked or learned not in known:
                    where = f"{rows.where(i)}, word {word + 1} ({rows.columns['words'][i][word]!r})"
                    raise self._unknown_tag(tag, where, is_unmarked)

    def _unknown_tag(self, tag: str, where: str, is_unmarked: bool) -> UnknownLabelError:
        """Returns the refusal of a tag that the model does not know.

        It names the type of a marked entity, and otherwise the whole tag.

        Args:
            tag: The tag, as the file has it.
            where: File, line and word.
            is_unmarked: Whether the tag marks no entity, though the model's tags do.
        """
        if is_unmarked or self.scheme is None:
            kind = "tag"
            name = tag
            names = self.labels
        else:
            kind = "entity type"
            name = tag.partition("-")[2]
            names = tuple(entity_types(self.labels))
        return UnknownLabelError(
            f"{where}: the {kind} {name!r} is not one the model knows ({listing(names)})",
            remedy=f"{did_you_mean(name, names)} Correct the tag, map it to the "
            f"model's name (evaluate `rename_tag={shlex.quote(name)}=NAME`), or train "
            "with rows that have it (or name all tags: "
            "`token_classification.labels='[O, B-PER, I-PER]'`).".lstrip(),
        )

    def encode(self, rows: Rows, tokenizer: Tokenizer, *, max_length: int) -> WordFeatures:
        """Returns words as ids, and the tags of all words as numbers if the rows have tags.

        A sentence that is longer than `max_length` is in several windows. Entity tags of any scheme
        are learned as IOB2, so they are written in it first.
        """
        if self.context and rows.has("document"):
            documents = rows.columns["document"]
        else:
            documents = None
        features = encode_words(
            rows.columns["words"],
            documents,
            tokenizer,
            max_length=max_length,
        )
        if not rows.has("label"):
            return features
        number = {name: i for i, name in enumerate(self.labels)}
        labels: list[int] = []
        for i in range(len(rows)):
            gold_tags = self._gold_tags(rows, i)
            labels += [number[tag] for tag in self._learned(gold_tags)]
        return replace(features, labels=np.array(labels, dtype=np.int64))

    def objective(
        self, padding: Padding, training: TrainingSection | None = None, train: Any = None
    ) -> TaskObjective:
        """Returns the recipe's loss (`training.loss`) of the words' first tokens.

        Each word has the same weight in training, and balanced class weights are counted by words.
        Without `training` it is the loss of scoring: cross-entropy.
        """
        if training is None or train is None:
            scored: TaskObjective = CLASS_LOSSES["cross-entropy"].objective_class("tags")(padding)
            return scored

        loss = CLASS_LOSSES[training.loss]
        minimised: TaskObjective = loss.objective_class("tags")(
            padding,
            class_weights(training, present(train.labels), self.labels),
            training.label_smoothing,
            # A batch has windows of like lengths. Its loss is divided by the number of its windows
            # times this mean, as division by its own words would weigh words of short sentences
            # more.
            per_window=float(train.weights.mean()),
            **loss.keywords(training),
        )
        return minimised

    def array_losses(self, outputs: Array, batch: WordArrays) -> Floats32:
        """Returns the sums of the cross-entropies of the words' first tokens."""
        losses = cross_entropies(outputs, present(batch.labels))
        return np.asarray(losses.sum(axis=1), dtype=np.float32)

    def collect_outputs(
        self,
        logits: "Tensor | Array",
        batch: WordBatch | WordArrays,
        features: WordFeatures,
        indices: Ints,
    ) -> Outputs:
        """Returns the logits of each word's first token, in the window that answers for it."""
        if isinstance(logits, np.ndarray):
            return {"logits": logits[batch.windows, batch.columns]}
        import torch

        # Picked on the device, so that only these logits are copied from it.
        windows = torch.from_numpy(batch.windows).to(logits.device)
        columns = torch.from_numpy(batch.columns).to(logits.device)
        return {"logits": logits[windows, columns].cpu().numpy()}

    def decode(self, outputs: Outputs, features: WordFeatures, rows: Rows) -> list[dict[str, Any]]:
        """Returns the tags of each sentence, and its entities where tags mark any.

        An entity's `start` and `end` count words (`end` is the one after the last), `start_char`
        and `end_char` characters of the text where that is known; `probability` is that of its
        least sure tag.
        """
        numbers, probabilities = self._chosen(outputs, features)
        scheme = self._scheme_of(rows)
        answers: list[dict[str, Any]] = []
        for i, (start, end) in enumerate(
            zip(features.starts[:-1].tolist(), features.starts[1:].tolist(), strict=True)
        ):
            tags = [self.labels[number] for number in numbers[start:end].tolist()]
            if scheme is None:
                answers.append({"prediction": tags})
                continue
            row_probabilities = probabilities[start:end]
            spans = []
            for span in entities(tags):
                _, first_word, end_word = span
                # An entity is as sure as its least sure tag.
                if row_probabilities[first_word:end_word].min() >= self.threshold:
                    spans.append(span)
            described = [self._entity(span, rows, i, row_probabilities) for span in spans]
            # The tags are written anew: words of entities below the threshold become O.
            answers.append(
                {"prediction": write_tags(spans, len(tags), scheme), "entities": described}
            )
        return answers

    def targets(self, answered: Answered, label: str | None) -> list[Target]:
        """Returns what is explained of each row: the sum of the logits of each entity's tags.

        If tags don't mark entities, it is the logit of each word's tag.

        Args:
            answered: Rows with their answers.
            label: Takes only entities of this type, or words of this tag; None for all.
        """
        features = answered.features
        if self.scheme is None:
            kind = "tag"
        else:
            kind = "type"
        numbers, _ = self._chosen(answered.outputs, features)
        targets: list[Target] = []
        first_words = features.starts[:-1].tolist()  # the last entry is the end of the last row
        for i, (start, answer) in enumerate(zip(first_words, answered.answers, strict=True)):
            words = answered.rows.columns["words"][i]
            tags = answer["prediction"]
            if self.scheme is None:
                spans = [{"tag": tag, "start": w, "end": w + 1} for w, tag in enumerate(tags)]
            else:
                spans = answer["entities"]
            for span in spans:
                begin = span["start"]
                end = span["end"]
                # A tag is answered in the file's scheme, and learned in IOB2: both names fit.
                learned_tag = self.labels[numbers[start + begin]]
                if label is not None and label not in (span[kind], tags[begin], learned_tag):
                    continue
                text = " ".join(words[begin:end])
                facts = {kind: span[kind], "start": begin, "end": end, "text": text}
                targets.append(_span_target(features, numbers, i, words, facts))
        return targets

    def describe(self, rows: Rows) -> str:
        """Returns how many entities of each type, or words of each tag, there are.

        It also names the scheme of the tags.
        """
        if self.scheme is None:
            counts = Counter[str]()
            for i in range(len(rows)):
                counts.update(self._gold_tags(rows, i))
            return _counted(counts, "tags")
        counts = self._entity_counts(rows)
        return f"{_counted(counts, 'types')}; learned in IOB2, answered in {self._scheme_of(rows)}"

    def doubts(self, train: Rows) -> list[str]:
        """Returns which types of entities differ in case or spacing alone."""
        if self.scheme is None:
            return []
        counts = self._entity_counts(train)
        return [alike_labels(usual, variants, counts) for usual, variants in spelt_alike(counts)]

    def _entity_counts(self, rows: Rows) -> Counter[str]:
        """Returns how many entities of each type the rows have."""
        counts = Counter[str]()
        for i in range(len(rows)):
            counts.update(kind for kind, _, _ in entities(self._gold_tags(rows, i)))
        return counts

    def gold(self, rows: Rows, index: int) -> list[str]:
        """Returns the tags of a row as the file has them, in the scheme that was asked for."""
        tags = self._gold_tags(rows, index)
        if self.scheme is None or self.answer_scheme is None:
            return tags
        return write_tags(entities(tags), len(tags), self.answer_scheme)

    def _gold_tags(self, rows: Rows, index: int) -> list[str]:
        """Returns the tags of a row as the file has them, renamed to the model's names."""
        return _tags(rows, index, self.numbered, dict(self.renamed))

    def _scheme_of(self, rows: Rows) -> Scheme | None:
        """Returns the scheme in which rows are answered; None where tags mark no entities.

        It is the recipe's, else that of the rows' file, else that of the training rows.
        """
        if self.scheme is None:
            return None
        if self.answer_scheme is not None:
            return self.answer_scheme
        if rows.tag_kind and rows.tag_kind.answered:
            return rows.tag_kind.answered
        return self.scheme

    def _learned(self, tags: Sequence[str]) -> Sequence[str]:
        """Returns tags as the model learns them: those of entities in IOB2, others as they are."""
        if self.scheme is None:
            return tags
        return write_tags(entities(tags), len(tags), "IOB2")

    def _chosen(self, outputs: Outputs, features: WordFeatures) -> tuple[Ints, Floats32]:
        """Returns (W,) the likeliest tag of each word and its probability."""
        if not features.num_predictions:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
        probabilities = softmax(outputs["logits"])
        return probabilities.argmax(axis=1), probabilities.max(axis=1)

    def _entity(
        self, span: Entity, rows: Rows, index: int, probabilities: Floats32
    ) -> dict[str, Any]:
        """Returns an answered entity as prediction files show it.

        Args:
            span: The entity's type, its first word, and the word after its last one.
            rows: Rows of the split.
            index: Row that it is in.
            probabilities: (words of the row,) of the tag that was answered for each word.
        """
        kind, start, end = span
        entity: dict[str, Any] = {"type": kind, "start": start, "end": end}
        if rows.has("offsets"):
            offsets = rows.columns["offsets"][index]
        else:
            offsets = None
        if offsets:
            entity |= {"start_char": offsets[start][0], "end_char": offsets[end - 1][1]}
        if self.keep_text and offsets and rows.has("text"):
            entity["text"] = rows.columns["text"][index][entity["start_char"] : entity["end_char"]]
        elif self.keep_text:
            entity["text"] = " ".join(rows.columns["words"][index][start:end])
        return entity | {"probability": float(probabilities[start:end].min())}


def _span_target(
    features: WordFeatures,
    numbers: Ints,
    index: int,
    words: Sequence[str],
    facts: Mapping[str, Any],
) -> Target:
    """Returns the sum of the logits of the tags of consecutive words of a row.

    Only words that are answered for in the window of the first one are added up, as an explanation
    is of one window. Neighbouring sentences that are read beside the row are no parts of its text.

    Args:
        features: The rows as the model reads them.
        numbers: (W,) number of the tag that was answered for each word.
        index: The row.
        words: Words of the row.
        facts: What the sum stands for; `start` and `end` are the words, counted from the row's
            first one.
    """
    row_start = int(features.starts[index])
    first_word = row_start + facts["start"]
    # The window of the first word, and the positions of all words that this window answers for.
    window, positions = features.places_beside(first_word)
    end_word = min(row_start + facts["end"], int(features.last[window]))
    # An output is the logit of one tag, at the position of a word's first token.
    outputs = tuple(
        (int(features.places[word]), int(numbers[word])) for word in range(first_word, end_word)
    )
    # Words of the row that the window answers for, counted from the row's first word.
    window_start = int(features.first[window]) - row_start
    window_words = words[window_start : window_start + len(positions)]
    part = Part("words", window_words, start=window_start, places=positions)
    return Target(
        index,
        window=window,
        places=outputs,
        named=facts,
        parts=(part,),
    )


def _entity_tags(known_labels: Sequence[str], tag_counts: Mapping[str, int]) -> Sequence[str]:
    """Returns the tags that a model of entities learns: O, and B-TYPE and I-TYPE of each type.

    Entities of any scheme are learned in IOB2, which has these tags.

    Args:
        known_labels: Tags that the recipe or the data set names; empty if neither does.
        tag_counts: Tags of the training rows.
    """
    types = entity_types(known_labels) or sorted(entity_types(tag_counts))
    names = ["O"]
    for entity_type in types:
        if entity_type:
            names += [f"B-{entity_type}", f"I-{entity_type}"]
        else:  # plain B and I mark entities of no type
            names += ["B", "I"]
    if set(known_labels) == set(names):
        return known_labels  # the same tags in the order of the recipe or data set
    return names


def _answer_settings(recipe: Recipe) -> dict[str, Any]:
    """Returns the attributes of a `TokenClassification` that come from the recipe alone."""
    settings = recipe.token_classification
    answer_scheme = None
    if settings.scheme:
        answer_scheme = cast(Scheme, settings.scheme.upper())
    return {
        "keep_text": recipe.evaluation.keep_text,
        "answer_scheme": answer_scheme,
        "threshold": settings.entity_threshold,
        "numbered": tuple(settings.labels or ()),
        "renamed": tuple(_renamed(recipe).items()),
    }


def _renamed(recipe: Recipe) -> dict[str, str]:
    """Returns tags or types of a file, each with what the model calls it."""
    pairs = (name.partition("=") for name in recipe.token_classification.rename_tags or ())
    return {name.strip(): new_name.strip() for name, _, new_name in pairs}


def _new_name(tag: str, renamed: Mapping[str, str]) -> str:
    """Returns a tag under its new name: that of the whole tag, else that of its type."""
    prefix, hyphen, kind = tag.partition("-")
    if tag not in renamed and hyphen and kind in renamed:
        return f"{prefix}-{renamed[kind]}"
    return renamed.get(tag, tag)


def _tags(rows: Rows, index: int, numbered: Sequence[str], renamed: Mapping[str, str]) -> list[str]:
    """Returns the tags of a row as the file has them; numbers as the names that they stand for.

    Args:
        rows: Rows of a split.
        index: Which of them.
        numbered: Names of the tags 0, 1, ... of a file with numbers; empty for a file with names.
        renamed: Tags or types of the file -> what the model calls them.

    Raises:
        DataError: A row that has no tags, or not one for each word; a number without a name.
    """
    tags = rows.columns["label"][index]
    words = rows.columns["words"][index]
    if not isinstance(tags, list | tuple) or len(tags) != len(words):
        if isinstance(tags, list | tuple):
            tags_text = count(len(tags), "tag")
        else:
            tags_text = "no tags"
        n_words = count(len(words), "word")
        message = f"{rows.where(index)}: a sentence of {n_words} has {tags_text}"
        raise DataError(message, remedy="Every row of a labelled split needs a tag for each word.")
    if not numbered or not all(tag.isdecimal() for tag in tags):
        if renamed:
            return [_new_name(tag, renamed) for tag in tags]
        return list(tags)
    nameless = next((tag for tag in tags if int(tag) >= len(numbered)), None)
    if nameless is not None:
        message = (
            f"{rows.where(index)}: the tag {nameless} is the number of none of the {len(numbered)} "
            "names"
        )
        raise DataError(
            message, remedy="Complete token_classification.labels; numbers count from 0."
        )
    return [_new_name(numbered[int(tag)], renamed) for tag in tags]


def _counted(counts: Mapping[str, int], noun: str) -> str:
    """Returns counts as a text, the most frequent first: "PER: 20, LOC: 7, ... (15 types)"."""
    by_frequency = sorted(counts, key=lambda name: (-counts[name], name))
    shown_names = by_frequency[:_LIMIT]
    text = ", ".join(f"{name or 'entity'}: {counts[name]}" for name in shown_names)
    if len(by_frequency) > _LIMIT:
        text += f", ... ({len(by_frequency)} {noun})"
    return text
