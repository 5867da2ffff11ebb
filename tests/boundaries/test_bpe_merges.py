"""Boundary ranks against a naive BPE that follows the definition, merge by merge."""

import re
from itertools import pairwise

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from rltok_core.boundaries.bpe_merges import (
    NEVER,
    LastToken,
    boundary_ranks,
    gpt2_alphabet,
    spell,
    train_merges,
    word_ranks,
)

PROSE = (
    b"The cat sat on the mat.\nThe other cat  sat\ton  the other mat, the cat that sat there;\r\n"
    b"  and then the hat, the rat and the bat that the cat ate sat there too!\n\n\nthe end  "
)
SCRIPTS = "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。天地 天地 日月 👍👍🏽👨‍👩‍👧 né né".encode()
BROKEN = b"\x80\xff\xfe ab\x00\x00ab\xc3 \xc3\x28 ab\x80\x80ab \x00"


def naive_starts(merges, word, count):
    """Starts of tokens: join the leftmost pair of the lowest rank until none is left."""
    rank = {tuple(pair): r for r, pair in enumerate(merges[:count].tolist())}
    tokens, starts = list(word), list(range(len(word)))
    while True:
        pairs = [(rank[p], i) for i, p in enumerate(pairwise(tokens)) if p in rank]
        if not pairs:
            return starts
        r, i = min(pairs)
        tokens[i : i + 2] = [256 + r]
        del starts[i + 1]


def naive_document(merges, document, count):
    """Token starts of a whole document, split as GPT-2 does."""
    starts, at = set(), 0
    for word in re.findall(rb" ?[^\s]+|\s+(?!\S)|\s+", document):
        starts |= {at + s for s in naive_starts(merges, word, count)}
        at += len(word)
    assert at == len(document)
    return starts


def random_word(rng, letters, longest):
    return bytes(rng.choice(letters, size=rng.integers(1, longest)).astype(np.uint8))


@pytest.fixture(scope="module")
def merges():
    return train_merges([PROSE * 3, SCRIPTS * 3, BROKEN * 3], 400)


def counts(merges):
    return [0, 1, 2, 5, len(merges) // 3, len(merges) // 2, len(merges) - 1, len(merges)]


@pytest.mark.parametrize("document", [PROSE, SCRIPTS, BROKEN], ids=["prose", "scripts", "broken"])
def test_every_number_of_merges_tokenizes_as_the_definition_says(merges, document):
    ranks = boundary_ranks(merges, [document], causal=False)
    for count in counts(merges):
        assert set(np.flatnonzero(ranks >= count)) == naive_document(merges, document, count)


@pytest.mark.parametrize("document", [PROSE, SCRIPTS, BROKEN], ids=["prose", "scripts", "broken"])
def test_causal_boundaries_are_those_of_every_prefix_tokenized_by_itself(merges, document):
    ranks = boundary_ranks(merges, [document], causal=True)
    for count in counts(merges)[::2]:
        brute = [
            max(naive_document(merges, document[: i + 1], count)) == i for i in range(len(document))
        ]
        assert (ranks >= count).tolist() == brute


def test_long_words_of_few_letters_where_merges_overlap():
    """Runs such as aaaa and ababab: ties within a rank go to the left."""
    rng = np.random.default_rng(0)
    letters = np.frombuffer(b"aaab", np.uint8)
    merges = train_merges([b"%b " % random_word(rng, letters, 40) for _ in range(60)], 300)
    words = [b"a" * n for n in range(1, 40)] + [random_word(rng, letters, 60) for _ in range(60)]
    whole, prefix = word_ranks(merges, words)
    at = 0
    for word in words:
        for count in counts(merges):
            mine = np.flatnonzero(whole[at : at + len(word)] >= count).tolist()
            assert mine == naive_starts(merges, word, count)
            last = [naive_starts(merges, word[: i + 1], count)[-1] == i for i in range(len(word))]
            assert (prefix[at : at + len(word)] >= count).tolist() == last
        at += len(word)


def test_more_merges_only_remove_boundaries_and_words_keep_their_starts(merges):
    ranks = boundary_ranks(merges, [PROSE], causal=False)
    starts = [m.start() for m in re.finditer(rb" ?\S+|\s+(?!\S)|\s+", PROSE)]
    assert (ranks[starts] == NEVER).all()
    assert (ranks[ranks < NEVER] < len(merges)).all() and (ranks >= 0).all()


def test_documents_do_not_touch_and_empty_ones_take_no_room(merges):
    apart = [boundary_ranks(merges, [d], causal=True) for d in (PROSE, SCRIPTS)]
    together = boundary_ranks(merges, [b"", PROSE, b"", SCRIPTS, b""], causal=True)
    assert together.tolist() == np.concatenate(apart).tolist()
    assert boundary_ranks(merges, [], causal=False).shape == (0,)


def test_every_token_has_one_derivation_and_ranks_rise(merges):
    tokens = spell(merges)
    assert len(set(tokens)) == len(tokens)
    assert (merges < 256 + np.arange(len(merges))[:, None]).all()
    assert b" the" in tokens
    assert not any(re.search(rb"\S\s", token) for token in tokens)


def test_training_again_gives_the_same_merges_and_fewer_are_a_prefix(merges):
    documents = [PROSE * 3, SCRIPTS * 3, BROKEN * 3]
    assert np.array_equal(merges, train_merges(documents, 400))
    fewer = train_merges(documents, 300)
    assert np.array_equal(merges[: len(fewer)], fewer) and len(fewer) > 30


def library_tokenizer(merges, count):
    """The same tokenizer in the `tokenizers` library, its pre-tokenization a regex of its own."""
    table = gpt2_alphabet()
    text = ["".join(table[byte] for byte in token) for token in spell(merges)[: 256 + count]]
    pairs = [(text[left], text[right]) for left, right in merges[:count]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(text)}, pairs))
    space = "".join(table[byte] for byte in b"\t\n\v\f\r ")
    pattern = f"{table[32]}?[^{space}]+|[{space}]+(?![^{space}])|[{space}]+"
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    return tokenizer


@pytest.mark.parametrize("document", [PROSE, SCRIPTS, BROKEN], ids=["prose", "scripts", "broken"])
def test_the_library_starts_its_tokens_at_the_same_bytes(merges, document):
    ranks = boundary_ranks(merges, [document], causal=False)
    mapped = document.decode("latin-1").translate(gpt2_alphabet())
    for count in counts(merges)[1:]:
        encoding = library_tokenizer(merges, count).encode(mapped)
        assert [start for start, _ in encoding.offsets] == np.flatnonzero(ranks >= count).tolist()


def test_alphabet_is_gpt2s():
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert set(gpt2_alphabet().values()) == set(pre_tokenizers.ByteLevel.alphabet())
    text = "".join(map(chr, range(0x110000 - 0x100000))) + "👍"  # U+0000 to U+FFFF
    text = "".join(c for c in text if not "\ud800" <= c <= "\udfff")
    mapped = "".join(piece for piece, _ in level.pre_tokenize_str(text))
    assert mapped == text.encode().decode("latin-1").translate(gpt2_alphabet())


def test_a_later_byte_moves_an_earlier_whole_boundary_but_no_causal_one(merges):
    """The perturbation test at the place where BPE looks ahead: its decisions (ledger 8)."""
    rng = np.random.default_rng(1)
    moved = 0
    for cut in range(5, len(PROSE) - 1, 7):
        other = PROSE[:cut] + bytes(rng.integers(97, 123, len(PROSE) - cut).astype(np.uint8))
        for causal in (True, False):
            pair = [boundary_ranks(merges, [text], causal)[:cut] for text in (PROSE, other)]
            if causal:
                assert np.array_equal(*pair)
            else:
                moved += int((pair[0] != pair[1]).any())
    assert moved > 5


def test_byte_after_byte_says_what_the_ranks_say(merges):
    """One reader for all documents, and in a jumble of places too."""
    rng = np.random.default_rng(2)
    letters = [random_word(rng, list(b"ab "), 200) for _ in range(5)]
    for count in counts(merges):
        reader = LastToken(merges[:count])
        for document in [PROSE, SCRIPTS, BROKEN, *letters]:
            expected = boundary_ranks(merges[:count], [document], causal=True) >= count
            found = [reader.starts(document[: i + 1]) for i in range(len(document))]
            assert found == expected.tolist()
            for i in rng.integers(0, len(document), 5).tolist():
                assert reader.starts(document[: i + 1]) == expected[i]
