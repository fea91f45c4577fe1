"""`python -m rhumbline` is `rhumb`."""

from rhumbline.cli import main

if __name__ == "__main__":
    main()
