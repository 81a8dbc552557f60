"""The test API server (api_server.py) as kubectl and helm need it: more kinds, discovery, selectors, and kinds of patches.

Every object is taken as it comes and kept. What a cluster would do about it is the test's part.
"""

import base64
import json
import urllib.parse

import yaml
from api_server import TOKEN, ApiServer, Handler, Refused, merge

# group and version: names, kinds, whether they are in namespaces
KINDS = {
    "v1": [("namespaces", "Namespace", False), ("nodes", "Node", False), ("pods", "Pod", True), ("secrets", "Secret", True),
           ("serviceaccounts", "ServiceAccount", True)],
    "apps/v1": [("deployments", "Deployment", True), ("daemonsets", "DaemonSet", True)],
    "batch/v1": [("jobs", "Job", True)],
    "networking.k8s.io/v1": [("networkpolicies", "NetworkPolicy", True)],
    "rbac.authorization.k8s.io/v1": [("clusterroles", "ClusterRole", False), ("clusterrolebindings", "ClusterRoleBinding", False)],
    "resource.k8s.io/v1": [("resourceslices", "ResourceSlice", False), ("resourceclaims", "ResourceClaim", True),
                           ("resourceclaimtemplates", "ResourceClaimTemplate", True), ("deviceclasses", "DeviceClass", False)],
}
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def path_of(group):
    return "/api/v1" if group == "v1" else "/apis/" + group


def described(group):
    """A group as OpenAPI has it, as far as kubectl asks: that fields are validated by the server."""
    paths = {}
    name, _, version = group.rpartition("/")
    for plural, kind, spaced in KINDS[group]:
        place = "%s%s/%s/{name}" % (path_of(group), "/namespaces/{namespace}" if spaced else "", plural)
        paths[place] = {"patch": {"parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
                                  "responses": {}, "x-kubernetes-group-version-kind": {"group": name, "version": version, "kind": kind}}}
    return {"openapi": "3.0.0", "info": {"title": "a test", "version": "1"}, "paths": paths}


def matches(value, selectors):
    """Labels as kubectl selects by them: equality, "in" of one or several, and existence."""
    labels = value["metadata"].get("labels", {})
    for one in filter(None, selectors.replace("in (", "in(").replace(", ", ",").split(",")):
        name, equal, wanted = one.replace("==", "=").partition("=")
        if equal and labels.get(name.strip().rstrip("!")) != wanted.strip():
            return False
    return True


def fields(data):
    """Numbers and values of a protobuf message whose fields are texts, bytes, messages or numbers."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        size = number()
        if key & 7 == 2:
            yield key >> 3, data[at:at + size]
            at += size


def texts(data):
    """A map of texts to bytes, as protobuf has it: the entry."""
    entry = dict(fields(data))
    return entry[1].decode(), entry.get(2, b"")


def from_protobuf(data):
    """A Namespace or Secret, which kubectl and helm send as Kubernetes' protobuf (runtime.Unknown, meta/v1 and core/v1)."""
    meta, labels, values, kind = {}, {}, {}, ""
    for number, value in fields(dict(fields(data[4:]))[2]):
        if number == 1:
            for name, one in fields(value):
                if name in (1, 3):
                    meta["name" if name == 1 else "namespace"] = one.decode()
                elif name == 11:
                    key, label = texts(one)
                    labels[key] = label.decode()
        elif number == 2:
            entry = dict(fields(value))
            if entry.get(1):
                values[entry[1].decode()] = base64.b64encode(entry.get(2, b"")).decode()
        elif number == 3 and value:
            kind = value.decode(errors="replace")
    return {"metadata": {key: value for key, value in {**meta, "labels": labels}.items() if value}, **({"data": values, "type": kind} if values else {})}


class WholeHandler(Handler):
    def discovery(self, path):
        """What answers to a path that is about kinds, not objects; None: it is not."""
        if path == "/version":
            return {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            groups = [group.split("/") for group in KINDS if "/" in group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [
                {"name": name, "versions": [{"groupVersion": "%s/%s" % (name, version), "version": version}],
                 "preferredVersion": {"groupVersion": "%s/%s" % (name, version), "version": version}} for name, version in groups]}
        if path == "/openapi/v3":
            return {"paths": {path_of(group)[1:]: {"serverRelativeURL": "/openapi/v3" + path_of(group)} for group in KINDS}}
        for group, kinds in KINDS.items():
            if path == "/openapi/v3" + path_of(group):
                return described(group)
            if path == path_of(group):
                return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": [
                    {"name": plural, "singularName": kind.lower(), "namespaced": spaced, "kind": kind, "verbs": VERBS}
                    for plural, kind, spaced in kinds]}
        return None

    def serve(self):
        url = urllib.parse.urlsplit(self.path)
        try:
            # kubectl and helm show no token where there is no TLS
            if self.headers.get("Authorization", "Bearer " + TOKEN) != "Bearer " + TOKEN:
                raise Refused(401, "Unauthorized")
            known = self.discovery(url.path)
            if known is not None:
                self.answer(200, known)
            else:
                self.serve_objects(url)
        except Refused as refused:
            self.answer(refused.code, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": str(refused),
                                       "reason": {404: "NotFound", 409: "AlreadyExists"}.get(refused.code, ""), "code": refused.code})

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

    def serve_objects(self, url):
        group = next((one for one in KINDS if url.path.startswith(path_of(one) + "/")), None)
        if not group:
            raise Refused(404, "the server could not find the requested resource")
        words, namespace = url.path[len(path_of(group)) + 1:].split("/"), ""
        if words[0] == "namespaces" and len(words) > 2:
            namespace, words = words[1], words[2:]
        plural, name = words[0], words[1] if len(words) > 1 else None
        kind = next((kind for one, kind, _ in KINDS[group] if one == plural), None)
        if not kind:
            raise Refused(404, "the server could not find the requested resource")
        self.kind = {"apiVersion": group, "kind": kind}
        query = {key: values[0] for key, values in urllib.parse.parse_qs(url.query).items()}
        query["namespace"] = namespace
        size = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(size)
        body = from_protobuf(data) if data.startswith(b"k8s\0") else yaml.safe_load(data) if data else None
        if self.command != "GET":
            self.server.store.writes.append((self.command, url.path, body))
        self.do(plural, namespace, name, query, body, words[2:])

    def do(self, plural, namespace, name, query, body, below):
        store = self.server.store
        if below == ["log"]:
            self.text(store.get(plural, namespace, name).get("test-log", ""))
        elif query.get("watch") in ("true", "1"):
            query.setdefault("resourceVersion", str(store.version))
            self.watch(store, plural, query)
        elif self.command == "GET" and name is None:
            page = self.page(store, plural, query)
            self.answer(200, {**page, "kind": self.kind["kind"] + "List", "apiVersion": self.kind["apiVersion"]})
        elif self.command == "GET":
            self.answer(200, store.get(plural, namespace, name))
        elif self.command == "POST":
            self.answer(201, store.create(plural, namespace, {**body, **self.kind}))
        elif self.command == "PUT":
            uid = store.get(plural, namespace, name)["metadata"]["uid"]
            self.answer(200, store.replace(plural, namespace, name, lambda old: merge(body, {"metadata": {"uid": uid}})))
        elif self.command == "PATCH" and (plural, namespace, name) not in store.objects:
            if not self.headers.get("Content-Type").startswith("application/apply-patch"):
                raise Refused(404, '%s "%s" not found' % (plural, name))
            self.answer(201, store.create(plural, namespace, {**body, **self.kind}))
        elif self.command == "PATCH":
            self.answer(200, store.replace(plural, namespace, name, lambda old: merge(old, body)))
        elif self.command == "DELETE":
            self.answer(200, store.delete(plural, namespace, name))

    def text(self, text):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    @staticmethod
    def selects(value, query):
        meta, spec = value["metadata"], value.get("spec", {})
        fields = dict(one.split("=", 1) for one in filter(None, query.get("fieldSelector", "").split(",")))
        seen = {"metadata.name": meta["name"], "metadata.namespace": meta.get("namespace", ""), "spec.driver": spec.get("driver")}
        return (query.get("namespace", "") in ("", meta.get("namespace", "")) and matches(value, query.get("labelSelector", "")) and
                all(seen.get(name) == wanted for name, wanted in fields.items()))


class WholeServer(ApiServer):
    handler = WholeHandler

    def write_kubeconfig(self, path):
        """As `kubectl` and `helm` read it; JSON is YAML."""
        with open(path, "w") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "test",
                       "clusters": [{"name": "test", "cluster": {"server": self.url}}],
                       "users": [{"name": "test", "user": {"token": TOKEN}}],
                       "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "team-a"}}]}, file)
