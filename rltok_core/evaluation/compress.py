"""`rltok compress`: code a file by a trained model, losslessly.

    rltok compress --run results/runs/ID FILE --out FILE.rltok

Methods that are given boundaries (bpe_causal, entropy) also need --prepared (and entropy --data).
Says how many bits evaluation gives the same bytes. `rltok decompress` is the way back.
"""

import argparse
from pathlib import Path

from rltok_core.errors import UserError
from rltok_core.evaluation.compression import compress, evaluation_bits, refuse_look_ahead
from rltok_core.evaluation.subject import Subject, load_trained
from rltok_core.evaluation.text import open_hints
from rltok_core.files import write_whole
from rltok_core.training.signals import StopSignals
from rltok_core.training.trainer import set_up_device


def read_arguments(argv: list[str], command: str, text: str) -> argparse.Namespace:
    """The arguments that compress and decompress share."""
    parser = argparse.ArgumentParser(prog=f"rltok {command}", description=text.split("\n")[0])
    parser.add_argument("file", type=Path, help=f"the file to {command}")
    parser.add_argument("--run", type=Path, required=True, help="the folder of a finished run")
    parser.add_argument("--data", type=Path, help="the run's data folder, where hints need it")
    parser.add_argument("--prepared", type=Path, help="what `rltok prepare` made for this run")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the run's own")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    return parser.parse_args(argv)


def read_file(path: Path) -> bytes:
    """Its bytes. Raises UserError if it can't be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def open_subject(arguments: argparse.Namespace) -> Subject:
    """The run's model, its device set up. Raises UserError if it looks ahead."""
    subject = load_trained(arguments.run)
    refuse_look_ahead(subject)
    if arguments.device is not None:
        subject = subject.on(arguments.device)
    set_up_device(subject.run)
    return subject


def main(argv: list[str]) -> int:
    """Write the coded file and say how its size compares with evaluation's bits."""
    arguments = read_arguments(argv, "compress", __doc__)
    file, subject = read_file(arguments.file), open_subject(arguments)
    hints = open_hints(subject.run, arguments.data, arguments.prepared)
    with StopSignals() as stop:
        header, code = compress(subject, hints, file, stop.check)
        write_whole(arguments.out, header + code)
    said = f"{arguments.file}: {len(file)} bytes -> {len(header) + len(code)} at {arguments.out}"
    if file:
        bits, expected = 8 * len(code), evaluation_bits(subject, hints, file)
        whole = bits + 8 * len(header)
        said += (
            f"\ncode {bits} bits, {bits / len(file):.4f} a byte ({bits / expected - 1:+.3%} against"
            f" evaluation's {expected:.1f}, {expected / len(file):.4f} a byte); with the header"
            f" {whole} ({whole / expected - 1:+.3%})"
        )
    print(said)
    return 0
