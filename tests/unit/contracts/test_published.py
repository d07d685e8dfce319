"""Every published contract is signed, digested, read and settled by the same lines, whoever made it."""

import inspect

import pytest

from bonafed.contracts.published import SHARED, PublishedContract
from bonafed.errors import InvalidValue
from bonafed.mechanisms.catalogue import CATALOGUE

OWN = {"question", "fields", "from_fields", "terms_for", "verify", "prospect", "signed", "settings"}
ABOUT_OWN = {"draws", "is_posted"}  # two facts with a usual answer


def kinds(base=PublishedContract):
    """Every concrete kind of contract of the mechanisms in the catalogue."""
    for entry in CATALOGUE.values():
        entry.load()
    for kind in base.__subclasses__():
        yield from kinds(kind)
    if base.__module__.startswith("bonafed.") and not inspect.isabstract(base):
        yield base


ALL = sorted(set(kinds()), key=lambda kind: kind.format)


def test_the_base_is_either_shared_or_a_mechanism_s_own():
    members = {name for name in vars(PublishedContract) if not name.startswith("_")}
    assert members == SHARED | OWN | ABOUT_OWN | {"noun"}
    assert PublishedContract.__abstractmethods__ == OWN


def test_every_format_of_the_catalogue_has_its_kind():
    assert {kind.format for kind in ALL} == {kind for entry in CATALOGUE.values() for kind in entry.formats}
    for kind in ALL:
        assert kind.format in CATALOGUE[kind.mechanism].formats


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.format)
def test_a_mechanism_overrides_nothing_that_is_shared(kind):
    for name in SHARED:
        assert inspect.getattr_static(kind, name) is vars(PublishedContract)[name], name


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.format)
def test_formats_begin_at_1_and_no_other_version_is_read(kind):
    for version in (0, 2, True, "1", None):
        with pytest.raises(InvalidValue, match=rf"^{kind.noun}\.version must be 1, got"):
            kind.from_json({"format": kind.format, "version": version})
    with pytest.raises(InvalidValue, match=rf"^{kind.noun}\.format must be '{kind.format}', got 'another'"):
        kind.from_json({"format": "another", "version": 1})


@pytest.mark.parametrize("name", sorted(SHARED))
def test_whoever_overrides_what_is_shared_is_refused(name):
    with pytest.raises(TypeError, match=f"Own must not override {name}"):
        type("Own", (PublishedContract,), {name: None})
    with pytest.raises(TypeError, match=f"Own must not override {name}"):
        type("Own", (type("Before", (), {name: None}), PublishedContract), {})
