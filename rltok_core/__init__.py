"""rltok: a reproducibility harness for learned tokenization (Dauncey & Wattenhofer, ICML 2026)."""

__version__ = "0.1.0"
