"""The kubelet's side of a device plugin (v1beta1): it takes registrations, follows the plugin's devices, gives them to containers and
lists those.

The messages are written out as the kubelet has them (field numbers and names as in Kubernetes' api.proto files), maps included, so
that a mistake in the plugin's own description of them does not cancel out.
"""

import concurrent.futures
import os
import queue
import threading

import grpc

import messages

RESOURCE = "remote-gpu.io/gpu"
PROTOS = {
    "deviceplugin.proto": """syntax = "proto3"; package v1beta1;
message DevicePluginOptions { bool pre_start_required = 1; bool get_preferred_allocation_available = 2; }
message RegisterRequest { string version = 1; string endpoint = 2; string resource_name = 3; DevicePluginOptions options = 4; }
message Empty { }
message ListAndWatchResponse { repeated Device devices = 1; }
message TopologyInfo { repeated NUMANode nodes = 1; }
message NUMANode { int64 ID = 1; }
message Device { string ID = 1; string health = 2; TopologyInfo topology = 3; }
message PreStartContainerRequest { repeated string devices_ids = 1; }
message PreStartContainerResponse { }
message PreferredAllocationRequest { repeated ContainerPreferredAllocationRequest container_requests = 1; }
message ContainerPreferredAllocationRequest {
  repeated string available_deviceIDs = 1; repeated string must_include_deviceIDs = 2; int32 allocation_size = 3; }
message PreferredAllocationResponse { repeated ContainerPreferredAllocationResponse container_responses = 1; }
message ContainerPreferredAllocationResponse { repeated string deviceIDs = 1; }
message AllocateRequest { repeated ContainerAllocateRequest container_requests = 1; }
message ContainerAllocateRequest { repeated string devices_ids = 1; }
message CDIDevice { string name = 1; }
message AllocateResponse { repeated ContainerAllocateResponse container_responses = 1; }
message ContainerAllocateResponse { map<string, string> envs = 1; repeated Mount mounts = 2; repeated DeviceSpec devices = 3;
  map<string, string> annotations = 4; repeated CDIDevice cdi_devices = 5; }
message Mount { string container_path = 1; string host_path = 2; bool read_only = 3; }
message DeviceSpec { string container_path = 1; string host_path = 2; string permissions = 3; }
""",
    "podresources.proto": """syntax = "proto3"; package v1;
message ListPodResourcesRequest { }
message ListPodResourcesResponse { repeated PodResources pod_resources = 1; }
message PodResources { string name = 1; string namespace = 2; repeated ContainerResources containers = 3; }
message ContainerResources { string name = 1; repeated ContainerDevices devices = 2; repeated int64 cpu_ids = 3; }
message ContainerDevices { string resource_name = 1; repeated string device_ids = 2; }
""",
}
SECONDS = 30


def load(folder):
    """Makes Python's classes of the messages."""
    return messages.load(folder, PROTOS)


def environment(container):
    """The container's variables as they were answered, with mounts as paths of this machine."""
    found = dict(container.envs)
    for mount in container.mounts:
        found["LD_PRELOAD"] = found["LD_PRELOAD"].replace(mount.container_path + "/", mount.host_path + "/")
    return found


class DeviceManager:
    def __init__(self, folder, messages):
        self.plugin, self.pods = messages
        self.folder = os.path.join(folder, "device-plugins")
        self.listing = os.path.join(folder, "pods.sock")
        os.makedirs(self.folder, exist_ok=True)
        self.registered, self.containers = queue.Queue(), {}
        self.devices, self.channel, self.server, self.lister = {}, None, None, None
        self.start_listing()
        self.start()

    @staticmethod
    def serve(socket, service, method, function, request_type):
        handler = grpc.unary_unary_rpc_method_handler(function, request_deserializer=request_type.FromString,
                                                      response_serializer=lambda answer: answer.SerializeToString())
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
        server.add_insecure_port("unix://" + socket)
        server.start()
        return server

    def start(self):
        """As the kubelet starts: whatever sockets are in its folder are removed."""
        for name in os.listdir(self.folder):
            os.remove(os.path.join(self.folder, name))

        def register(request, _):
            self.registered.put(request)
            return self.plugin.Empty()

        self.server = self.serve(os.path.join(self.folder, "kubelet.sock"), "v1beta1.Registration", "Register", register,
                                 self.plugin.RegisterRequest)

    def start_listing(self):
        def listed(_request, _context):
            pods = [self.pods.PodResources(name=name, namespace="team-a", containers=[self.pods.ContainerResources(
                name="main", devices=[self.pods.ContainerDevices(resource_name=RESOURCE, device_ids=ids)])])
                for name, ids in self.containers.items()]
            return self.pods.ListPodResourcesResponse(pod_resources=pods)

        self.lister = self.serve(self.listing, "v1.PodResourcesLister", "List", listed, self.pods.ListPodResourcesRequest)

    def close(self):
        self.server.stop(None).wait()
        self.lister.stop(None).wait()
        if self.channel:
            self.channel.close()

    def restart(self):
        self.server.stop(None).wait()
        self.channel.close()
        self.devices = {}
        self.start()

    def follow(self):
        """Waits for the plugin's registration, and follows its devices: the registration."""
        request = self.registered.get(timeout=60)
        self.channel = grpc.insecure_channel("unix://" + os.path.join(self.folder, request.endpoint))
        stream = self.channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch", request_serializer=self.plugin.Empty.SerializeToString,
                                           response_deserializer=self.plugin.ListAndWatchResponse.FromString)(self.plugin.Empty())

        def take():
            try:
                for answer in stream:
                    self.devices = {device.ID: device.health for device in answer.devices}
            except grpc.RpcError:
                self.devices = {one: "Unhealthy" for one in self.devices}

        threading.Thread(target=take, daemon=True).start()
        return request

    def ask(self, method, request, answer_type):
        call = self.channel.unary_unary("/v1beta1.DevicePlugin/" + method, request_serializer=type(request).SerializeToString,
                                        response_deserializer=answer_type.FromString)
        return call(request, timeout=SECONDS)

    def healthy(self):
        return sorted(one for one, health in self.devices.items() if health == "Healthy")

    def allocate(self, *groups):
        """For so many containers: what each gets."""
        request = self.plugin.AllocateRequest(container_requests=[self.plugin.ContainerAllocateRequest(devices_ids=ids)
                                                                  for ids in groups])
        return self.ask("Allocate", request, self.plugin.AllocateResponse).container_responses

    def prefer(self, available, must, size):
        request = self.plugin.PreferredAllocationRequest(container_requests=[self.plugin.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size)])
        return list(self.ask("GetPreferredAllocation", request, self.plugin.PreferredAllocationResponse).container_responses[0].deviceIDs)
