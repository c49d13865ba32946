"""Every command of `bascule`."""

COMMANDS = [
    ["serve"], ["status"],
    ["stream", "create"], ["stream", "list"], ["stream", "show"], ["stream", "edit"], ["stream", "pause"],
    ["stream", "resume"], ["stream", "readonly"], ["stream", "delete"], ["stream", "trim"], ["stream", "purge"],
    ["produce"], ["consume"], ["cursor", "get"], ["cursor", "list"], ["cursor", "set"], ["cursor", "forget"],
    ["group", "list"], ["group", "show"], ["group", "members"], ["group", "reset"], ["group", "delete"], ["bench"],
    ["sink", "list"], ["sink", "show"], ["sink", "delete"], ["sink", "skip"], ["sink", "owner"], ["sink", "quota"],
    ["spark", "doctor"], ["spark", "ddl"],
    ["pipeline", "run"], ["pipeline", "plan"], ["pipeline", "validate"], ["pipeline", "schema"],
    ["log", "verify"], ["log", "inspect"],
    ["log", "repair"], ["context", "add"], ["context", "list"],
    ["context", "show"], ["context", "use"], ["context", "remove"], ["config", "show"], ["config", "check"],
    ["config", "import"], ["completion"], ["version"],
]  # fmt: skip
