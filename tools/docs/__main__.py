"""Print generated parts of the documentation: `python -m tools.docs commands recipes`."""

import sys

from tools.docs import PARTS, find_part


def main() -> None:
    """Print the parts that are named, or the names of all."""
    names = sys.argv[1:]
    if not set(names) <= PARTS.keys() or not names:
        sys.exit(f"usage: python -m tools.docs PART...; parts: {', '.join(PARTS)}")
    for name in names:
        print(find_part(name)())


if __name__ == "__main__":
    main()
