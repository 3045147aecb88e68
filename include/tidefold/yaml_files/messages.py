"""The base of validated models, and plain words for what pydantic finds: code, line, key, next step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, Tag, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from tidefold.yaml_files.document import ConfigProblem, YamlDocument, YamlPath, format_place

Text = Annotated[str, Field(min_length=1)]
# The type of an error of pydantic that brings our own code, words and next step.
MISTAKE = "mistake"
_OUT_OF_RANGE = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number")
# A choice that Python spells in its own way; a text with the same letters is in quotes.
_PYTHON_WORD = re.compile(r"(?<!')\b(?:True|False)\b(?!')")


class StrictModel(BaseModel):
    """A mapping of the file: unknown keys and lenient conversions are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    # The page that explains the keys.
    page: ClassVar[str] = "docs/reference/config.md"
    # Fields that the file does not name.
    implicit: ClassVar[tuple[str, ...]] = ()
    # Former name of a key -> its name now.
    renamed: ClassVar[Mapping[str, str]] = {}
    # Key that had a meaning once -> what to do instead.
    removed: ClassVar[Mapping[str, str]] = {}
    # Field with a pattern -> code, message and hint for a text that does not match it.
    mismatches: ClassVar[Mapping[str, tuple[str, str, str]]] = {}


def mistake(code: str, message: str, hint: str = "") -> PydanticCustomError:
    """An error for a validator to raise. The message continues the name of the key, as `is missing.`"""
    return PydanticCustomError(MISTAKE, "{message}", {"code": code, "message": message, "hint": hint})


def mistakes_below(errors: Mapping[tuple[str | int, ...], PydanticCustomError | str], value: Any) -> ValidationError:
    """One error for a validator to raise that names several places below its own, by an error or pydantic's word."""
    details = [InitErrorDetails(type=error, loc=place, input=value) for place, error in errors.items()]
    return ValidationError.from_exception_data("value", details)


def spell_value(value: object) -> str:
    """Returns a value as YAML spells it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


def suggest(word: object, words: Sequence[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """The hint that names the known word nearest to a mistyped one."""
    near = get_close_matches(str(word).lower(), words, n=1, cutoff=cutoff)
    return f"Did you mean `{near[0]}`?" if near else otherwise


def find_problems(
    error: ValidationError, model: type[StrictModel], document: YamlDocument, above: YamlPath = ()
) -> Iterator[ConfigProblem]:
    """The problems behind an error of a model.

    model: the model that was validated.
    above: the place of its data in the document.
    """
    for detail in error.errors(include_url=False):
        below, owner = _locate(detail, model)
        place = (*above, *below)
        code, message, hint = _explain(detail, place, owner)
        yield ConfigProblem(code, document.line(place), format_place(place), message, hint)


def _locate(detail: ErrorDetails, model: type[StrictModel]) -> tuple[YamlPath, type[StrictModel]]:
    """The place of a mistake in the file, and the model of the mapping that holds it.

    Pydantic also names the choice of a union. The file has it only in place of an implicit field.
    """
    place: list[str | int] = []
    owner = model
    parts = iter([part for part in detail["loc"] if part != "[key]"])
    for part in parts:
        owner = model
        implicit = part in model.implicit
        place += [] if implicit else [part]
        field = next((f for name, f in model.model_fields.items() if part in (name, f.alias)), None)
        if field is None:
            continue
        annotation = _unwrap(field.annotation)
        inside = get_origin(annotation) in (dict, list, tuple)
        choices = dict(_find_models(annotation))
        if not choices:
            place += parts if inside and not implicit else ()
            break
        place += [key for key in [next(parts, None) if inside else None] if key is not None]
        model = next(iter(choices.values()))
        if len(set(choices.values())) > 1:
            tag = str(next(parts, ""))
            model = choices.get(tag, owner)
            place += [tag] if implicit and tag else []
    if detail["type"].startswith("union_tag"):
        place.append(str(detail["ctx"]["discriminator"]).strip("'"))
    return tuple(place), owner


def _unwrap(annotation: Any) -> Any:
    """`X` of `X | None` and of `Annotated[X, ...]`."""
    if get_origin(annotation) is Annotated:
        return _unwrap(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        rest = [arg for arg in get_args(annotation) if arg is not NoneType]
        return _unwrap(rest[0]) if len(rest) == 1 else annotation
    return annotation


def _find_models(annotation: Any, tag: str = "") -> Iterator[tuple[str, type[StrictModel]]]:
    """The models that a type allows, each with the tags that choose it in a union."""
    if isinstance(annotation, type) and issubclass(annotation, StrictModel):
        literals = [f.annotation for f in annotation.model_fields.values() if get_origin(f.annotation) is Literal]
        yield tag, annotation
        yield from ((str(value), annotation) for literal in literals for value in get_args(literal) if not tag)
    elif get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        yield from _find_models(inner, next((m.tag for m in metadata if isinstance(m, Tag)), tag))
    else:
        for argument in get_args(annotation):
            yield from _find_models(argument)


def _explain(detail: ErrorDetails, place: YamlPath, owner: type[StrictModel]) -> tuple[str, str, str]:
    kind, context, name = detail["type"], detail.get("ctx", {}), str(place[-1]) if place else ""
    if kind == MISTAKE:
        return context["code"], context["message"], context["hint"]
    if kind in ("missing", "union_tag_not_found"):
        return "CONFIG_MISSING_KEY", "is missing.", _describe(name, owner)
    if kind == "extra_forbidden":
        return _explain_unknown_key(name, owner)
    if kind in ("literal_error", "union_tag_invalid", "enum"):
        value, expected = context.get("tag", detail["input"]), context.get("expected") or context["expected_tags"]
        spelled = _PYTHON_WORD.sub(lambda literal: literal[0].lower(), expected)
        return explain_unknown_value(value, spelled.replace("'", "").replace(" or ", ", "))
    if kind in _OUT_OF_RANGE:
        return "CONFIG_OUT_OF_RANGE", f"is out of range: {_reword(detail['msg'])}", ""
    if kind in ("too_short", "string_too_short"):
        return "CONFIG_EMPTY_VALUE", "must not be empty.", ""
    if kind == "string_pattern_mismatch":
        return owner.mismatches[name]
    message = f"has the wrong type: {_reword(detail['msg'])}"
    return "CONFIG_WRONG_TYPE", message, _hint_of_type(kind, detail["input"])


def _reword(message: str) -> str:
    lowered = message[0].lower() + message[1:]
    for theirs, ours in (
        ("a valid dictionary or instance of ", "a mapping like "),
        (" or object to extract fields from", ""),
        ("dictionary", "mapping"),
        ("input", "it"),
    ):
        lowered = lowered.replace(theirs, ours)
    return f"{lowered}."


def _explain_unknown_key(name: str, owner: type[StrictModel]) -> tuple[str, str, str]:
    if name in owner.removed:
        return "CONFIG_UNKNOWN_KEY", "is not supported any more.", owner.removed[name]
    allowed = [field.alias or name for name, field in owner.model_fields.items()]
    hint = suggest(owner.renamed.get(name, name), allowed, f"Remove it. {owner.page} explains every key.", 0.65)
    return "CONFIG_UNKNOWN_KEY", f"is not a known key. Allowed here: {', '.join(allowed)}.", hint


def explain_unknown_value(value: object, allowed: str) -> tuple[str, str, str]:
    """Code, message and hint for a value that is not among the allowed words (`a, b, c`)."""
    text = spell_value(value)
    shown = f"`{text}`" if isinstance(value, str | int | float) and len(text) <= 40 else "this value"
    choices = allowed.split(", ")
    hint = f"Write `{allowed}`." if len(choices) == 1 else suggest(text, choices, cutoff=0.5)
    return "CONFIG_UNKNOWN_VALUE", f"cannot be {shown}. Allowed: {allowed}.", hint


def _hint_of_type(kind: str, value: object) -> str:
    if value is None:
        return "Give it a value, or remove the line."
    if kind == "list_type":
        return f"Write it as a list: `[{value}]`." if isinstance(value, str) else "Write it as a list: `[a, b]`."
    return "Put it in quotes." if kind == "string_type" else ""


def _describe(name: str, owner: type[StrictModel]) -> str:
    field = owner.model_fields.get(name)
    return f"It means: {field.description}." if field and field.description else f"{owner.page} shows an example."
