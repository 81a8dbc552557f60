"""Arrays of CuPy that come and go, with memory of its pool, of the driver's pool, or without any; says what it computed and had.

usage: cupy_pool.py pool|ordered|plain
"""

import sys

import cupy as cp

STEPS = 4
SIZES = (1000, 70_000, 300_001, 1_000_000, 12_345)


def main(way):
    pool = cp.cuda.MemoryPool() if way == "pool" else None
    allocators = {"pool": pool and pool.malloc, "ordered": cp.cuda.malloc_async, "plain": None}
    cp.cuda.set_allocator(allocators[way])
    kept = []
    try:
        for step in range(STEPS):
            for size in SIZES:
                a = cp.arange(size, dtype=cp.float32) % 97
                b = a * 2 + step
                kept.append(b[: size // 2].copy())
                del a, b
            kept = kept[len(kept) // 3:]
            print("step %d: %d arrays, %.0f" % (step, len(kept), sum(float(part.sum()) for part in kept)), flush=True)
        if pool:
            print("pool: %d bytes" % pool.total_bytes())
    except cp.cuda.memory.OutOfMemoryError:
        print("out of memory")
        return 3
    except cp.cuda.runtime.CUDARuntimeError as error:
        if error.status != 2:
            raise
        print("out of memory")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
