"""One visible sign a byte: text where the bytes are text, hexadecimal where they are not."""

import unicodedata

SPACE, NEWLINE, TAB, RETURN = "\u2423", "\u21b5", "\u2192", "\u240d"
CIRCLE = "\u25cc"  # what a combining mark is shown on
CONTINUED = "\u00b7"  # a later byte of a character of several bytes
_NAMED = {0x20: SPACE, 0x0A: NEWLINE, 0x09: TAB, 0x0D: RETURN}


def glyphs(data: bytes) -> list[str]:
    """What to show for each byte: its character, '·' for the rest of one, or two hex digits.

    >>> glyphs("né \\n".encode() + b"\\x80")
    ['n', 'é', '·', '␣', '↵', '80']
    """
    signs: list[str] = []
    while len(signs) < len(data):
        place = len(signs)
        byte = data[place]
        if byte in _NAMED:
            signs.append(_NAMED[byte])
        elif byte < 0x80:
            signs.append(chr(byte) if 0x20 <= byte < 0x7F else f"{byte:02x}")
        else:
            signs += _several(data[place : place + 4])
    return signs


def _several(data: bytes) -> list[str]:
    """Signs of the UTF-8 character that `data` starts with, or of its first byte alone."""
    for length in (2, 3, 4):
        try:
            character = data[:length].decode("utf-8")
        except UnicodeDecodeError:
            continue
        kind = unicodedata.category(character)
        if kind == "Zs" or kind[0] in "LNPSM":  # other invisible ones can't be shown
            marked = CIRCLE + character if kind[0] == "M" else character
            return [SPACE if kind == "Zs" else marked] + [CONTINUED] * (length - 1)
        break
    return [f"{data[0]:02x}"]
