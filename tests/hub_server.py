"""A hub on this machine that speaks the hub's protocol for reading.

It misbehaves where a test says so.

It has what huggingface_hub asks for: `/api/models/NAME/revision/REV`, HEAD and GET of
`NAME/resolve/REV/FILE` with ETag (SHA-256 of large files, Git's hash of small ones), commit,
ranges, and a redirect of large files to another place.
"""

import contextlib
import hashlib
import json
import threading
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

PIECE = 16 * 1024
"""Bytes that are sent at once."""


@dataclass
class Repo:
    """Files of a repository at one commit; `main` is that commit."""

    files: Mapping[str, bytes]
    commit: str
    licence: str = "apache-2.0"
    large: int = 20_000
    """From how many bytes on a file is in LFS."""

    def etag(self, name: str) -> str:
        content = self.files[name]
        if len(content) >= self.large:
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(
            b"blob %d\0" % len(content) + content, usedforsecurity=False
        ).hexdigest()


@dataclass
class Fault:
    """What goes wrong with the files whose name ends so, and how often.

    Attributes:
        kind: status code, or one of the words that `_Handler` knows.
        suffix: of the file's name.
        times: how often; it behaves afterwards.
        at: byte from which a file stalls or the connection ends.
        headers: beside a status.
    """

    kind: int | str
    suffix: str = "model.safetensors"
    times: int = 10**6
    at: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)


class HubServer(ThreadingHTTPServer):
    """The server; `address` is for HF_ENDPOINT.

    Attributes:
        asked: METHOD and path of each request.
        sent: path in the repository -> bytes of content that were sent.
        starts: (path, first byte) of each GET of a file.
        tokens: what came as Authorization, by whether it was asked by another name (a CDN).
        moves: the repositories as they are from the moment at which weights are sent, their old
            commits beside them.
        stalled: is set while a file stalls; `go_on` ends that.
    """

    daemon_threads = True

    def __init__(self, repos: Mapping[str, Repo]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.repos = dict(repos)
        self.old: dict[str, Repo] = {}
        self.moves: dict[str, Repo] = {}
        self.fault: Fault | None = None
        self.asked: list[str] = []
        self.sent: Counter[str] = Counter()
        self.starts: list[tuple[str, int]] = []
        self.tokens: list[tuple[str, str | None]] = []
        self.stalled = threading.Event()
        self.go_on = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may leave."""

    def faulty(self, name: str) -> Fault | None:
        """Returns the fault that concerns this request, and counts it."""
        fault = self.fault
        if fault is None or not name.endswith(fault.suffix) or fault.times <= 0:
            return None
        fault.times -= 1
        return fault


@contextlib.contextmanager
def serving(repos: Mapping[str, Repo]) -> Iterator[HubServer]:
    """Yields a running hub; the names of `repos` begin with `models/` or `datasets/`."""
    with HubServer(repos) as server:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        thread.start()
        yield server
        server.go_on.set()
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._route(body=False)

    def do_GET(self) -> None:
        self._route(body=True)

    def _route(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        self.server.tokens.append((path, self.headers.get("Authorization")))
        parts = [
            unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")
        ]  # a revision is one of them
        if parts[0] == "api":
            repo = self.server.repos.get("/".join(parts[1:4])) if len(parts) == 6 else None
            return self._describe("/".join(parts[1:4]), repo, body=body)
        kind, rest = ("datasets", parts[1:]) if parts[0] == "datasets" else ("models", parts)
        name = "/".join(rest[:2])
        verb = rest[2:3]
        repo = self.server.repos.get(f"{kind}/{name}")
        if (
            body
            and rest[-1].endswith(".safetensors")
            and f"{kind}/{name}" in self.server.moves
            and repo is not None
        ):
            self.server.old[repo.commit] = repo
            repo = self.server.repos[f"{kind}/{name}"] = self.server.moves.pop(f"{kind}/{name}")
        repo = self.server.old.get(rest[3] if len(rest) > 3 else "", repo)
        if verb not in (["resolve"], ["cdn"]) or repo is None:
            return self._reply(404, {"X-Error-Code": "RepoNotFound"})
        file = "/".join(rest[4:])
        if file not in repo.files:
            return self._reply(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": repo.commit})
        return self._file(
            repo,
            file,
            f"/{kind if kind == 'datasets' else ''}/{name}".replace("//", "/"),
            verb[0],
            body,
        )

    def _describe(self, name: str, repo: Repo | None, *, body: bool) -> None:
        fault = self.server.faulty("api")
        if fault is not None and isinstance(fault.kind, int):
            self._reply(fault.kind, fault.headers)
            return
        if fault is not None and fault.kind in ("drips headers", "drips"):
            self._drip(in_headers=fault.kind == "drips headers")
            return
        if fault is not None and fault.kind == "bomb":
            self._bomb(200)
            return
        if repo is None:
            self._reply(404, {"X-Error-Code": "RepoNotFound"})
            return
        siblings = []
        for file, content in repo.files.items():
            entry = {"rfilename": file, "size": len(content), "blobId": repo.etag(file)[:40]}
            if len(content) >= repo.large:
                entry["lfs"] = {"sha256": repo.etag(file), "size": len(content), "pointerSize": 130}
            siblings.append(entry)
        document = {
            "id": name.partition("/")[2],
            "sha": repo.commit,
            "siblings": siblings,
            "tags": [f"license:{repo.licence}"] if repo.licence else [],
        }
        self._reply(
            200,
            {"Content-Type": "application/json"},
            json.dumps(document).encode() if body else b"",
        )

    def _file(self, repo: Repo, file: str, place: str, verb: str, body: bool) -> None:
        content = repo.files[file]
        etag = repo.etag(file)
        redirected = (
            verb == "resolve" and len(content) >= repo.large
        )  # as the hub does with LFS: to a signed address
        concerned = self._is_of_head() or (body and not redirected)
        fault = self.server.faulty(file) if concerned else None
        kind = fault.kind if fault else ""
        facts = {"ETag": f'"{etag}"', "X-Repo-Commit": repo.commit, "Accept-Ranges": "bytes"}
        if fault is not None and isinstance(kind, int):
            self._reply(kind, fault.headers)
            return
        if kind == "bomb":
            self._bomb(404) if fault and fault.at else self._bomb(200, facts)
            return
        if kind in ("drips headers", "drips"):
            self._drip(in_headers=kind == "drips headers", headers=facts, length=len(content))
            return
        if kind == "circle":
            self._reply(302, {"Location": self.path})
            return
        if kind == "no etag":
            self._reply(200, {"X-Repo-Commit": repo.commit}, length=len(content))
            return
        if redirected:
            facts |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(content))}
            self._reply(
                302, {**facts, "Location": f"{place}/cdn/{repo.commit}/{file}?Signature=s3cret"}
            )
            return
        if not body:
            self._reply(200, facts, length=len(content))
            return
        wrong = bytes(byte ^ 1 for byte in content)
        content = {"content": wrong, "shorter": content[:-7], "longer": content + b"surplus"}.get(
            str(kind), content
        )
        start = 0
        if "Range" in self.headers and kind != "no ranges":
            start = int(self.headers["Range"].removeprefix("bytes=").partition("-")[0])
            facts["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self.server.starts.append((file, start))
        self.send_response(206 if start else 200)
        for name, value in {**facts, "Content-Length": str(len(content) - start)}.items():
            self.send_header(name, value)
        self.end_headers()
        self._send(content, start, file, fault)

    def _drip(
        self, *, in_headers: bool, headers: Mapping[str, str] | None = None, length: int = 99_999
    ) -> None:
        """Sends a byte now and then, until the client has gone or the test is over."""
        self.send_response(200)
        for name, value in {**(headers or {}), "Content-Length": str(length)}.items():
            self.send_header(name, value)
        if in_headers:
            self.flush_headers()
        else:
            self.end_headers()
        while not self.server.go_on.wait(0.3):
            self.wfile.write(b"X-A: b\r\n" if in_headers else b" ")
            self.wfile.flush()
        self.close_connection = True

    def _bomb(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Sends 90 kB that unpack to 90 MB."""
        packing = zlib.compressobj(9, zlib.DEFLATED, 31)
        first, next_one = (
            packing.compress(bytes(1_000_000)) + packing.flush(zlib.Z_FULL_FLUSH) for _ in range(2)
        )
        packed = first + 89 * next_one
        self._reply(status, {**(headers or {}), "Content-Encoding": "gzip"}, packed)

    def _is_of_head(self) -> bool:
        fault = self.server.fault
        if fault is None:
            return False
        return isinstance(fault.kind, int) or fault.kind in ("circle", "no etag", "drips headers")

    def _send(self, content: bytes, start: int, file: str, fault: Fault | None) -> None:
        end = fault.at if fault and fault.kind in ("stalls", "closes") else len(content)
        for first in range(start, end, PIECE):
            piece = content[first : min(first + PIECE, end)]
            self.wfile.write(piece)
            self.server.sent[file] += len(piece)
        if fault and fault.kind == "stalls":
            self.server.stalled.set()
            self.server.go_on.wait(60)
            self.server.go_on.clear()
        if end < len(content):
            self.close_connection = True

    def _reply(
        self,
        status: int,
        headers: Mapping[str, str],
        content: bytes = b"",
        *,
        length: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {
            **headers,
            "Content-Length": str(len(content) if length is None else length),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """No talk."""
