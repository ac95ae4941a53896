"""`sagactl schema`: the JSON Schema of saga files, for editors."""

from __future__ import annotations

from importlib.resources import files

from sagactl.cli.options import make_app
from sagactl.cli.streams import answer_stream, write_line
from sagactl.errors import ExitCode

app = make_app()


@app.command()
def schema() -> int:
    """Print the JSON Schema of saga files.

    Examples:
      sagactl schema > saga.schema.json
    """
    text = (files("sagactl") / "spec" / "schema.json").read_text(encoding="utf-8")
    write_line(answer_stream(), text.rstrip())
    return ExitCode.OK
