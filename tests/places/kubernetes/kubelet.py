"""The kubelet's side of a driver: it finds the registration socket, asks who is there, and has claims prepared.

The messages are written out as the kubelet has them (field numbers and names as in Kubernetes' api.proto files), maps included, so
that a mistake in the driver's own description of them does not cancel out.
"""

import os

import grpc

import messages

PROTOS = {
    "registration.proto": """syntax = "proto3"; package pluginregistration;
message PluginInfo { string type = 1; string name = 2; string endpoint = 3; repeated string supported_versions = 4; }
message RegistrationStatus { bool plugin_registered = 1; string error = 2; }
message RegistrationStatusResponse { }
message InfoRequest { }
""",
    "dra.proto": """syntax = "proto3"; package k8s.io.kubelet.pkg.apis.dra.v1;
message NodePrepareResourcesRequest { repeated Claim claims = 1; }
message NodePrepareResourcesResponse { map<string, NodePrepareResourceResponse> claims = 1; }
message NodePrepareResourceResponse { repeated Device devices = 1; string error = 2; }
message Device { repeated string request_names = 1; string pool_name = 2; string device_name = 3; repeated string cdi_device_ids = 4; }
message NodeUnprepareResourcesRequest { repeated Claim claims = 1; }
message NodeUnprepareResourcesResponse { map<string, NodeUnprepareResourceResponse> claims = 1; }
message NodeUnprepareResourceResponse { string error = 1; }
message Claim { string namespace = 1; string uid = 2; string name = 3; }
""",
}
SECONDS = 45  # that the kubelet gives a call


def load(folder):
    """Makes Python's classes of the messages."""
    registration, dra = messages.load(folder, PROTOS)
    return dra, registration


class Kubelet:
    def __init__(self, folder, messages):
        self.dra, self.registration = messages
        self.registry = os.path.join(folder, "plugins_registry")
        self.info, self.channel = None, None

    def close(self):
        if self.channel:
            self.channel.close()

    @staticmethod
    def call(channel, path, request, answer_type):
        method = channel.unary_unary(path, request_serializer=type(request).SerializeToString,
                                     response_deserializer=answer_type.FromString)
        return method(request, timeout=SECONDS)

    def register(self):
        """What the kubelet does when a socket appears in its registry."""
        self.close()
        path = os.path.join(self.registry, "gpu.remote-gpu.io-reg.sock")
        with grpc.insecure_channel("unix://" + path) as channel:
            self.info = self.call(channel, "/pluginregistration.Registration/GetInfo", self.registration.InfoRequest(),
                                  self.registration.PluginInfo)
            self.call(channel, "/pluginregistration.Registration/NotifyRegistrationStatus",
                      self.registration.RegistrationStatus(plugin_registered=True), self.registration.RegistrationStatusResponse)
        self.channel = grpc.insecure_channel("unix://" + self.info.endpoint)
        return self.info

    def claims(self, claims):
        return [self.dra.Claim(namespace=claim["metadata"]["namespace"], uid=claim["metadata"]["uid"],
                               name=claim["metadata"]["name"]) for claim in claims]

    def ask(self, what, request, answer_type):
        return self.call(self.channel, "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/" + what, request, answer_type).claims

    def prepare(self, *claims):
        """By each claim's UID what was answered."""
        return self.ask("NodePrepareResources", self.dra.NodePrepareResourcesRequest(claims=self.claims(claims)),
                        self.dra.NodePrepareResourcesResponse)

    def unprepare(self, *claims):
        return self.ask("NodeUnprepareResources", self.dra.NodeUnprepareResourcesRequest(claims=self.claims(claims)),
                        self.dra.NodeUnprepareResourcesResponse)
