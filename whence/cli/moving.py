"""`whence move`: have a view at another broker, while it is followed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whence.cli.console import err, reported
from whence.cli.subscribing import TOKEN, read_token
from whence.model.errors import DataError


@reported
def move(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view to move.")],
    source: Annotated[str, typer.Option("--from", metavar="URL", help="The server that has it.")],
    target: Annotated[str, typer.Option("--to", metavar="URL", help="The server that is to have it.")],
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help=f"A file with your token (default: the variable {TOKEN})."),
    ] = None,
    to_token_file: Annotated[
        Path | None, typer.Option("--to-token-file", metavar="FILE", help="Your token at the other server, if another.")
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", min=0.0, metavar="SECONDS", help="For the other server to reflect as much.")
    ] = 60.0,
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="The certificate of the authority of the servers'.")
    ] = None,
) -> None:
    """Move a view over sources from one broker to another, while it is followed.

    The other one must have the sources and views that it reads. The view is made there. When it reflects as much,
    it is dropped here. Who follows it is told where it is: clients that know that server (also=, --also) go on there,
    and miss and repeat nothing.

    Example:

        whence move hourly --from http://127.0.0.1:8080 --to http://127.0.0.1:8081 --token-file token.txt
    """
    token = read_token(token_file)
    other = token if to_token_file is None else read_token(to_token_file)

    from whence.client.blocking import connect

    with connect(source, token=token, ca=ca) as here, connect(target, token=other, ca=ca) as there:
        quoted = '"' + view.lower().replace('"', '""') + '"'
        [(statement,)] = here.execute(f"SHOW DEFINITION {quoted}").rows
        with here.subscribe(view) as following:
            last = following.next(timeout=wait)
        if last is None or not last.reflects:
            raise DataError(f'"{view}" reads no source: a view is moved where the same sources are')
        there.execute(statement)
        try:
            follow = there.subscribe(view, have=last.position, rows=last.rows, reflects=last.reflects)
            with follow as arriving:
                found = arriving.next(timeout=wait)
            if found is None or not (found.reflects or {}).keys() >= last.reflects.keys():
                why = "has not reflected as much" if found is None else "reads other sources"
                raise DataError(f"the view at {target} {why}: nothing was moved")
        except BaseException:
            there.execute(f"DROP VIEW {quoted}")
            raise
        url = target.replace("'", "''")
        here.execute(f"DROP VIEW {quoted} MOVED TO '{url}'")
    err.print(f"{view} is at {target} now", soft_wrap=True)
