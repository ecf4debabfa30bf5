"""The error tree and its wire form."""

import pytest

from omniboxes import errors
from omniboxes.errors import BY_CODE, OmniboxError, from_body


def _all_classes(cls: type[OmniboxError]) -> set[type[OmniboxError]]:
    return {cls}.union(*(_all_classes(sub) for sub in cls.__subclasses__()))


def test_every_error_has_a_code_of_its_own() -> None:
    assert set(BY_CODE.values()) == _all_classes(OmniboxError) - {OmniboxError}


@pytest.mark.parametrize("cls", BY_CODE.values(), ids=lambda cls: cls.code)
def test_an_error_survives_the_wire(cls: type[OmniboxError]) -> None:
    sent = cls("what went wrong")
    rebuilt = from_body(cls.status, sent.to_body())
    assert type(rebuilt) is cls
    assert (rebuilt.detail, rebuilt.retryable) == ("what went wrong", cls.retryable)


@pytest.mark.parametrize("cls", BY_CODE.values(), ids=lambda cls: cls.code)
def test_the_tree_in_the_docstring_names_every_error_with_its_status(
    cls: type[OmniboxError],
) -> None:
    lines = [line for line in (errors.__doc__ or "").splitlines() if cls.__name__ in line.split()]
    assert len(lines) == 1
    assert str(cls.status) in lines[0]


@pytest.mark.parametrize(
    ("status", "kind"), [(502, errors.InternalFault), (418, errors.InvalidRequest)]
)
def test_an_answer_that_is_not_ours_becomes_the_nearest_error(
    status: int, kind: type[OmniboxError]
) -> None:
    assert type(from_body(status, "<html>")) is kind


def test_only_what_may_succeed_later_is_retryable() -> None:
    assert {cls.status for cls in BY_CODE.values() if cls.retryable} == {503}
