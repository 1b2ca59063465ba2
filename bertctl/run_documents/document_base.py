"""What the documents have in common: strict, frozen, and patient with keys of other versions."""

from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
    WrapValidator,
)

Value = TypeVar("Value")

_LARGEST = 2**63 - 1  # what numpy, files and clocks take

Integer = Annotated[int, Field(le=_LARGEST), WithJsonSchema({"type": "integer"})]

Count = Annotated[int, Field(ge=0, le=_LARGEST), WithJsonSchema({"type": "integer", "minimum": 0})]

PositiveCount = Annotated[
    int, Field(ge=1, le=_LARGEST), WithJsonSchema({"type": "integer", "minimum": 1})
]


def _as_given(value: Any, check: Any) -> Any:
    """Checks a value and returns the very one, so that 1 is not written again as 1.0."""
    check(value)
    return value


Number = Annotated[float, WrapValidator(_as_given)]


class _Absent:
    """Marks a field that is left out of a document where it says nothing."""

    def __init__(self, *, is_nullable: bool = False) -> None:
        self._is_nullable = is_nullable

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Returns the check of a field that is there.

        A field of `OrAbsent` is then not null, though its default in Python is None.
        """
        if self._is_nullable:
            return handler(source)
        present = tuple(kind for kind in get_args(source) if kind is not NoneType)
        return handler(Union[present])  # noqa: UP007 - of a tuple

    def __get_pydantic_json_schema__(
        self, core_schema: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Returns the type's JSON Schema with the mark that the field may be left out."""
        return {**handler(core_schema), ABSENT: True}


ABSENT = "x-absent"
"""Key of a field's JSON Schema that says that the field may be left out; not published."""

OrAbsent = Annotated[Value | None, _Absent()]
"""Type of a field that not every document has, and that is never null; its default is None."""

Sometimes = Annotated[Value, _Absent(is_nullable=True)]
"""Type of a field that not every document has; its default says what stands for it."""

SchemaNumber = Annotated[Literal[1], Field(alias="schema")]


class Document(BaseModel):
    """A JSON object in a file. Keys that it does not know stay in it: a later version wrote them.

    Attributes:
        published: Name of its JSON Schema; empty for a part of a document.
    """

    published: ClassVar[str] = ""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="allow",
        populate_by_name=True,
        protected_namespaces=(),
        defer_build=True,
    )

    def as_json(self) -> dict[str, Any]:
        """Returns the document as it is written: the fields that were given, in their order."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class ClosedDocument(Document):
    """A document of which the published schema says that it has no other keys."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})
