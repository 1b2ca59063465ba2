"""Which language a text is in, by the library py3langid."""

from collections.abc import Callable
from functools import cache, lru_cache

_REMEMBERED = 20_000  # texts: premises and paragraphs stand many times


@cache
def language_identifier() -> Callable[[str], tuple[str, float]]:
    """Returns a function from a text to its language code, and how sure that is, from 0 to 1."""
    from py3langid import langid

    identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
    classify: Callable[[str], tuple[str, float]] = lru_cache(_REMEMBERED)(identifier.classify)
    return classify
