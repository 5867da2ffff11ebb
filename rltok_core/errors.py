"""The one error that users see: a message that names the file, line or key, and an exit code.

Everything that is the user's to mend (a missing file, a misspelt key, a damaged checkpoint)
raises UserError; the command line prints the message without a traceback and exits with `code`.
"""

EXIT_USER = 2  # wrong input
EXIT_NOT_FINITE = 3  # a loss or a gradient that is not finite
EXIT_LOCKED = 4  # another process holds the run folder
EXIT_RANK_LOST = 5  # another process of the run has died; run me again
EXIT_REQUEUE = 75  # EX_TEMPFAIL: saved on a signal, run me again


class UserError(Exception):
    """A fault with one clear message; `code` is the exit status of the command."""

    def __init__(self, message: str, code: int = EXIT_USER):
        super().__init__(message)
        self.code = code
