"""What numba's @cuda.jit does with a device."""
import warnings

import numpy as np

from numba import config, cuda, float32, float64, int32, vectorize

from checks import check, run

warnings.simplefilter("ignore")
config.CUDA_LOW_OCCUPANCY_WARNINGS = 0


@check
def arrays():
    @cuda.jit
    def axpy(a, x, y, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = a * x[i] + y[i]

    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    out = cuda.device_array_like(x)
    axpy[8, 128](np.float32(2), cuda.to_device(x), cuda.to_device(y), out)
    np.testing.assert_array_equal(out.copy_to_host(), 2 * x + 1)
    axpy[8, 128](np.float32(3), x, y, y)  # host arrays go there and back
    np.testing.assert_array_equal(y, 3 * x + 1)


@check
def shared_memory():
    @cuda.jit
    def matmul(a, b, c):
        sa, sb = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
        x, y = cuda.grid(2)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        total = float32(0)
        for k in range(a.shape[1] // 16):
            sa[tx, ty] = a[x, ty + k * 16]
            sb[tx, ty] = b[tx + k * 16, y]
            cuda.syncthreads()
            for j in range(16):
                total += sa[tx, j] * sb[j, ty]
            cuda.syncthreads()
        c[x, y] = total

    rng = np.random.default_rng(1)
    a, b = rng.random((48, 64), np.float32), rng.random((64, 32), np.float32)
    c = np.zeros((48, 32), np.float32)
    matmul[(3, 2), (16, 16)](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


@check
def dynamic_shared_memory_and_atomics():
    @cuda.jit
    def histogram(values, bins):
        local = cuda.shared.array(0, int32)
        if cuda.threadIdx.x < bins.size:
            local[cuda.threadIdx.x] = 0
        cuda.syncthreads()
        for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
            cuda.atomic.add(local, values[i], 1)
        cuda.syncthreads()
        if cuda.threadIdx.x < bins.size:
            cuda.atomic.add(bins, cuda.threadIdx.x, local[cuda.threadIdx.x])

    values = np.random.default_rng(2).integers(0, 64, 20000).astype(np.int32)
    bins = np.zeros(64, np.int32)
    histogram[4, 128, 0, 64 * 4](values, bins)
    np.testing.assert_array_equal(bins, np.bincount(values, minlength=64))

    @cuda.jit
    def extremes(values, out):
        i = cuda.grid(1)
        if i < values.size:
            cuda.atomic.max(out, 0, values[i])
            cuda.atomic.min(out, 1, values[i])

    @cuda.jit
    def claim(out):
        if cuda.atomic.cas(out, 0, 0, cuda.grid(1) + 1) == 0:
            cuda.atomic.add(out, 1, 1)

    claimed = np.zeros(2, np.int64)
    claim[8, 128](claimed)
    assert 1 <= claimed[0] <= 1024 and claimed[1] == 1

    doubles = np.random.default_rng(3).standard_normal(1000)
    out = np.zeros(2)
    extremes[8, 128](doubles, out)
    assert out[0] == doubles.max() and out[1] == doubles.min()


@check
def warps():
    @cuda.jit
    def sums(x, out):
        value = x[cuda.grid(1)]
        for offset in (16, 8, 4, 2, 1):
            value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
        if cuda.laneid == 0:
            out[cuda.grid(1) // 32] = value
        if cuda.ballot_sync(0xFFFFFFFF, x[cuda.grid(1)] % 2 == 0) != 0x55555555:
            out[0] = -1

    x, out = np.arange(256, dtype=np.int32), np.zeros(8, np.int32)
    sums[2, 128](x, out)
    np.testing.assert_array_equal(out, x.reshape(8, 32).sum(1))


@check
def mathematics():
    import math

    @cuda.jit
    def functions(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[0, i] = math.sin(x[i])
            out[1, i] = math.exp(x[i])
            out[2, i] = math.pow(x[i], 2.5)
            out[3, i] = math.lgamma(x[i])
            out[4, i] = math.log1p(x[i])
            out[5, i] = math.erf(x[i])

    x = np.linspace(0.1, 5, 200)
    out = np.zeros((6, 200))
    functions[2, 128](x, out)
    expected = [np.sin(x), np.exp(x), x**2.5, [math.lgamma(v) for v in x], np.log1p(x), [math.erf(v) for v in x]]
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-14)


@check
def device_functions_and_vectorize():
    @cuda.jit(device=True)
    def clamp(value, low, high):
        return min(max(value, low), high)

    @vectorize(["float64(float64, float64)"], target="cuda")
    def clamped_sum(a, b):
        return clamp(a + b, 0.0, 1.0)

    a, b = np.linspace(-1, 1, 500), np.linspace(0, 1, 500)
    np.testing.assert_allclose(clamped_sum(a, b), np.clip(a + b, 0, 1))

    @cuda.reduce
    def total(a, b):
        return a + b

    assert total(np.arange(10000, dtype=np.float64)) == 49995000


@check
def constants_locals_and_records():
    table = np.arange(10, dtype=np.float64) ** 2
    record = np.dtype([("a", np.int32), ("b", np.float64)], align=True)

    @cuda.jit
    def kernel(records, out):
        squares = cuda.const.array_like(table)
        local = cuda.local.array(10, float64)
        i = cuda.grid(1)
        for k in range(10):
            local[k] = squares[k] * records[i].b
        out[i] = local[records[i].a]

    records = np.zeros(10, record)
    records["a"], records["b"] = np.arange(10), 2
    out = np.zeros(10)
    kernel[1, 10](records, out)
    np.testing.assert_array_equal(out, 2 * table)


@check
def streams_and_pinned_memory():
    @cuda.jit
    def increment(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] += 1

    stream = cuda.stream()
    host = cuda.pinned_array(1000, np.int64)
    host[:] = np.arange(1000)
    before, after = cuda.event(), cuda.event()
    before.record(stream)
    dev = cuda.to_device(host, stream)
    for _ in range(5):
        increment[8, 128, stream](dev)
    dev.copy_to_host(host, stream)
    after.record(stream)
    stream.synchronize()
    np.testing.assert_array_equal(host, np.arange(1000) + 5)
    assert cuda.event_elapsed_time(before, after) >= 0
    managed = cuda.managed_array(100, np.int64)
    managed[:] = 1
    increment[1, 128](managed)
    cuda.synchronize()
    assert managed.sum() == 200
    mapped = cuda.mapped_array(100, np.int64)
    mapped[:] = 2
    increment[1, 128](mapped)
    cuda.synchronize()
    assert mapped.sum() == 300


@check
def cooperative():
    @cuda.jit
    def rounds(x):
        grid = cuda.cg.this_grid()
        i = cuda.grid(1)
        for _ in range(4):
            value = x[(i + 1) % x.size]
            grid.sync()
            x[i] = value
            grid.sync()

    x = np.arange(256, dtype=np.int32)
    rounds[4, 64](x)
    np.testing.assert_array_equal(x, np.roll(np.arange(256), -4))


@check
def random_numbers():
    from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float64

    @cuda.jit
    def draw(states, out):
        i = cuda.grid(1)
        out[i] = xoroshiro128p_uniform_float64(states, i)

    states = create_xoroshiro128p_states(1024, seed=1)
    out = np.zeros(1024)
    draw[8, 128](states, out)
    assert 0.4 < out.mean() < 0.6 and len(np.unique(out)) > 1000


@check
def exceptions():
    @cuda.jit(debug=True, opt=False)
    def checked(x):
        if cuda.grid(1) == 3:
            raise ValueError("three")
        x[0] = 1

    try:
        checked[1, 32](np.zeros(1))
    except ValueError as error:
        assert "three" in str(error)
    else:
        raise AssertionError("no exception")


if __name__ == "__main__":
    run()
