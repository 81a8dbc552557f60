"""What cuda-python offers: the driver, the runtime, NVRTC, nvJitLink where it is installed, and cuda.core on top."""
import ctypes
import warnings

import numpy as np

from cuda.bindings import driver, nvrtc, runtime

from checks import check, run

warnings.simplefilter("ignore")  # cuda.core warns of PTX that is newer than the driver


def ok(result):
    """What a call returned; fails if it failed."""
    if int(result[0]) != 0:
        raise AssertionError(repr(result[0]))
    return result[1] if len(result) == 2 else result[1:]


def capability():
    attribute = driver.CUdevice_attribute
    return (ok(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0)) * 10
            + ok(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0)))


def start():
    ok(driver.cuInit(0))
    context = ok(driver.cuDevicePrimaryCtxRetain(ok(driver.cuDeviceGet(0))))
    ok(driver.cuCtxSetCurrent(context))


SOURCE = b'extern "C" __global__ void scale(float *x, float factor, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= factor; }'


@check
def driver_and_nvrtc():
    start()
    for option, size_of, get in ((b"--gpu-architecture=sm_%d", nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
                                 (b"--gpu-architecture=compute_%d", nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)):
        program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"scale.cu", 0, [], []))
        ok(nvrtc.nvrtcCompileProgram(program, 1, [option % capability()]))
        code = b" " * ok(size_of(program))
        ok(get(program, code))
        module = ok(driver.cuModuleLoadData(np.char.array(code)))
        function = ok(driver.cuModuleGetFunction(module, b"scale"))
        host = np.arange(1000, dtype=np.float32)
        memory = ok(driver.cuMemAlloc(host.nbytes))
        stream = ok(driver.cuStreamCreate(0))
        ok(driver.cuMemcpyHtoDAsync(memory, host.ctypes.data, host.nbytes, stream))
        arguments = ((int(memory), np.float32(3), np.int32(1000)), (ctypes.c_void_p, ctypes.c_float, ctypes.c_int))
        ok(driver.cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, stream, arguments, 0))
        result = np.zeros_like(host)
        ok(driver.cuMemcpyDtoHAsync(result.ctypes.data, memory, host.nbytes, stream))
        ok(driver.cuStreamSynchronize(stream))
        np.testing.assert_array_equal(result, host * 3)
        ok(driver.cuMemFree(memory))
        ok(driver.cuStreamDestroy(stream))
        ok(driver.cuModuleUnload(module))


@check
def runtime_calls():
    properties = ok(runtime.cudaGetDeviceProperties(0))
    assert properties.major * 10 + properties.minor == capability()
    ok(runtime.cudaSetDevice(0))
    host = np.arange(4096, dtype=np.int32)
    memory = ok(runtime.cudaMalloc(host.nbytes))
    other = ok(runtime.cudaMallocAsync(host.nbytes, 0))
    kind = runtime.cudaMemcpyKind
    ok(runtime.cudaMemcpy(memory, host.ctypes.data, host.nbytes, kind.cudaMemcpyHostToDevice))
    ok(runtime.cudaMemcpy(other, memory, host.nbytes, kind.cudaMemcpyDeviceToDevice))
    ok(runtime.cudaMemset(memory, 0, host.nbytes))
    back = np.zeros_like(host)
    ok(runtime.cudaMemcpy(back.ctypes.data, other, host.nbytes, kind.cudaMemcpyDeviceToHost))
    np.testing.assert_array_equal(back, host)
    start_event, end_event = ok(runtime.cudaEventCreate()), ok(runtime.cudaEventCreate())
    ok(runtime.cudaEventRecord(start_event, 0))
    ok(runtime.cudaEventRecord(end_event, 0))
    ok(runtime.cudaEventSynchronize(end_event))
    assert ok(runtime.cudaEventElapsedTime(start_event, end_event)) >= 0
    ok(runtime.cudaFree(memory))
    ok(runtime.cudaFreeAsync(other, 0))
    assert int(runtime.cudaMemcpy(12345, host.ctypes.data, 4, kind.cudaMemcpyHostToDevice)[0]) != 0
    runtime.cudaGetLastError()
    ok(runtime.cudaDeviceSynchronize())


@check
def linking_by_the_driver():
    start()
    part = b".version 8.0\n.target sm_75\n.address_size 64\n"
    caller = part + (b".extern .func (.param .b32 r) f(.param .b32 a);\n.visible .entry k(.param .u64 p) { .reg .b64 %rd<3>; .reg .b32 %r<3>;\n"
                     b"ld.param.u64 %rd1, [p]; { .param .b32 a; .param .b32 r; st.param.b32 [a], 5; call (r), f, (a); ld.param.b32 %r2, [r]; }\n"
                     b"st.global.u32 [%rd1], %r2; ret; }\n\0")
    callee = part + b".visible .func (.param .b32 r) f(.param .b32 a) { .reg .b32 %r<3>; ld.param.b32 %r1, [a]; add.s32 %r2, %r1, 37; st.param.b32 [r], %r2; ret; }\n\0"
    state = ok(driver.cuLinkCreate(0, [], []))
    kind = driver.CUjitInputType.CU_JIT_INPUT_PTX
    ok(driver.cuLinkAddData(state, kind, caller, len(caller), b"caller", 0, [], []))
    ok(driver.cuLinkAddData(state, kind, callee, len(callee), b"callee", 0, [], []))
    image, size = ok(driver.cuLinkComplete(state))
    code = ctypes.string_at(int(image), size)
    ok(driver.cuLinkDestroy(state))
    module = ok(driver.cuModuleLoadData(code + b"\0"))
    function = ok(driver.cuModuleGetFunction(module, b"k"))
    memory = ok(driver.cuMemAlloc(4))
    ok(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, ((int(memory),), (ctypes.c_void_p,)), 0))
    result = np.zeros(1, np.int32)
    ok(driver.cuMemcpyDtoH(result.ctypes.data, memory, 4))
    assert result[0] == 42
    ok(driver.cuMemFree(memory))


@check
def core():
    try:
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
    except ImportError:
        return
    device = Device()
    device.set_current()
    stream = device.create_stream()
    source = "template <typename T> __global__ void add(T *x, T y) { x[threadIdx.x] += y; }"
    options = ProgramOptions(std="c++17", arch="sm_%d%d" % tuple(device.compute_capability))
    for target in ("ptx", "cubin"):
        program = Program(source, code_type="c++", options=options)
        kernel = program.compile(target, name_expressions=("add<double>",)).get_kernel("add<double>")
        buffer = device.memory_resource.allocate(32 * 8, stream=stream)
        ok(driver.cuMemsetD8Async(int(buffer.handle), 0, 256, stream.handle))
        launch(stream, LaunchConfig(grid=1, block=32), kernel, buffer, np.float64(2.5))
        result = np.zeros(32)
        ok(driver.cuMemcpyDtoHAsync(result.ctypes.data, int(buffer.handle), 256, stream.handle))
        stream.sync()
        np.testing.assert_array_equal(result, np.full(32, 2.5))


if __name__ == "__main__":
    run()
