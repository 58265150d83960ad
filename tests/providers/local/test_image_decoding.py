"""Image files of anybody: read in every format that clients send, and refused by their place where they are none."""

import io
import struct
import warnings
import zlib
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image
from transformers.image_transforms import convert_to_rgb

from adapters.canonical.errors import InvalidRequest
from providers.local.image_decoding import MAX_PIXELS, decode_image
from tests.providers.local.tiny_vision import picture, png

PATH = "messages[0].content[1]"


def refusal(raw: bytes) -> str:
    with pytest.raises(InvalidRequest) as caught:
        decode_image(raw, PATH)
    assert caught.value.param == PATH
    return str(caught.value)


def header_of(width: int, height: int) -> bytes:
    """A PNG that says it is so large, and has little content."""
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(b"\0" * 10)]
    framed = [struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks]
    return b"".join((b"\x89PNG\r\n\x1a\n", *framed))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_the_formats_that_clients_send_are_read(kind: str, mode: str) -> None:
    raw = png(picture(mode=mode), kind)
    image = decode_image(raw, PATH)
    assert (image.mode, image.size) == ("RGB", (40, 24))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_see_through_stands_on_white_as_transformers_has_it(mode: str) -> None:
    if mode == "P":
        raw = png(picture().convert("P", palette=Image.Palette.ADAPTIVE), transparency=bytes(range(256)))
    else:
        raw = png(picture(mode="RGBA").convert(mode))
    expected = convert_to_rgb(Image.open(io.BytesIO(raw)), return_numpy=True)
    np.testing.assert_array_equal(decode_image(raw, PATH), expected)
    assert (expected != np.asarray(Image.open(io.BytesIO(raw)).convert("RGBA").convert("RGB"))).any()


def test_greys_of_sixteen_bits_keep_their_shades() -> None:
    shades = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    seen = np.asarray(decode_image(png(Image.fromarray(shades)), PATH))
    np.testing.assert_array_equal(seen, np.repeat((shades >> 8)[:, :, None], 3, axis=2))


def test_a_photograph_is_turned_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned by a quarter
    image = Image.new("RGB", (40, 20), "blue")
    assert decode_image(png(image, "JPEG", exif=exif), PATH).size == (20, 40)


def test_of_several_frames_the_first_is_seen() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    raw = png(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode_image(raw, PATH).getpixel((2, 2)) == (255, 0, 0)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html>no</html>",
        b"%PDF-1.7",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        header_of(8, 8),
        png(picture())[:200],
        png(picture(), "BMP"),
        png(picture(), "TIFF"),
    ],
)
def test_what_is_no_image_that_is_read_is_refused_by_its_place(raw: bytes) -> None:
    assert refusal(raw).startswith(f"{PATH}: no image that can be read")


@pytest.mark.parametrize("size", [(10_000, 5_001), (9500, 9500), (20_000, 20_000), (2**31 - 1, 2**31 - 1)])
def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(size: tuple[int, int]) -> None:
    told = refusal(header_of(*size))
    assert str(MAX_PIXELS) in told
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert str(MAX_PIXELS) in refusal(header_of(*size))


def test_an_image_cut_at_any_byte_is_refused_or_read_but_never_fails_otherwise() -> None:
    for kind in ("PNG", "JPEG", "GIF", "WEBP"):
        whole = png(picture(16, 12), kind)
        for end in range(0, len(whole), 7):
            with suppress(InvalidRequest):
                assert decode_image(whole[:end], PATH).size == (16, 12)
