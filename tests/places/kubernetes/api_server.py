"""An API server of the paths that the driver uses, for tests: ResourceSlices and ResourceClaims of resource.k8s.io/v1.

It does what clients must be right about: resource versions, conflicts, lists in pages, watches from a version on with bookmarks,
410 where the history has been forgotten, finalizers that hold a deleted object, merge patches. What it does not do: validation
(kubernetes-validate does that in the test), authorisation beyond the token, and everything else.

`down` and `up` are the API server's crash and return on the same port; its objects are kept meanwhile, as etcd would.
"""

import copy
import http.server
import json
import threading
import time
import urllib.parse
import uuid

GROUP = "/apis/resource.k8s.io/v1"
TOKEN = "a-token"
BOOKMARK_SECONDS = 1


def merge(target, patch):
    """A merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merge(target.get(key), value)
    return target


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Store:
    """The objects: (kind, namespace, name) to object; and what has happened to them."""

    def __init__(self):
        self.changed = threading.Condition()
        self.objects, self.history = {}, []
        self.version, self.forgotten = 100, 0
        self.conflicts = 0  # so many of the next writes meet somebody else's
        self.answers = threading.Event()  # cleared: what writes are answered is kept back
        self.answers.set()
        self.claims_are_listed = threading.Event()  # cleared: lists of claims are kept back
        self.claims_are_listed.set()
        self.watched = set()  # kinds that somebody has watched
        self.sent = 0  # the newest version that a watch has been told
        self.writes = []

    def record(self, event, key, value):
        self.version += 1
        value["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, event, key, copy.deepcopy(value)))
        if event == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = value
        self.changed.notify_all()

    def create(self, kind, namespace, body):
        with self.changed:
            key = (kind, namespace, body["metadata"]["name"])
            if key in self.objects:
                raise Refused(409, "already exists")
            body = copy.deepcopy(body)
            body["metadata"].setdefault("uid", str(uuid.uuid4()))
            if namespace:
                body["metadata"]["namespace"] = namespace
            self.record("ADDED", key, body)
            return copy.deepcopy(body)

    def get(self, kind, namespace, name):
        with self.changed:
            if (kind, namespace, name) not in self.objects:
                raise Refused(404, '%s "%s" not found' % (kind, name))
            return copy.deepcopy(self.objects[kind, namespace, name])

    def replace(self, kind, namespace, name, change):
        """`change` makes the new object of the one that is there; a resource version in it must be the one that is there."""
        with self.changed:
            old = self.get(kind, namespace, name)
            new = change(copy.deepcopy(old))
            if self.conflicts:
                self.conflicts -= 1
                self.record("MODIFIED", (kind, namespace, name), merge(old, {"metadata": {"labels": {"by": "somebody"}}}))
                raise Refused(409, "the object has been modified")
            wanted = new["metadata"].get("resourceVersion", old["metadata"]["resourceVersion"])
            if wanted != old["metadata"]["resourceVersion"]:
                raise Refused(409, "the object has been modified")
            added = set(new["metadata"].get("finalizers", [])) - set(old["metadata"].get("finalizers", []))
            if "deletionTimestamp" in old["metadata"] and added:
                raise Refused(422, "no new finalizers can be added if the object is being deleted")
            gone = "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers")
            self.record("DELETED" if gone else "MODIFIED", (kind, namespace, name), new)
            return copy.deepcopy(new)

    def delete(self, kind, namespace, name):
        with self.changed:
            old = self.get(kind, namespace, name)
            if old["metadata"].get("finalizers"):
                old["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
                self.record("MODIFIED", (kind, namespace, name), old)
            else:
                self.record("DELETED", (kind, namespace, name), old)
            return old

    def forget(self):
        """The history so far: watches from there are told 410."""
        with self.changed:
            self.history, self.forgotten = [], self.version

    def all(self, kind, namespace=None):
        with self.changed:
            return [copy.deepcopy(value) for (k, n, _), value in sorted(self.objects.items())
                    if k == kind and namespace in (None, n)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, code, body):
        if self.command != "GET":
            self.server.store.answers.wait(60)
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def serve(self):
        store, url = self.server.store, urllib.parse.urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        query = {key: values[0] for key, values in urllib.parse.parse_qs(url.query).items()}
        try:
            if self.headers.get("Authorization") != "Bearer " + TOKEN:
                raise Refused(401, "Unauthorized")
            if not url.path.startswith(GROUP + "/"):
                raise Refused(404, "the server could not find the requested resource")
            words, namespace = url.path[len(GROUP) + 1:].split("/"), ""
            if words[0] == "namespaces":
                namespace, words = words[1], words[2:]
            kind, name = words[0], words[1] if len(words) > 1 else None
            if self.command != "GET":
                store.writes.append((self.command, url.path, body))
            if query.get("watch") == "true":
                self.watch(store, kind, query)
            elif self.command == "GET" and name is None:
                if kind == "resourceclaims":
                    store.claims_are_listed.wait(60)
                self.answer(200, self.page(store, kind, query))
            elif self.command == "GET":
                self.answer(200, store.get(kind, namespace, name))
            elif self.command == "POST":
                self.answer(201, store.create(kind, namespace, body))
            elif self.command == "PUT":
                uid = store.get(kind, namespace, name)["metadata"]["uid"]
                self.answer(200, store.replace(kind, namespace, name, lambda old: merge(body, {"metadata": {"uid": uid}})))
            elif self.command == "PATCH":
                if self.headers.get("Content-Type") != "application/merge-patch+json":
                    raise Refused(415, "the body of the request was in an unknown format")
                self.answer(200, store.replace(kind, namespace, name, lambda old: merge(old, body)))
            elif self.command == "DELETE":
                self.answer(200, store.delete(kind, namespace, name))
        except Refused as refused:
            self.answer(refused.code, {"kind": "Status", "status": "Failure", "message": str(refused), "code": refused.code})

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

    @staticmethod
    def selects(value, query):
        selector = query.get("fieldSelector", "")
        return not selector or value["spec"]["driver"] == selector.split("spec.driver=")[1]

    def page(self, store, kind, query):
        with store.changed:
            items = [value for value in store.all(kind) if self.selects(value, query)]
            limit, start = self.server.page or int(query.get("limit", 500)), int(query.get("continue", 0))
            meta = {"resourceVersion": str(store.version)}
            if start + limit < len(items):
                meta["continue"] = str(start + limit)
            return {"kind": "List", "metadata": meta, "items": items[start:start + limit]}

    def put(self, event):
        data = json.dumps(event).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def watch(self, store, kind, query):
        version = int(query["resourceVersion"])
        store.watched.add(kind)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        end = time.monotonic() + min(float(query.get("timeoutSeconds", 60)), self.server.watch_seconds)
        last = time.monotonic()
        while time.monotonic() < end and not self.server.closing:
            with store.changed:
                if version < store.forgotten:
                    self.put({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}})
                    break
                new = [one for one in store.history if one[0] > version]
                if not new:
                    store.changed.wait(0.1)
            for number, event, key, value in new:
                version = number
                if key[0] == kind and self.selects(value, query):
                    self.put({"type": event, "object": value})
                    store.sent = max(store.sent, number)
            if time.monotonic() - last > BOOKMARK_SECONDS:
                last = time.monotonic()
                self.put({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}})
        self.wfile.write(b"0\r\n\r\n")


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_):
        pass  # a client that has gone

    def get_request(self):
        request, address = super().get_request()
        self.connections.append(request)
        return request, address


class ApiServer:
    """Use `store` for what users and the scheduler do."""

    handler = Handler

    def __init__(self):
        self.store, self.port, self.listener = Store(), 0, None
        self.page = 0  # objects in an answer to a list at most; 0: as was asked
        self.watch_seconds = 3600
        self.up()

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.port

    def up(self):
        self.listener = Listener(("127.0.0.1", self.port), self.handler)
        self.port = self.listener.server_address[1]
        self.listener.store, self.listener.closing, self.listener.connections = self.store, False, []
        self.listener.page, self.listener.watch_seconds = self.page, self.watch_seconds
        threading.Thread(target=self.listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def down(self):
        if self.listener:
            self.listener.closing = True
            self.listener.shutdown()
            self.listener.server_close()
            for connection in self.listener.connections:
                try:
                    connection.shutdown(2)
                except OSError:
                    pass
            self.listener = None

    close = down
