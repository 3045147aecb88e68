"""Entry of the command line."""

from tidefold.cli.app import app

if __name__ == "__main__":
    app(prog_name="tidefold")
