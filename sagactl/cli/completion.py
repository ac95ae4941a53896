"""`sagactl completion SHELL`: the script that has the shell ask us what could stand at the cursor."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from sagactl.cli.options import Globals, Output, make_app
from sagactl.cli.streams import answer_stream, write_line
from sagactl.errors import UsageError

app = make_app()

_BASH: Final = r"""
_sagactl() {
    local word
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("$word")
    done < <(_SAGACTL_COMPLETE=bash "$1" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o bashdefault -o default -o nosort -F _sagactl sagactl 2>/dev/null ||
    complete -o bashdefault -o default -F _sagactl sagactl
"""
_ZSH: Final = r"""#compdef sagactl
_sagactl() {
    local -a found
    found=("${(@f)$(_SAGACTL_COMPLETE=zsh "${words[1]}" "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then
        _describe -V 'sagactl' found
    else
        _files
    fi
}
if [[ "${zsh_eval_context[-1]}" == loadautofunc ]]; then
    _sagactl "$@"
else
    compdef _sagactl sagactl
fi
"""
_FISH: Final = r"""
function __sagactl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program $words[1]
    set -e words[1]
    set -l found (_SAGACTL_COMPLETE=fish $program $words "$current" 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete -c sagactl -f -k -a '(__sagactl_complete)'
"""
COMPLETION_SCHEMA: Final = "sagactl.completion/1"
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


@app.command()
def completion(
    context: typer.Context,
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a script that completes commands, options, ids of runs, sagas, steps and tools in your shell.

    Examples:
      sagactl completion bash > ~/.local/share/bash-completion/completions/sagactl

      sagactl completion zsh > ~/.zfunc/_sagactl

      sagactl completion fish > ~/.config/fish/completions/sagactl.fish
    """
    if shell not in SCRIPTS:
        raise UsageError(f"no script for {shell}", code="no-such-shell", hint=f"known: {', '.join(SCRIPTS)}")
    script = SCRIPTS[shell].strip()
    if context.ensure_object(Globals).output is Output.TEXT:
        write_line(answer_stream(), script)
        return
    from sagactl.cli.answer import write_document

    write_document({"schema": COMPLETION_SCHEMA, "completion": {"shell": shell, "script": script}, "error": None})
