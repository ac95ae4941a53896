"""`sagactl config`: each setting, and where it came from."""

from __future__ import annotations

import typer

from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.config import list_values, render_config, write_config
from sagactl.config import find_files
from sagactl.errors import ExitCode

app = make_app()


@app.command()
def config(context: typer.Context) -> int:
    """Show each setting and where it came from: flag, environment, project, user, default.

    Secrets are shown as where they come from, never as what they are; passwords and paths of URLs are left out.

    Examples:
      sagactl config

      sagactl config --log /tmp/other.db -o json
    """
    with open_session(context) as session:
        found = session.app.config
        values = list_values(found)
        files = [(origin, str(file)) for origin, file in find_files(found.project if found.has_project else None)]
        if session.output is Output.TEXT:
            write_line(answer_stream(), render_config(found, values, files, session.style))
        else:
            write_document(write_config(found, values, files))
        return ExitCode.OK
