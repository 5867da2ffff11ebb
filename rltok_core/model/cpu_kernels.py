"""Loops compiled by numba for float32 on the CPU: one pass over memory where PyTorch makes many.

At the laptop's width (64 channels) a matmul is cheap and every element-wise pass counts. Each
function here does the whole of a norm, a GeGLU, an attention row or a cross-entropy in cache, on
one thread, into arrays that the caller made. Gradients are written out by hand; functions.py wraps
the pairs as autograd functions.

`_exp` is a polynomial after range reduction and `_tanh` a polynomial near zero (Cephes' expf and
tanhf, errors below 2 units in the last place), so that LLVM vectorises the loops that call them.

Shapes: N rows, D width, F MLP width, C classes, B rows of a batch, S positions (bytes or tokens),
H heads, d head size, h = d / 2, W window.
"""

import math

import numba
import numpy as np
from llvmlite import ir
from numba import float32, int32
from numba.extending import intrinsic

# a sum may be reordered, which vectorises it; nothing is assumed to be finite
FAST = {"reassoc", "contract", "nsz", "arcp"}

compiled = numba.njit(cache=True, fastmath=FAST, error_model="numpy", nogil=True)

ONE, HALF, TWO = np.float32(1), np.float32(0.5), np.float32(2)
NEAR = np.float32(0.625**2)
LOG2E = np.float32(1.4426950408889634)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
GELU_SLOPE = np.float32(2 * math.sqrt(2 / math.pi))
GELU_CUBE = np.float32(0.044715)
GELU_CUBE3 = np.float32(3 * 0.044715)


@intrinsic
def _float_of_bits(typing, bits):
    """The float32 with these 32 bits."""

    def build(context, builder, signature, args):
        return builder.bitcast(args[0], ir.FloatType())

    return float32(int32), build


@compiled
def _exp(x):
    """e^x, with x clamped to -87..88, beyond which a float32 leaves its normal range."""
    # not min and max, which may drop a NaN
    x = np.float32(88.0) if x > np.float32(88.0) else x
    x = np.float32(-87.0) if x < np.float32(-87.0) else x
    n = np.floor(x * LOG2E + HALF)  # math.floor gives an int64, which AVX2 can't vectorise
    r = x - n * LN2_HIGH - n * LN2_LOW
    y = np.float32(1.9875691500e-4)
    y = y * r + np.float32(1.3981999507e-3)
    y = y * r + np.float32(8.3334519073e-3)
    y = y * r + np.float32(4.1665795894e-2)
    y = y * r + np.float32(1.6666665459e-1)
    y = y * r + np.float32(5.0000001201e-1)
    y = y * r * r + r + ONE
    return y * _float_of_bits((int32(n) + int32(127)) << int32(23))


@compiled
def _tanh_near_zero(x):
    """tanh for x^2 < NEAR."""
    z = x * x
    y = np.float32(-5.70498872745e-3)
    y = y * z + np.float32(2.06390887954e-2)
    y = y * z + np.float32(-5.37397155531e-2)
    y = y * z + np.float32(1.33314422036e-1)
    y = y * z + np.float32(-3.33332819422e-1)
    return y * z * x + x


@compiled
def _tanh(x):
    near = _tanh_near_zero(x)
    far = ONE - TWO / (_exp(TWO * abs(x)) + ONE)
    far = -far if x < 0 else far
    return near if x * x < NEAR else far


@compiled
def rms_norm_forward(x_ND, weight_D, eps, residual_ND, y_ND, scale_N):
    """y = residual + x * scale * (1 + weight), scale = (mean(x^2) + eps)^-1/2.

    A residual without rows counts as zero.
    """
    add = residual_ND.shape[0] > 0
    rows, width = x_ND.shape
    for n in range(rows):
        square = np.float32(0)
        for d in range(width):
            square += x_ND[n, d] * x_ND[n, d]
        scale = ONE / np.sqrt(square / np.float32(width) + eps)
        scale_N[n] = scale
        if add:
            for d in range(width):
                y_ND[n, d] = residual_ND[n, d] + x_ND[n, d] * scale * (ONE + weight_D[d])
        else:
            for d in range(width):
                y_ND[n, d] = x_ND[n, d] * scale * (ONE + weight_D[d])


@compiled
def rms_norm_backward(g_ND, x_ND, weight_D, scale_N, dx_ND, dweight_D):
    """dweight_D is float64 and starts at zero: a sum over thousands of rows."""
    rows, width = x_ND.shape
    for n in range(rows):
        scale = scale_N[n]
        along = np.float32(0)
        for d in range(width):
            along += g_ND[n, d] * (ONE + weight_D[d]) * x_ND[n, d]
        along *= scale * scale * scale / np.float32(width)
        for d in range(width):
            g = g_ND[n, d]
            dweight_D[d] += g * x_ND[n, d] * scale
            dx_ND[n, d] = g * (ONE + weight_D[d]) * scale - x_ND[n, d] * along


@compiled
def geglu_forward(gate_up_NF, out_NF):
    """gelu(gate) * up, with 0.5 (1 + tanh u) = sigmoid(2 u)."""
    rows, width = out_NF.shape
    for n in range(rows):
        for f in range(width):
            x = gate_up_NF[n, f]
            share = ONE / (ONE + _exp(-GELU_SLOPE * (x + GELU_CUBE * x * x * x)))
            out_NF[n, f] = x * share * gate_up_NF[n, f + width]


@compiled
def geglu_backward(g_NF, gate_up_NF, dgate_up_NF):
    rows, width = g_NF.shape
    for n in range(rows):
        for f in range(width):
            x, up, g = gate_up_NF[n, f], gate_up_NF[n, f + width], g_NF[n, f]
            inverse = _exp(-GELU_SLOPE * (x + GELU_CUBE * x * x * x))
            share = ONE / (ONE + inverse)
            slope = GELU_SLOPE * (ONE + GELU_CUBE3 * x * x)
            # inverse * share is 1 - share without the cancellation
            dgate_up_NF[n, f] = g * up * share * (ONE + x * inverse * share * slope)
            dgate_up_NF[n, f + width] = g * x * share


@compiled
def cross_entropy_forward(logits_NC, target_N, logp_N, total_N):
    """logp of the target class, and the log of the sum of exponentials."""
    rows, classes = logits_NC.shape
    for n in range(rows):
        top = logits_NC[n, 0]
        for c in range(classes):
            top = logits_NC[n, c] if logits_NC[n, c] > top else top
        total = np.float32(0)
        for c in range(classes):
            total += _exp(logits_NC[n, c] - top)
        total_N[n] = top + np.log(total)
        logp_N[n] = logits_NC[n, target_N[n]] - total_N[n]


@compiled
def cross_entropy_backward(g_N, logits_NC, target_N, total_N, dlogits_NC):
    rows, classes = logits_NC.shape
    for n in range(rows):
        g, total = g_N[n], total_N[n]
        for c in range(classes):
            dlogits_NC[n, c] = -g * _exp(logits_NC[n, c] - total)
        dlogits_NC[n, target_N[n]] += g


# The last index of an array below is always a bare loop variable: numba guards any sum against
# being negative, and the guard keeps LLVM from vectorising the loop.


@compiled
def _turn(source, n, head, table, position, scale, target, m, to_head):
    """Rotate a head's channel pairs (2j, 2j + 1) by table (cosines, then sines), times scale."""
    half = table.shape[1] // 2
    for j in range(half):
        cos, sin = table[position, j] * scale, table[position, half + j] * scale
        x, y = source[n, head, 2 * j], source[n, head, 2 * j + 1]
        target[m, to_head, 2 * j] = x * cos - y * sin
        target[m, to_head, 2 * j + 1] = x * sin + y * cos


@compiled
def _turn_back(source, n, head, table, position, scale, target, m, to_head):
    """The gradient of _turn; source and target may be the same."""
    half = table.shape[1] // 2
    for j in range(half):
        cos, sin = table[position, j] * scale, table[position, half + j] * scale
        x, y = source[n, head, 2 * j], source[n, head, 2 * j + 1]
        target[m, to_head, 2 * j] = x * cos + y * sin
        target[m, to_head, 2 * j + 1] = y * cos - x * sin


@compiled
def local_attention_forward(qkv, table, length, scale, softcap, qk, capped, weight, out):
    """Rotation, scores over the window, soft cap, softmax and mixing, for rows of `length` bytes.

    qkv is (N, 3 H, d), qk (N, 2 H, d) receives the turned q and k, out is (N, H, d); capped and
    weight are (N, H, W): entry w is the key w bytes back, 0 before the first byte.
    """
    heads, window, size = weight.shape[1], weight.shape[2], out.shape[2]
    for first in range(0, out.shape[0], length):
        for n in range(first, first + length):
            keys = min(window, n - first + 1)
            for h in range(heads):
                _turn(qkv, n, h, table, n - first, scale, qk, n, h)
                _turn(qkv, n, heads + h, table, n - first, ONE, qk, n, heads + h)
                for w in range(keys):
                    score = np.float32(0)
                    for d in range(size):
                        score += qk[n, h, d] * qk[n - w, heads + h, d]
                    capped[n, h, w] = score / softcap
                for w in range(keys, window):
                    capped[n, h, w] = 0
        # a window is too short to vectorise over: the whole row at once
        row = capped[first : first + length].reshape(-1)
        row_weight = weight[first : first + length].reshape(-1)
        for m in range(row.size):
            row[m] = _tanh(row[m])
            row_weight[m] = _exp(softcap * row[m])
        for n in range(first, first + length):
            keys = min(window, n - first + 1)
            for h in range(heads):
                total = np.float32(0)
                for w in range(keys):
                    total += weight[n, h, w]
                total = ONE / total
                for d in range(size):
                    out[n, h, d] = 0
                for w in range(keys):
                    share = weight[n, h, w] * total
                    weight[n, h, w] = share
                    for d in range(size):
                        out[n, h, d] += share * qkv[n - w, 2 * heads + h, d]
                for w in range(keys, window):
                    weight[n, h, w] = 0


@compiled
def local_attention_backward(g, qkv, table, length, scale, qk, capped, weight, dqkv):
    """The gradient of qkv from that of out."""
    heads, window, size = weight.shape[1], weight.shape[2], g.shape[2]
    dweight_W = np.empty(window, np.float32)
    for first in range(0, g.shape[0], length):
        dqkv[first : first + length] = 0
        for n in range(first, first + length):
            keys = min(window, n - first + 1)
            for h in range(heads):
                mean = np.float32(0)
                for w in range(keys):
                    share, dshare = weight[n, h, w], np.float32(0)
                    for d in range(size):
                        dshare += g[n, h, d] * qkv[n - w, 2 * heads + h, d]
                    for d in range(size):
                        dqkv[n - w, 2 * heads + h, d] += share * g[n, h, d]
                    dweight_W[w] = dshare
                    mean += share * dshare
                for w in range(keys):
                    slope = ONE - capped[n, h, w] * capped[n, h, w]
                    dscore = weight[n, h, w] * (dweight_W[w] - mean) * slope
                    for d in range(size):
                        dqkv[n, h, d] += dscore * qk[n - w, heads + h, d]
                    for d in range(size):
                        dqkv[n - w, heads + h, d] += dscore * qk[n, h, d]
        for n in range(first, first + length):
            for h in range(heads):
                _turn_back(dqkv, n, h, table, n - first, scale, dqkv, n, h)
                _turn_back(dqkv, n, heads + h, table, n - first, ONE, dqkv, n, heads + h)


@compiled
def split_heads(qkv, table, scale, q, k, v):
    """qkv (B S, 3 H, d) -> turned q and k and plain v, (B H, S, d); table has a row a token."""
    heads, length, size = qkv.shape[1] // 3, q.shape[1], q.shape[2]
    for n in range(qkv.shape[0]):
        for h in range(heads):
            m, i = n // length * heads + h, n % length
            _turn(qkv, n, h, table, n, scale, q, m, i)
            _turn(qkv, n, heads + h, table, n, ONE, k, m, i)
            for d in range(size):
                v[m, i, d] = qkv[n, 2 * heads + h, d]


@compiled
def merge_heads(dq, dk, dv, table, scale, dqkv):
    """The gradient of split_heads."""
    heads, length, size = dqkv.shape[1] // 3, dq.shape[1], dq.shape[2]
    for n in range(dqkv.shape[0]):
        for h in range(heads):
            m, i = n // length * heads + h, n % length
            _turn_back(dq, m, i, table, n, scale, dqkv, n, h)
            _turn_back(dk, m, i, table, n, ONE, dqkv, n, heads + h)
            for d in range(size):
                dqkv[n, 2 * heads + h, d] = dv[m, i, d]


@compiled
def causal_softmax_forward(score_NSS, softcap, weight_NSS):
    """Softmax of the capped scores over keys j <= i; score becomes tanh(score / softcap)."""
    rows, length, _ = score_NSS.shape
    for n in range(rows):
        for i in range(length):
            square, total = np.float32(0), np.float32(0)
            for j in range(i + 1):
                score_NSS[n, i, j] /= softcap
                square += score_NSS[n, i, j] * score_NSS[n, i, j]
            if square < NEAR:  # then every one of them is: the usual case, and half the work
                for j in range(i + 1):
                    score_NSS[n, i, j] = _tanh_near_zero(score_NSS[n, i, j])
            else:
                for j in range(i + 1):
                    score_NSS[n, i, j] = _tanh(score_NSS[n, i, j])
            for j in range(i + 1):
                share = _exp(softcap * score_NSS[n, i, j])
                weight_NSS[n, i, j] = share
                total += share
            total = ONE / total
            for j in range(i + 1):
                weight_NSS[n, i, j] *= total
            for j in range(i + 1, length):
                weight_NSS[n, i, j] = 0


@compiled
def causal_softmax_backward(dweight_NSS, capped_NSS, weight_NSS):
    """The gradient of the scores, written over dweight_NSS."""
    rows, length, _ = weight_NSS.shape
    for n in range(rows):
        for i in range(length):
            mean = np.float32(0)
            for j in range(i + 1):
                mean += weight_NSS[n, i, j] * dweight_NSS[n, i, j]
            for j in range(i + 1):
                slope = ONE - capped_NSS[n, i, j] * capped_NSS[n, i, j]
                dweight_NSS[n, i, j] = weight_NSS[n, i, j] * (dweight_NSS[n, i, j] - mean) * slope
            for j in range(i + 1, length):
                dweight_NSS[n, i, j] = 0
