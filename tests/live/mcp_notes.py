"""An MCP server of one tool, over stdio, for the agents of the live tests: `note` writes its text into noted.txt."""

import json
import sys

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOL = {"name": "note", "description": "Keeps a note.", "inputSchema": SCHEMA}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "notes", "version": "1"},
        }
    elif message["method"] == "tools/list":
        result = {"tools": [TOOL]}
    elif message["method"] == "tools/call":
        with open("noted.txt", "a") as file:
            file.write(message["params"]["arguments"]["text"])
        result = {"content": [{"type": "text", "text": "noted"}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
