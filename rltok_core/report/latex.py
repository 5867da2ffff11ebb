"""LaTeX that compiles whatever a name holds: every special sign escaped, the rest spelt out."""

import unicodedata

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "-": r"{-}",  # two in a row would become a dash
    "[": r"{[}",  # after \\ it would be an optional argument
    "]": r"{]}",
    "\u2212": r"$-$",
    "\u2013": r"\textendash{}",
    "\u0394": r"$\Delta$",
    "\u2020": r"\textdagger{}",
    "\u2021": r"\textdaggerdbl{}",
    "\u00a7": r"\S{}",
}


def escape(text: str) -> str:
    """Escape text for LaTeX; a character that pdflatex can't set is named by its code."""
    return "".join(_sign(sign) for sign in text)


def _sign(sign: str) -> str:
    if sign in _ESCAPES:
        return _ESCAPES[sign]
    if " " <= sign <= "~":
        return sign
    if sign.isspace():
        return " "
    # e acute -> e: T1 could set it, but not every letter; a plain base letter always compiles
    base = unicodedata.normalize("NFKD", sign)[0]
    return base if base.isascii() and base.isalnum() else f"[U+{ord(sign):04X}]"


def _tabular(title: str, header: list[str], lines: list[list[str]]) -> str:
    body = [r"\begin{tabular}{l" + "r" * (len(header) - 1) + "}", r"\toprule"]
    body.append(rf"\multicolumn{{{len(header)}}}{{l}}{{\textbf{{{escape(title)}}}}} \\ \midrule")
    body.append(" & ".join(map(escape, header)) + r" \\ \midrule")
    body += [" & ".join(map(escape, line)) + r" \\" for line in lines]
    return "\n".join([*body, r"\bottomrule", r"\end{tabular}"])


def document(
    tables: list[tuple[str, list[str], list[list[str]]]], caption: str, notes: list[str]
) -> str:
    """A document of its own with one tabular a corpus under one caption.

    Args:
        tables: (title, header, lines) of each.
        caption: plain text, escaped here.
        notes: lines to print below, such as failed runs.
    """
    fitted = "\n\n\\medskip\n".join(
        f"\\resizebox{{\\linewidth}}{{!}}{{%\n{_tabular(*table)}}}" for table in tables
    )
    below = "".join(f"\\item {escape(note)}\n" for note in notes)
    if below:
        title = "\\par\\footnotesize Failed or missing runs:"
        below = f"{title}\n\\begin{{itemize}}\n{below}\\end{{itemize}}\n"
    return rf"""\documentclass{{article}}
\usepackage[T1]{{fontenc}}
\usepackage{{textcomp,booktabs,graphicx}}
\usepackage[margin=2cm]{{geometry}}
\begin{{document}}
\begin{{table}}
\caption{{{escape(caption)}}}
\centering
{fitted}
\end{{table}}
{below}\end{{document}}
"""
