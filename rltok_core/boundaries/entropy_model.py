"""A small byte model by counting, and the entropy of what it expects next.

Interpolated n-grams (Witten & Bell 1991, their method C): after a context of k bytes that was
followed c times, by u different bytes,
    P_k(b) = (count(b) + u P_{k-1}(b)) / (c + u),        P_{-1} uniform over 256 bytes,
with k as large as the context is known, up to the order. A context seen fewer than `min_count`
times is not known: every context of the text that was counted has at least its own byte, and the
model would be surer there than on other text.

The distribution, and so its entropy, is a property of the context: it is worked out once for each.
Contexts form a tree of nodes, order by order; node 0 is the empty context.

Shapes: J bytes of all documents, N nodes, E followers of all nodes, C = 256 bytes.
"""

from dataclasses import dataclass

import numpy as np

NODES_AT_ONCE = 4096  # 8 MB of distributions


def entropy_bits(logits: np.ndarray) -> np.ndarray:
    """Entropy in bits of softmax(logits) over the last axis, in float64; -inf has probability 0.

    At least one logit of each distribution must be above -inf.
    """
    logits = np.asarray(logits, np.float64)
    z = logits - logits.max(-1, keepdims=True)
    weight = np.exp(z)
    total = weight.sum(-1)
    # 0 log 0 = 0
    mean = (weight * np.where(weight > 0, z, 0.0)).sum(-1) / total
    return (np.log(total) - mean) / np.log(2)


def _depths(documents: list[bytes]) -> np.ndarray:
    """depth_J: bytes of its own document before each byte."""
    lengths = np.array([len(document) for document in documents], np.int64)
    starts = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) - np.repeat(starts, lengths)


def _longer(context_J: np.ndarray, text_J: np.ndarray, k: int) -> np.ndarray:
    """The k bytes before each byte as one number, the latest lowest, from the k - 1 bytes."""
    older_J = np.zeros_like(context_J)
    older_J[k:] = text_J[:-k]
    return context_J | older_J << np.uint64(8 * (k - 1))


@dataclass
class ByteModel:
    """Counts of a text, as a tree of contexts.

    Attributes:
        keys: for each order k, its known contexts as numbers, rising.
        begin: for each order, the node of keys[k][0]; the nodes in all at the end.
        parent_N: the node of the context without its oldest byte.
        first_N: the first of a node's followers; N + 1 of them.
        byte_E, count_E: followers, and how often.
    """

    keys: list[np.ndarray]
    begin: list[int]
    parent_N: np.ndarray
    first_N: np.ndarray
    byte_E: np.ndarray
    count_E: np.ndarray

    @classmethod
    def fit(cls, documents: list[bytes], order: int, min_count: int) -> "ByteModel":
        """Count documents; a context never reaches into the document before.

        Args:
            documents: raw bytes, at least one byte in all.
            order: bytes of the longest context, at most 6 (with the next byte 56 bits).
            min_count: how often a context has to be followed by a byte to be known.
        """
        text_J = np.frombuffer(b"".join(documents), np.uint8).astype(np.uint64)
        depth_J, context_J = _depths(documents), np.zeros(len(text_J), np.uint64)
        keys, begin, parents, sizes, pairs = [], [0], [], [], []
        for k in range(order + 1):
            if k:
                context_J = _longer(context_J, text_J, k)
            pair_J = (context_J << np.uint64(8) | text_J)[depth_J >= k]
            pair_E, count_E = np.unique(pair_J, return_counts=True)
            key_K, first_K, size_K = np.unique(
                pair_E >> np.uint64(8), return_index=True, return_counts=True
            )
            sum_E = np.concatenate([[0], np.cumsum(count_E)])
            seen_K = sum_E[first_K + size_K] - sum_E[first_K]
            known_K = seen_K >= (min_count if k else 1)
            known_E, key_K = np.repeat(known_K, size_K), key_K[known_K]
            if k:
                shorter_K = key_K & np.uint64((1 << 8 * (k - 1)) - 1)
                parents.append(begin[k - 1] + np.searchsorted(keys[-1], shorter_K))
            else:
                parents.append(np.array([-1]))
            keys.append(key_K)
            begin.append(begin[-1] + len(key_K))
            sizes.append(size_K[known_K])
            pairs.append((pair_E[known_E].astype(np.uint8), count_E[known_E]))
        return cls(
            keys,
            begin,
            np.concatenate(parents),
            np.concatenate([[0], np.cumsum(np.concatenate(sizes))]),
            *(np.concatenate(column) for column in zip(*pairs, strict=True)),
        )

    def nodes(self, documents: list[bytes]) -> np.ndarray:
        """node_J: the longest known context before each byte of documents."""
        text_J = np.frombuffer(b"".join(documents), np.uint8).astype(np.uint64)
        depth_J, context_J = _depths(documents), np.zeros(len(text_J), np.uint64)
        node_J = np.zeros(len(text_J), np.int64)
        alive = np.arange(len(text_J))
        for k in range(1, len(self.keys)):
            if not len(self.keys[k]):
                break
            context_J = _longer(context_J, text_J, k)
            # a longer context is known only where the shorter one is
            alive = alive[depth_J[alive] >= k]
            place = np.searchsorted(self.keys[k], context_J[alive])
            place = np.minimum(place, len(self.keys[k]) - 1)
            found = self.keys[k][place] == context_J[alive]
            alive = alive[found]
            node_J[alive] = self.begin[k] + place[found]
        return node_J

    def distributions(self, node_B: np.ndarray) -> np.ndarray:
        """p_BC, float64: P(next byte | context) of some nodes of one order."""
        chain = [node_B]
        while chain[-1][0] != 0:
            chain.append(self.parent_N[chain[-1]])
        p_BC = np.full((len(node_B), 256), 1 / 256)
        for at_B in reversed(chain):
            first_B, size_B = self.first_N[at_B], self.first_N[at_B + 1] - self.first_N[at_B]
            row = np.repeat(np.arange(len(at_B)), size_B)
            ends_B = np.cumsum(size_B)
            follower = np.arange(ends_B[-1]) + np.repeat(first_B - (ends_B - size_B), size_B)
            count = self.count_E[follower]
            total_B = np.bincount(row, count, len(at_B)) + size_B
            p_BC *= (size_B / total_B)[:, None]
            p_BC[row, self.byte_E[follower]] += count / total_B[row]
        return p_BC

    def entropies(self) -> np.ndarray:
        """entropy_N, bits: of the next byte after every context."""
        entropy_N = np.empty(self.begin[-1])
        for begin, end in zip(self.begin, self.begin[1:], strict=False):
            for at in range(begin, end, NODES_AT_ONCE):
                node_B = np.arange(at, min(at + NODES_AT_ONCE, end))
                entropy_N[node_B] = entropy_bits(np.log(self.distributions(node_B)))
        return entropy_N
