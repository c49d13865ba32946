"""Every command of `bascule`."""

COMMANDS = [
    ["serve"], ["status"], ["cluster", "status"],
    ["stream", "create"], ["stream", "list"], ["stream", "show"], ["stream", "edit"], ["stream", "pause"],
    ["stream", "resume"], ["stream", "readonly"], ["stream", "delete"], ["stream", "trim"], ["stream", "purge"],
    ["produce"], ["consume"], ["cursor", "get"], ["cursor", "list"], ["cursor", "set"], ["cursor", "forget"],
    ["group", "list"], ["group", "show"], ["group", "members"], ["group", "reset"], ["group", "delete"], ["bench"],
    ["sink", "list"], ["sink", "show"], ["sink", "delete"], ["sink", "skip"], ["sink", "owner"], ["sink", "quota"],
    ["iggy", "users", "list"], ["iggy", "users", "create"], ["iggy", "users", "delete"], ["iggy", "users", "password"],
    ["iggy", "users", "status"], ["iggy", "users", "permissions"],
    ["iggy", "tokens", "list"], ["iggy", "tokens", "create"], ["iggy", "tokens", "delete"],
    ["spark", "doctor"], ["spark", "ddl"], ["spark", "replay"], ["spark", "copy"], ["spark", "redrive"],
    ["spark", "init"], ["spark", "run"], ["archive", "erase"],
    ["pipeline", "run"], ["pipeline", "plan"], ["pipeline", "validate"], ["pipeline", "schema"],
    ["log", "verify"], ["log", "inspect"], ["lag"], ["hold", "release"],
    ["log", "repair"], ["context", "add"], ["context", "list"],
    ["context", "show"], ["context", "use"], ["context", "remove"], ["config", "show"], ["config", "check"],
    ["config", "import"], ["completion"], ["version"],
]  # fmt: skip
