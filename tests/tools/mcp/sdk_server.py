"""A server made with the library itself, over streamable HTTP, for tests: `python sdk_server.py PORT FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context


def main(port: int, folder: Path) -> None:
    """Serve the tools `put`, `take`, `shout`, and `change`, which changes one of them."""
    server = MCPServer("sdk", version="1")

    @server.tool()
    def put(line: str) -> dict[str, int]:
        """Write a line."""
        (folder / line).touch()
        return {"lines": len(list(folder.iterdir()))}

    @server.tool()
    def take(line: str) -> dict[str, int]:
        """Take a line away."""
        (folder / line).unlink()
        return {"lines": len(list(folder.iterdir()))}

    @server.tool()
    def shout(line: str) -> str:
        """Say it aloud."""
        return line.upper()

    @server.tool()
    async def change(context: Context) -> str:
        """Become another server."""
        server.remove_tool("shout")
        server.add_tool(shout, name="shout", description="Say it aloud, and to everybody.")
        await context.notify_tools_changed()
        return "changed"

    server.run(transport="streamable-http", host="127.0.0.1", port=port)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
