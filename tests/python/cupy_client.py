"""What CuPy does with a device: element by element, reductions, fusion, raw code, sorting, random numbers, streams."""
import sys
import threading

import numpy as np

import cupy as cp

from checks import CHECKS, check, run


@check
def elementwise():
    a = cp.arange(1000, dtype=cp.float32)
    np.testing.assert_allclose((cp.sqrt(a) * 2 + 1).get(), np.sqrt(np.arange(1000, dtype=np.float32)) * 2 + 1, rtol=1e-6)
    kernel = cp.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared_difference")
    np.testing.assert_array_equal(kernel(a, a + 3).get(), np.full(1000, 9, np.float32))
    b = cp.arange(24).reshape(2, 3, 4)
    np.testing.assert_array_equal((b.transpose(2, 0, 1) + cp.arange(3)).get(), np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1) + np.arange(3))


@check
def types():
    for dtype in "bBhHiIlLqQefdFD?":
        host = np.arange(1, 100).astype(dtype)
        np.testing.assert_allclose((cp.asarray(host) + cp.asarray(host)).get(), host + host, rtol=1e-3 if dtype == "e" else 1e-6)
    half = np.arange(100, dtype=np.float16)
    np.testing.assert_array_equal((cp.asarray(half) * cp.asarray(half)).get(), half * half)


@check
def reductions():
    rng = np.random.default_rng(1)
    host = rng.standard_normal((37, 1001))
    dev = cp.asarray(host)
    for name in ("sum", "max", "min", "argmax", "argmin", "mean", "std", "prod", "any", "all"):
        for axis in (None, 0, 1):
            np.testing.assert_allclose(getattr(dev, name)(axis=axis).get(), getattr(host, name)(axis=axis), rtol=1e-9)
    kernel = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")
    np.testing.assert_allclose(kernel(dev, axis=1).get(), np.linalg.norm(host, axis=1), rtol=1e-12)
    np.testing.assert_allclose(cp.cumsum(dev, axis=1).get(), np.cumsum(host, axis=1), rtol=1e-9, atol=1e-9)


@check
def fusion():
    @cp.fuse()
    def fused(x, y):
        return cp.sum((x - y) ** 2 + cp.exp(-x), axis=0)

    x, y = np.linspace(0, 1, 5000).reshape(50, 100), np.ones((50, 100))
    np.testing.assert_allclose(fused(cp.asarray(x), cp.asarray(y)).get(), ((x - y) ** 2 + np.exp(-x)).sum(0), rtol=1e-12)


@check
def raw_kernels():
    source = r'''
    __constant__ float factor;
    extern "C" __global__ void scale(const float *x, float *y, int n) {
        extern __shared__ float part[];
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        part[threadIdx.x] = i < n ? x[i] : 0;
        __syncthreads();
        if (i < n) y[i] = part[threadIdx.x] * factor;
    }
    template <typename T> __global__ void twice(T *x) { x[threadIdx.x] *= 2; }
    '''
    module = cp.RawModule(code=source, options=("-std=c++17",), name_expressions=("twice<double>", "twice<int>"))
    constant = cp.ndarray((1,), cp.float32, module.get_global("factor"))
    constant[0] = 3
    x = cp.arange(1000, dtype=cp.float32)
    y = cp.zeros_like(x)
    module.get_function("scale")((8,), (128,), (x, y, np.int32(1000)), shared_mem=512)
    np.testing.assert_array_equal(y.get(), np.arange(1000, dtype=np.float32) * 3)
    d = cp.arange(32, dtype=cp.float64)
    module.get_function("twice<double>")((1,), (32,), (d,))
    np.testing.assert_array_equal(d.get(), np.arange(32) * 2.0)
    assert module.get_function("scale").attributes["max_threads_per_block"] >= 128
    try:
        cp.RawKernel("this is no C", "nothing").compile()
    except cp.cuda.compiler.CompileException as error:
        assert "error" in str(error)
    else:
        raise AssertionError("nonsense was compiled")


@check
def sorting_and_indexing():
    host = np.random.default_rng(2).integers(0, 1000, 5000)
    dev = cp.asarray(host)
    np.testing.assert_array_equal(cp.sort(dev).get(), np.sort(host))
    np.testing.assert_array_equal(host[cp.argsort(dev).get()], np.sort(host))
    np.testing.assert_array_equal(cp.unique(dev).get(), np.unique(host))
    np.testing.assert_array_equal(dev[dev > 500].get(), host[host > 500])
    np.testing.assert_array_equal(cp.bincount(dev, minlength=1000).get(), np.bincount(host, minlength=1000))
    np.testing.assert_array_equal(cp.where(dev % 2 == 0, dev, -dev).get(), np.where(host % 2 == 0, host, -host))
    dev[::7] = 5
    host[::7] = 5
    np.testing.assert_array_equal(cp.take(dev, cp.asarray([0, 7, 3])).get(), host[[0, 7, 3]])


@check
def streams_events_memory():
    stream = cp.cuda.Stream(non_blocking=True)
    start, end = cp.cuda.Event(), cp.cuda.Event()
    with stream:
        start.record()
        a = cp.ones(100000)
        b = a * 2
        end.record()
    end.synchronize()
    assert cp.cuda.get_elapsed_time(start, end) >= 0
    assert float(b.sum()) == 200000
    pool = cp.get_default_memory_pool()
    used = pool.used_bytes()
    del a, b
    assert pool.used_bytes() < used
    pool.free_all_blocks()
    pinned = cp.cuda.alloc_pinned_memory(4096)
    host = np.frombuffer(pinned, np.float32, 1024)
    host[:] = 7
    dev = cp.empty(1024, np.float32)
    dev.set(host, stream=stream)
    stream.synchronize()
    assert float(dev.sum()) == 7168
    free, total = cp.cuda.Device().mem_info
    assert 0 < free <= total
    with cp.cuda.using_allocator(cp.cuda.MemoryAsyncPool().malloc):
        assert float(cp.ones(1000).sum()) == 1000
    with cp.cuda.using_allocator(cp.cuda.malloc_managed):
        assert float(cp.ones(1000).sum()) == 1000


@check
def pointers_in_a_thread_without_a_context():
    pinned, device, answers = cp.cuda.alloc_pinned_memory(4096), cp.zeros(1024, cp.float32), []

    def ask():
        for pointer in (pinned.ptr, device.data.ptr, np.zeros(1024).ctypes.data):
            answers.append(cp.cuda.runtime.pointerGetAttributes(pointer).type)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert answers == [1, 2, 0], answers  # page-locked, the device's, unknown


@check
def graphs():
    stream = cp.cuda.Stream(non_blocking=True)
    a = cp.zeros(100)
    a += 0  # compiled before the capture
    with stream:
        stream.begin_capture()
        a += 1
        graph = stream.end_capture()
        for _ in range(3):
            graph.launch()
    stream.synchronize()
    assert float(a.sum()) == 300


def with_libraries():
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((33, 65)), rng.standard_normal((65, 17))
    for dtype, tolerance in ((np.float32, 1e-4), (np.float64, 1e-10)):
        got = cp.asarray(a.astype(dtype)) @ cp.asarray(b.astype(dtype))
        np.testing.assert_allclose(got.get(), a @ b, rtol=tolerance, atol=tolerance)
    x = cp.random.default_rng(1).random(10000)
    assert 0.45 < float(x.mean()) < 0.55
    assert abs(float(cp.random.randn(10000).mean())) < 0.1
    signal = rng.standard_normal(1024)
    np.testing.assert_allclose(cp.fft.fft(cp.asarray(signal)).get(), np.fft.fft(signal), atol=1e-9)


if __name__ == "__main__":
    if "--libraries" in sys.argv:
        CHECKS.append(with_libraries)
    run()
