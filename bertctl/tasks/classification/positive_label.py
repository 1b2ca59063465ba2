"""Which of two labels `f1` is about.

It is the one that was named, the data set's, else a guess from the names.
"""

import re
from collections.abc import Sequence

from bertctl.errors import UsageError
from bertctl.words import listing, unknown

_YES = re.compile(
    r"1|true|yes|y|pos|positive|spam|toxic|hate\w*|abus\w*|off?en[sc]\w*|insult\w*|sarcas\w*|"
    r"ironic|irony|fake|fraud\w*|defect\w*|relevant|duplicate|paraphrase|equivalent|entail\w*|"
    r"acceptable|correct|positiv|ja|oui|si|sí",
    re.IGNORECASE,
)
_NO = re.compile(
    r"0|-1|false|no|n|neg|negative|negativ|none|ham|other|others|rest|normal|neutral|clean|benign|"
    r"nein|non|(not|non|no)[-_ ].+",
    re.IGNORECASE,
)


def positive_label(labels: Sequence[str], multi_label: bool, requested: str | None) -> str | None:
    """Returns the positive label, which `f1` is about: the one asked for, else a guess.

    It is None unless there are two labels and each row has one of them.

    Args:
        labels: Names of all labels.
        multi_label: Whether a row may have several labels.
        requested: `evaluation.positive_label` of the recipe.

    Raises:
        UsageError: A label that is none of the two, or one of more than two.
    """
    field = "evaluation.positive_label"
    if multi_label or len(labels) != 2:
        if requested is not None:
            raise UsageError(
                f"{field}={requested}: only one of two labels is positive, and a row has "
                f"{'any number' if multi_label else 'one'} of {len(labels)}",
                remedy=f"Leave it out. Metrics of one label are called f1:{labels[0]}, "
                f"recall:{labels[0]}, ...",
            )
        return None
    if requested is not None and requested not in labels:
        raise UsageError(
            f"{field}: {unknown('label', requested, labels)}",
            remedy=f"Choose from {listing(labels)}.",
        )
    return requested or _guess(labels)


def _guess(labels: Sequence[str]) -> str:
    """Returns the one of two labels that a classifier is more likely built to find.

    It is `spam` of ham and spam, and `OFFENSE` of OFFENSE and OTHER.

    Where the names don't tell, the later one in the model's order: the data sets of GLUE end with
    the positive label.
    """
    earlier, later = labels
    # 1 for a name such as "yes", -1 for one such as "no", 0 for others.
    scores = [bool(_YES.fullmatch(name)) - bool(_NO.fullmatch(name)) for name in (earlier, later)]
    if scores[0] > scores[1]:
        return earlier
    return later
