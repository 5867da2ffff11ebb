"""The byte vocabulary of paper.md 2: 64 special ids, then the 256 bytes."""

N_SPECIAL = 64
N_BYTES = 256
VOCABULARY = N_SPECIAL + N_BYTES
PAD, BOS, EOS = 0, 1, 2
WHITESPACE = b"\t\n\v\f\r "  # ASCII, what \s matches in bytes
