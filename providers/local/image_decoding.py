"""Image files of anybody as pixels. What a file is is seen in it, and its size is known before it is decoded."""

import io
from typing import Final

from PIL import Image, ImageOps

from adapters.canonical.errors import InvalidRequest

__all__ = ["MAX_PIXELS", "decode_image"]

MAX_PIXELS: Final = 50_000_000
"""Of one image: 150 MB while it is decoded."""
_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")
_TOO_LARGE = (Image.DecompressionBombError, Image.DecompressionBombWarning)


def decode_image(raw: bytes, path: str) -> Image.Image:
    """The image in RGB, upright; of several frames the first. Blocks. Raises InvalidRequest naming `path`."""
    try:
        with Image.open(io.BytesIO(raw), formats=_FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise InvalidRequest.at(path, f"the image has {width} x {height} pixels, at most {MAX_PIXELS} are read")
            upright = ImageOps.exif_transpose(image)
            if upright.mode == "P" and "transparency" in upright.info:
                upright = upright.convert("RGBA")
            return upright.convert("RGB")
    except InvalidRequest:
        raise
    except _TOO_LARGE as error:
        raise InvalidRequest.at(path, f"the image has more than {MAX_PIXELS} pixels") from error
    except Exception as error:  # decoders of foreign bytes fail in any way
        raise InvalidRequest.at(path, "no image that can be read; PNG, JPEG, GIF and WebP are") from error
