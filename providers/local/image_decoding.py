"""Image files of anybody as pixels. What a file is is seen in it, and its size is known before it is decoded."""

import io
from typing import Final

from PIL import Image, ImageOps

from adapters.canonical.errors import InvalidRequest

__all__ = ["MAX_PIXELS", "decode_image"]

MAX_PIXELS: Final = 50_000_000
"""Of one image: 150 MB while it is decoded, or 400 where some of it is see-through."""
_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")
_TOO_LARGE = (Image.DecompressionBombError, Image.DecompressionBombWarning)


def decode_image(raw: bytes, path: str) -> Image.Image:
    """The image in RGB, upright, what is see-through on white; of several frames the first. Blocks. Raises
    InvalidRequest naming `path`."""
    try:
        with Image.open(io.BytesIO(raw), formats=_FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise InvalidRequest.at(path, f"the image has {width} x {height} pixels, at most {MAX_PIXELS} are read")
            return _in_rgb(ImageOps.exif_transpose(image))
    except InvalidRequest:
        raise
    except _TOO_LARGE as error:
        raise InvalidRequest.at(path, f"the image has more than {MAX_PIXELS} pixels") from error
    except Exception as error:  # decoders of foreign bytes fail in any way
        raise InvalidRequest.at(path, "no image that can be read; PNG, JPEG, GIF and WebP are") from error


def _in_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # greys of 16 bits, which would all be white
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    if not image.has_transparency_data:
        return image.convert("RGB")
    image = image.convert("RGBA")
    seen = Image.new("RGB", image.size, "white")
    seen.paste(image, mask=image.getchannel("A"))
    return seen
