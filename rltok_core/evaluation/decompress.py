"""`rltok decompress`: give back, bit for bit, the file that `rltok compress` coded.

rltok decompress --run results/runs/ID FILE.rltok --out FILE
"""

from rltok_core.evaluation.compress import open_subject, read_arguments, read_file
from rltok_core.evaluation.compression import decompress
from rltok_core.evaluation.text import open_hints
from rltok_core.files import write_whole
from rltok_core.training.signals import StopSignals


def main(argv: list[str]) -> int:
    """Write the file; nothing is written unless its sha256 is the one that was coded."""
    arguments = read_arguments(argv, "decompress", __doc__)
    packed, subject = read_file(arguments.file), open_subject(arguments)
    hints = open_hints(subject.run, arguments.data, arguments.prepared)
    with StopSignals() as stop:
        file = decompress(subject, hints, packed, str(arguments.file), stop.check)
        write_whole(arguments.out, file)
    print(f"{arguments.file}: {len(file)} bytes, sha256 as coded, at {arguments.out}")
    return 0
