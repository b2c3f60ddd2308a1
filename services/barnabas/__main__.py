"""`python -m barnabas` is the command `barnabas`."""

from __future__ import annotations

from barnabas.cli.__main__ import main

if __name__ == "__main__":
    main()
