"""Each picture of the docs was taken after the last change of what it shows."""

from __future__ import annotations

import json

import pytest

from support.pictures import IMAGES, PICTURES, RECORD, Picture, hash_of


@pytest.mark.parametrize("picture", [one for one in PICTURES if one.made_of], ids=lambda picture: picture.name)
def test_a_picture_shows_the_product_of_the_day(picture: Picture) -> None:
    made_of = json.loads(RECORD.read_text())[picture.name]
    assert (IMAGES / f"{picture.name}.png").exists()
    assert made_of == hash_of(picture), f"take it again, and look at it: make pictures NAMES={picture.name}"
