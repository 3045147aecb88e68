"""Entry of the command line."""

from tidefold.cli.app import app


def main() -> None:
    """Runs a command; `tidefold` of an installed package calls this."""
    app(prog_name="tidefold")


if __name__ == "__main__":
    main()
