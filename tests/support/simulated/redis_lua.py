"""Runs the product's own Lua scripts on the simulated commands."""

from functools import cache
from typing import Any

import msgspec
from lupa.lua51 import LuaRuntime

from simulated.redis_commands import OK, Commands
from simulated.redis_data import CommandError

_SOURCE = b"""function(run)
  local redis = {}
  function redis.call(...) return run(false, ...) end
  function redis.pcall(...) return run(true, ...) end
  function redis.status_reply(text) return {ok = text} end
  function redis.error_reply(text) return {err = text} end
  return redis
end"""


class _Engine:
    """One interpreter for all servers: scripts keep nothing between calls."""

    def __init__(self) -> None:
        self._lua = LuaRuntime(encoding=None, unpack_returned_tuples=False)
        self._commands: Commands
        self._redis = self._lua.eval(_SOURCE)(self._run)
        self._compile = self._lua.eval(b"function(text) return assert(loadstring(text)) end")
        self._functions: dict[str, Any] = {}
        self._msgpack = self._lua.table_from({b"unpack": self._unpacked})

    def script(self, commands: Commands, text: str, keys: list[bytes], args: list[bytes]) -> Any:
        """Run a script to its end. Raises what a command that it called raised."""
        function = self._functions.get(text)
        if function is None:
            source = b"local redis, cmsgpack, KEYS, ARGV = ...\n" + text.encode()
            function = self._functions[text] = self._compile(source)
        self._commands = commands
        table = self._lua.table_from
        return self._from_lua(function(self._redis, self._msgpack, table(keys), table(args)))

    def _run(self, protected: bool, *words: Any) -> Any:
        raw = list(words)
        for at, word in enumerate(raw):
            if type(word) is not bytes:
                raw[at] = _number(word)
        try:
            reply = self._commands.run(raw)
        except CommandError as error:
            if not protected:
                raise
            return self._lua.table_from({b"err": str(error).encode()})
        return reply if type(reply) is bytes or type(reply) is int else self._to_lua(reply)

    def _unpacked(self, packed: bytes) -> Any:
        return self._to_lua(msgspec.msgpack.decode(packed))

    def _to_lua(self, reply: Any) -> Any:
        if reply is None:
            return False
        if isinstance(reply, str):  # out of MessagePack: no reply has one
            return reply.encode()
        if reply is OK:
            return self._lua.table_from({b"ok": b"OK"})
        if isinstance(reply, list):
            return self._lua.table_from([self._to_lua(one) for one in reply])
        return reply

    def _from_lua(self, value: Any) -> Any:
        if value is None or value is False:
            return None
        if value is True:
            return 1
        if isinstance(value, bytes):
            return value
        if isinstance(value, int | float):
            return int(value)
        item = value[1]
        if item is None:
            if value[b"ok"] is not None:
                return OK
            if value[b"err"] is not None:
                raise CommandError(value[b"err"].decode())
        found: list[Any] = []
        while item is not None:
            found.append(item if type(item) is bytes else self._from_lua(item))
            item = value[len(found) + 1]
        return found


def _number(word: Any) -> bytes:
    if isinstance(word, float):
        return b"%d" % word if word == int(word) else b"%.17g" % word
    return b"%d" % word


@cache
def _engine() -> _Engine:
    return _Engine()


def run_script(commands: Commands, text: str, keys: list[bytes], args: list[bytes]) -> Any:
    """Run the script `text`. Raises `CommandError`."""
    return _engine().script(commands, text, keys, args)
