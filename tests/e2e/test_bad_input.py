# SPDX-License-Identifier: Apache-2.0
"""Bad flags and arguments of both programs: an error that names them, the documented exit code, nothing changed."""
from __future__ import annotations

import pathlib
import re
from typing import Iterator

import pytest
import support
from support import fails_to_start, penstock

NOT_FOUND, USAGE, NO_SPACE, NOT_ALLOWED, UNREACHABLE, CORRUPT, OTHER = range(1, 8)
LONG = "k" * 4097
HUGE = "99999999999999999999"  # above 2^64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Files that are wrong, each in its way."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "file").write_bytes(b"1")
    (folder / "empty").write_bytes(b"")
    (folder / "list").write_text(f"{folder}/absent\n")
    (folder / "list of folders").write_text(f"{folder}\n")
    (folder / "zero byte").write_bytes(b"dram\0 = 16M\n")
    (folder / "zero byte at the end").write_bytes(b"dram = 16M\nshards = 1\0more = 7")
    (folder / "long line").write_text("unix = " + 5000 * "x")
    support.secret_file(folder / "loose", mode=0o640)
    support.secret_file(folder / "no secret", "\n")
    support.secret_file(folder / "long secret", 5000 * "x")
    return folder


@pytest.fixture(scope="module")
def url(folder: pathlib.Path) -> Iterator[str]:
    with support.start_node("--unix", f"{folder}/socket", "--dram", "16M") as node:
        url = f"node+unix://{folder}/socket"
        assert penstock("--url", url, "put", "old", stdin=b"old").returncode == 0
        yield url
        node.stop()


def in_folder(arguments: list[str | bytes], folder: pathlib.Path) -> list[str | bytes]:
    return [word.replace("FOLDER", str(folder)) if isinstance(word, str) else word for word in arguments]


def expect(arguments: list[str | bytes], code: int, words: list[str], url: str, folder: pathlib.Path) -> None:
    before = penstock("--url", url, "dump")
    done = penstock("--url", url, *in_folder(arguments, folder), stdin=b"1")
    lines = done.stderr.decode(errors="replace").splitlines(keepends=True)
    said = "".join(line for line in lines if not re.search("WARNING: (Address|Thread)Sanitizer", line))
    assert done.returncode == code, done
    assert said.startswith("penstock: ") and all(word in said for word in in_folder(words, folder)), said
    assert before.returncode == 0 and penstock("--url", url, "dump").stdout == before.stdout


@pytest.mark.parametrize("arguments,words", [
    ([], ["no command"]),
    (["--"], ["no command"]),
    ([""], ["unknown command ''"]),
    (["GET", "old"], ["unknown command 'GET'"]),
    ([b"\xff\xfe"], ["unknown command '"]),
    (["ping", "--nothing"], ["unknown option '--nothing'"]),
    (["ping", "--nothing=3"], ["unknown option '--nothing=3'"]),
    (["ping", "--=3"], ["unknown option '--=3'"]),
    (["ping", b"--\xff"], ["unknown option '--"]),
    # how many arguments
    (["put"], ["put takes KEY [FILE|-], or --files"]),
    (["put", "a", "FOLDER/file", "c"], ["put takes"]),
    (["put", "a", "--files", "FOLDER/list"], ["put takes"]),
    (["get"], ["get takes KEY"]),
    (["get", "a", "b", "c"], ["get takes KEY"]),
    (["get", "old", "--files", "FOLDER/list"], ["get takes KEY [FILE|-], or --files"]),
    (["ls", "a", "b"], ["ls takes [PREFIX]"]),
    (["rm"], ["rm takes KEY..., or --prefix"]),
    (["rm", "old", "--prefix", "o"], ["rm takes"]),
    (["stat", "a", "b"], ["stat takes [KEY]"]),
    (["ping", "a"], ["ping takes no arguments"]),
    (["ping", "-j"], ["ping takes no arguments"]),
    (["clear", "old"], ["clear takes no arguments"]),
    (["dump", "a", "b", "c"], ["dump takes [PREFIX] [FILE|-]"]),
    (["load", "a", "b"], ["load takes [FILE|-]"]),
    (["watch", "a", "b"], ["watch takes [PREFIX]"]),
    (["bench", "a"], ["bench takes no arguments"]),
    # keys
    *[([command, ""], ["empty key"]) for command in ("put", "get", "rm", "stat")],
    *[([command, LONG], ["longer than 4096"]) for command in ("put", "get", "ls", "rm", "stat", "dump", "watch")],
    (["rm", "--prefix", LONG], ["longer than 4096"]),
    # numbers
    *[(["put", "old", f"--if-generation={text}"], ["if-generation: ", f"'{text}'"])
      for text in ("-1", "+1", " 1", "1x", "1K", "0x1", HUGE)],
    (["put", "old", "--if-generation="], ["if_generation: ''"]),
    (["rm", "old", "--if-generation="], ["if_generation: ''"]),
    (["rm", "old", "--if-generation", "one"], ["if-generation: 'one'"]),
    (["rm", "--prefix", "o", "--if-generation", "1"], ["--if-generation", "prefix"]),
    *[(["get", "old", f"--range={text}"], ["range: ", f"'{text}'"])
      for text in ("", "1", "1:", ":1", "-1:1", "0:-1", " 0:1", "0: 1", "+0:1", "0:1K", "0:1:2", f"0:{HUGE}", f"{HUGE}:0")],
    (["get", "old", "--range", "2:2"], ["'old'", "range outside"]),
    (["get", "old", "--range", "18446744073709551615:1"], ["'old'", "range outside"]),
    *[(["get", "absent", f"--wait={text}"], ["wait: ", f"'{text}'"])
      for text in ("", "-1", "1s", "1K", "2147483648", HUGE)],
    (["ping", "--timeout"], ["'--timeout' needs a value"]),
    *[(["ping", f"--timeout={text}"], ["timeout: ", text]) for text in ("", "0", "-1", "1s", "1K", "86400001", HUGE)],
    (["ping", "--timeout=1000", "--timeout=soon"], ["timeout: 'soon'"]),  # the last one counts
    *[(["bench", f"--size={text}"], ["size: ", text]) for text in ("", "-1", "1.5K", "1X", "1KiBi", "2T", HUGE)],
    *[(["bench", f"--{name}={text}"], [f"{name}: {text} is outside"]) for name, text in (
        ("keys", "0"), ("keys", "1000000001"), ("batch", "0"), ("batch", "4097"), ("inflight", "257"), ("seconds", "0"),
        ("seconds", "3601"))],
    # words
    (["put", "old", "--if-absent=perhaps"], ["if_absent: 'perhaps'"]),
    (["ping", "--json=2"], ["json: '2'"]),
    (["bench", "--op="], ["op: ''"]),
    (["bench", "--prefix", 300 * "p"], ["prefix: ", "240"]),
    (["bench", "--op", "dance"], ["op: 'dance'"]),
    (["put", "--files="], ["files: ''"]),
    (["rm", "--prefix="], ["prefix: ''"]),
    *[(["bench", "--until-full", f"--mix={text}"], ["mix: ", f"'{text}'"])
      for text in ("", "4K", "4K:", ":100", "x:100", "4K:99", "4K:100;", "1:5," * 20 + "1:1")],
    (["load", "--if-absent", "--replace", "FOLDER/empty"], ["--if-absent", "--replace"]),
    # addresses
    *[(["ping", "--url", text], [text]) for text in (
        "old", "http://127.0.0.1:7000", "mem:x", "mem://", "node://", "node://localhost", "node://127.0.0.1:",
        "node://127.0.0.1:0", "node://127.0.0.1:-1", "node://127.0.0.1:65536", "node://127.0.0.1:7x", "node://::1:7000",
        "node://[::1]", "node://[::1", "node://[::1]:65536", "node://[::1]:0", "node+unix://",
        "node://127.0.0.1:1?lane=red", "node://127.0.0.1:1?fabric=open")],
    (["ping", "--url", "node://" + 1000 * "x" + ":1"], ["address longer than"]),
    (["ping", "--url", "node+unix:///" + 120 * "x"], ["node+unix:///xxx", "too long"]),
    (["ping", "--url", "node://127.0.0.1:1?colour=red"], ["'colour'"]),
    (["ping", "--url", "node://127.0.0.1:1?timeout_ms"], ["'timeout_ms'"]),
    (["ping", "--url", "node://127.0.0.1:1?timeout_ms=-1"], ["timeout_ms: '-1'"]),
    (["ping", "--url", "mem:?dram=1"], ["dram: 1 "]),
    (["ping", "--url", "mem:?shards=0"], ["shards: 0 "]),
    (["ping", "--url", "mem:?dram=16M&dram=lots"], ["dram: 'lots'"]),
    # secrets
    (["ping", "--secret-file", "FOLDER/no secret"], ["FOLDER/no secret", "1 to 4096"]),
    (["ping", "--secret-file", "FOLDER/long secret"], ["FOLDER/long secret", "1 to 4096"]),
])
def test_usage(url: str, folder: pathlib.Path, arguments: list[str | bytes], words: list[str]) -> None:
    expect(arguments, USAGE, words, url, folder)


FLAGS = {"--long": "ls", "--wait=1": "get", "--range=0:1": "get", "--prefix=x": "rm put get bench", "--files=x": "put get",
         "--sha256": "get", "--if-absent": "put load", "--replace": "load", "--if-generation=1": "put rm",
         "--checksum": "put load", "--op=get": "bench", "--size=1": "bench", "--keys=1": "bench", "--batch=1": "bench",
         "--inflight=1": "bench", "--seconds=1": "bench", "--fill": "bench", "--mix=1:1": "bench", "--until-full": "bench"}
COMMANDS = {"put": ["k", "-"], "get": ["old"], "ls": [], "rm": ["absent"], "stat": [], "ping": [], "clear": [],
            "dump": ["", "/dev/null"], "load": ["/dev/null"], "watch": [], "bench": []}


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_of_other_commands(url: str, folder: pathlib.Path, flag: str) -> None:
    """They are refused by name, before anything is done, rather than passed over."""
    name = flag.split("=")[0]
    for command, arguments in COMMANDS.items():
        if command not in FLAGS[flag].split():
            expect([command, *arguments, flag], USAGE, [f"{command} does not take {name} "], url, folder)
    assert set(FLAGS[flag].split()) < set(COMMANDS)


@pytest.mark.parametrize("arguments,code,words", [
    *[(arguments, OTHER, [f"FOLDER/absent: No such file"]) for arguments in (
        ["put", "k", "FOLDER/absent"], ["put", "--files", "FOLDER/absent"], ["put", "--files", "FOLDER/list"],
        ["get", "--files", "FOLDER/absent"], ["load", "FOLDER/absent"], ["ping", "--secret-file", "FOLDER/absent"])],
    *[(arguments, OTHER, ["FOLDER: Is a directory"]) for arguments in (
        ["put", "k", "FOLDER"], ["put", "--files", "FOLDER"], ["get", "old", "FOLDER"], ["get", "--files", "FOLDER"],
        ["dump", "", "FOLDER"], ["load", "FOLDER"])],
    (["put", "--files", "FOLDER/list of folders"], OTHER, ["FOLDER: not a regular file"]),
    (["get", "--files", "FOLDER/list"], NOT_FOUND, ["FOLDER/absent: not found"]),
    (["get", "old", "FOLDER/absent/file"], OTHER, ["FOLDER/absent/file: No such file"]),
    (["dump", "", "FOLDER/absent/file"], OTHER, ["FOLDER/absent/file: No such file"]),
    (["get", "absent", "FOLDER/file"], NOT_FOUND, ["key 'absent': not found"]),
    (["stat", "absent"], NOT_FOUND, ["key 'absent': not found"]),
    (["rm", "absent"], NOT_FOUND, ["key 'absent': not found"]),
    (["put", "old", "FOLDER/file", "--if-absent"], OTHER, ["key 'old': exists already"]),
    (["put", "old", "FOLDER/file", "--if-generation", "1"], OTHER, ["key 'old': another generation"]),
    (["rm", "old", "--if-generation", "1"], OTHER, ["key 'old': another generation"]),
    (["load", "FOLDER/empty"], CORRUPT, ["FOLDER/empty", "ends too early"]),
    (["load", "FOLDER/list"], CORRUPT, ["FOLDER/list", "no dump of penstock"]),
    (["bench", "--size", "1T"], OTHER, ["no memory", "1099511627776 bytes"]),
    *[(["ping", "--secret-file", name], NOT_ALLOWED, [name, "0600"]) for name in ("FOLDER", "FOLDER/loose", "/dev/zero")],
    *[(["ping", "--url", address], UNREACHABLE, [address]) for address in (
        "node://127.0.0.1:1", "node://[::1]:1", "node+unix://FOLDER/absent", "node+unix://FOLDER", "node+unix://FOLDER/file")],
    (["ping", "--url", "node://192.0.2.1:7000"], NOT_ALLOWED, ["node://192.0.2.1:7000", "fabric=trusted"]),
])
def test_what_is_not_as_it_should_be(url: str, folder: pathlib.Path, arguments: list[str | bytes], code: int,
                                     words: list[str]) -> None:
    expect(arguments, code, words, url, folder)
    assert (folder / "file").read_bytes() == b"1"


LOOPBACK = ["--listen", "127.0.0.1:0"]
SMALL = ["--dram", "16M"]


@pytest.mark.parametrize("arguments,code,words", [
    *[([*SMALL, "--listen", text], USAGE, [f"listen {text}: "]) for text in (
        "here", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:65536", "127.0.0.1:7x", "::1:0", "[::1]",
        "[::1:0", "[::1]:65536")],
    *[([*SMALL, "--listen", text], 1, [f"listen {text}: "]) for text in ("192.0.2.7:0", "999.1.1.1:0", "[::g]:0")],
    ([*SMALL, "--unix", "/" + 120 * "x"], USAGE, ["unix path too long"]),
    *[([*SMALL, "--unix", text], 1, [f"unix://{text}: "]) for text in ("FOLDER", "FOLDER/file", "FOLDER/absent/socket")],
    *[([*LOOPBACK, "--dram", text], USAGE, ["dram: ", text]) for text in ("", "0", "17T", "1.5G", "4X", "-1", HUGE)],
    ([*LOOPBACK, "--dram", "16T"], 1, ["dram: ", "16777216 MiB"]),
    ([*LOOPBACK, *SMALL, "--page-size", "65537"], USAGE, ["page size 65537"]),
    ([*LOOPBACK, *SMALL, "--page-size", "1G"], USAGE, ["16777216 bytes hold no page"]),
    ([*LOOPBACK, *SMALL, "--arena-size", "1"], USAGE, ["arena of 1 bytes"]),
    *[([*LOOPBACK, *SMALL, f"--{name.replace('_', '-')}", text], USAGE, [f"{name}: ", text]) for name, text in (
        ("page_size", "2G"), ("shards", "-1"), ("shards", "257"), ("watermark", "9"), ("watermark", "95%"),
        ("sessions", "0"), ("requests", "15"), ("session_requests", "x"), ("session_reservations", "0"), ("session_pins", "-1"),
        ("session_pinned_bytes", "x"), ("waits", "0"), ("session_waits", "0"), ("watches", "65537"),
        ("session_watches", ""), ("slow_ms", "86400001"), ("spin_us", "1000001"))],
    *[([*LOOPBACK, *SMALL, "--class", text], USAGE, [f"class '{text[:200]}"]) for text in ("a", "a=gold", LONG + "=cache")],
    ([*LOOPBACK, *SMALL, *[word for number in range(65) for word in ("--class", f"{number}=cache")]], USAGE,
     ["class: more than 64"]),
    ([*LOOPBACK, *SMALL, "--fabric", "open"], USAGE, ["'open' is not 'trusted'"]),
    *[([*LOOPBACK, *SMALL, "--secret-file", text], code, [text]) for text, code in (
        ("FOLDER/absent", 1), ("FOLDER", 1), ("FOLDER/loose", 1), ("FOLDER/no secret", USAGE), ("FOLDER/long secret", USAGE))],
    *[([*LOOPBACK, *SMALL, "--folder", text], 1, [text]) for text in ("FOLDER/absent", "FOLDER/file")],
    ([*LOOPBACK, "--config", "FOLDER/absent"], USAGE, ["FOLDER/absent: No such file"]),
    ([*LOOPBACK, "--config", "FOLDER"], USAGE, ["FOLDER: Is a directory"]),
    ([*LOOPBACK, "--config", "FOLDER/zero byte"], USAGE, ["FOLDER/zero byte:1: a zero byte"]),
    ([*LOOPBACK, "--config", "FOLDER/zero byte at the end"], USAGE, ["FOLDER/zero byte at the end:2: a zero byte"]),
    ([*LOOPBACK, "--config", "FOLDER/long line"], USAGE, ["FOLDER/long line:1: ", "4094 bytes"]),
    ([*LOOPBACK, "--config"], USAGE, ["'--config' needs a value"]),
    ([*LOOPBACK, "--dram=16M", "--dram=lots"], USAGE, ["dram: 'lots'"]),
    *[([*LOOPBACK, *SMALL, text], USAGE, [f"'{text}' is not an option"]) for text in ("fast", "-d", "")],
    ([*LOOPBACK, *SMALL, "--"], USAGE, ["unknown option '--'"]),
])
def test_node(folder: pathlib.Path, arguments: list[str], code: int, words: list[str]) -> None:
    ended, log = fails_to_start(*in_folder(arguments, folder))
    assert ended == code and all(word in log for word in in_folder(words, folder)), (ended, log)
    assert (folder / "file").read_bytes() == b"1"
