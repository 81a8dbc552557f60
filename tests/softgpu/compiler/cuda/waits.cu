// Kernels whose threads wait for what others write: on barriers in shared memory, for other blocks, for locks. As loops.cu;
// all of them go on from what an earlier launch has left in their variables.
#include <cuda/barrier>

#include "common.cuh"

using block_barrier = cuda::barrier<cuda::thread_scope_block>;

KERNEL(loops_barrier_object)
{
    __shared__ unsigned part[1024];
    __shared__ block_barrier barrier;
    unsigned t = linear(), value = in[place()];
    if (t == 0)
        init(&barrier, size());
    __syncthreads();
    for (int i = 0; i < 4; i++) {
        part[t] = value;
        barrier.arrive_and_wait();
        value = mix(value, part[(t + i + 1) % size()]);
        barrier.arrive_and_wait();
    }
    out[place()] = value;
}

// what is done between arriving and waiting; threads that leave do not count any more
KERNEL(loops_barrier_split)
{
    __shared__ unsigned part[1024];
    __shared__ block_barrier barrier;
    unsigned t = linear(), value = in[place()];
    if (t == 0)
        init(&barrier, size());
    part[t] = value;
    __syncthreads();
    for (int i = 0; i < 5; i++) {
        if (t % 5 == 4 && i == (int)t % 3) {
            barrier.arrive_and_drop();
            out[place()] = value + i;
            return;
        }
        auto token = barrier.arrive();
        value = mix(value, i);
        if (value & 4)
            value = mix(value, t);
        barrier.wait(static_cast<block_barrier::arrival_token &&>(token));
        part[t] += i;
    }
    out[place()] = value + part[t];
}

// some threads fill what the others take, by two barriers
KERNEL(loops_roles)
{
    __shared__ unsigned part[1024];
    __shared__ block_barrier full, empty;
    unsigned t = linear(), sum = in[place()];
    if (t == 0) {
        init(&full, size());
        init(&empty, size());
    }
    __syncthreads();
    if (t % 3 == 0) {
        for (int i = 0; i < 6; i++) {
            empty.arrive_and_wait();
            for (unsigned k = t; k < t + 3 && k < 1024; k++)
                part[k] = mix(sum, k * 7 + i);
            (void)full.arrive();
        }
    } else {
        for (int i = 0; i < 6; i++) {
            (void)empty.arrive();
            full.arrive_and_wait();
            sum = mix(sum, part[t]);
        }
    }
    out[place()] = sum;
}

static __device__ unsigned arrived;
static __device__ unsigned board[4096];

static __device__ void grid_barrier()
{
    __threadfence();
    __syncthreads();
    if (linear() == 0) {
        unsigned target = (atomicAdd(&arrived, 1) / gridDim.x + 1) * gridDim.x;
        while (*(volatile unsigned *)&arrived < target)
            ;
        __threadfence();
    }
    __syncthreads();
}

KERNEL(loops_grid_barrier)
{
    unsigned value = in[place()], count = gridDim.x * size();
    for (unsigned i = 1; i < 5; i++) {
        board[place()] = value;
        grid_barrier();
        value = mix(value, *(volatile unsigned *)&board[(place() + i * 37) % count]);
        grid_barrier();
    }
    out[place()] = value;
}

static __device__ unsigned together;

// all threads of the block go back to look again, and meet on the way
KERNEL(loops_grid_barrier_together)
{
    __shared__ unsigned target, seen;
    unsigned value = in[place()], count = gridDim.x * size();
    for (unsigned i = 1; i < 4; i++) {
        board[place()] = value;
        __threadfence();
        __syncthreads();
        if (linear() == 0)
            target = (atomicAdd(&together, 1) / gridDim.x + 1) * gridDim.x;
        do {
            __syncthreads();
            if (linear() == 0)
                seen = *(volatile unsigned *)&together;
            __syncthreads();
        } while (seen < target);
        value = mix(value, *(volatile unsigned *)&board[(place() + i * 37) % count]);
        grid_barrier();
    }
    out[place()] = value;
}

static __device__ unsigned whose, chain;

// block after block, each from what the one before has left
KERNEL(loops_one_after_the_other)
{
    __shared__ unsigned before;
    if (linear() == 0) {
        while (*(volatile unsigned *)&whose % gridDim.x != blockIdx.x)
            __nanosleep(50);
        __threadfence();
        before = blockIdx.x == 0 ? 1 : *(volatile unsigned *)&chain;
        *(volatile unsigned *)&chain = mix(before, in[place()]);
        __threadfence();
        atomicAdd(&whose, 1);
    }
    __syncthreads();
    out[place()] = mix(before, linear());
}

// every thread of the block looks by itself
KERNEL(loops_all_look)
{
    while (*(volatile unsigned *)&whose % gridDim.x != blockIdx.x)
        ;
    __syncthreads();
    if (linear() == 0)
        atomicAdd(&whose, 1);
    out[place()] = in[place()] + blockIdx.x;
}

static __device__ unsigned lock, inside, total;

KERNEL(loops_lock)
{
    unsigned most = 0;
    for (int i = 0; i < 2; i++) {
        while (atomicCAS(&lock, 0, 1) != 0)
            ;
        __threadfence();
        unsigned now = *(volatile unsigned *)&inside + 1;
        *(volatile unsigned *)&inside = now;
        most = now > most ? now : most;
        *(volatile unsigned *)&total += in[place()] & 7;
        *(volatile unsigned *)&inside = now - 1;
        __threadfence();
        atomicExch(&lock, 0);
    }
    out[place()] = most;
}

// a thread waits for the one before it in its warp, and for the warp before
KERNEL(loops_threads_in_a_row)
{
    __shared__ volatile unsigned done, value;
    unsigned t = linear();
    if (t == 0)
        done = value = 0;
    __syncthreads();
    while (done != t)
        ;
    value = mix(value, in[place()]);
    out[place()] = value;
    __threadfence_block();
    done = t + 1;
}

static __device__ unsigned flags[3 * 32];

// all lanes store, there is a fence, and one lane tells the next block for all
KERNEL(loops_one_lane_tells)
{
    unsigned t = linear(), warp = t / 32, next = (blockIdx.x + 1) % gridDim.x;
    unsigned others = size() - warp * 32 < 32 ? size() - warp * 32 : 32;
    volatile unsigned *data = board;
    unsigned turn = *(volatile unsigned *)&flags[blockIdx.x * 32 + warp]; // its own block's alone writes it
    __syncthreads();
    data[place()] = in[place()];
    __threadfence();
    if (t % 32 == 0)
        *(volatile unsigned *)&flags[blockIdx.x * 32 + warp] = turn + 1;
    unsigned sum = 0;
    while (*(volatile unsigned *)&flags[next * 32 + warp] < turn + 1)
        ;
    __threadfence();
    for (unsigned i = 0; i < others; i++)
        sum += data[next * size() + warp * 32 + i];
    grid_barrier();
    out[place()] = sum;
}

// one lane of a warp waits for the others, which are told of each other meanwhile
KERNEL(loops_waits_and_activemask)
{
    __shared__ volatile unsigned go[32];
    unsigned t = linear(), warp = t / 32, sum = 0;
    if (t % 32 == 0)
        go[warp] = 0;
    __syncthreads();
    if (t % 32 != 4) {
        unsigned mask = __activemask();
        for (unsigned rest = mask; rest != 0; rest &= rest - 1)
            sum += __shfl_sync(mask, in[place()] & 255, __ffs(rest) - 1);
        if (t % 32 == 0)
            go[warp] = 1;
    } else {
        while (go[warp] == 0)
            ;
        sum = 9;
    }
    out[place()] = sum;
}

// each waits until all behind it are done, by operations that change nothing
KERNEL(loops_look_by_operations)
{
    __shared__ unsigned done;
    __shared__ int signed_done;
    unsigned t = linear(), left = size() - 1 - t;
    if (t == 0)
        done = signed_done = 0;
    __syncthreads();
    switch (t % 7) {
    case 0:
        while (atomicOr(&done, 0) < left)
            ;
        break;
    case 1:
        while (atomicAnd(&done, ~0u) < left)
            ;
        break;
    case 2:
        while (atomicMax(&done, 0u) < left)
            ;
        break;
    case 3:
        while (atomicMin(&done, ~0u) < left)
            ;
        break;
    case 4:
        while (atomicMax(&signed_done, -2147483647 - 1) < (int)left)
            ;
        break;
    case 5:
        while (atomicMin(&signed_done, 2147483647) < (int)left)
            ;
        break;
    default:
        while (atomicSub(&done, 0) < left)
            ;
        break;
    }
    atomicAdd(&signed_done, 1);
    out[place()] = atomicAdd(&done, 1);
}

static __device__ unsigned from_behind[3];

static __device__ __noinline__ unsigned peek(const unsigned *from)
{
    return *(const volatile unsigned *)from;
}
static __device__ __noinline__ unsigned peek_twice(const unsigned *from)
{
    return peek(from) & peek(from);
}
static __device__ __noinline__ unsigned look_by_atomic(const unsigned *from)
{
    return atomicOr((unsigned *)from, 0);
}

// the function that looks is called again and again
KERNEL(loops_look_in_function)
{
    unsigned t = linear(), start = peek(&from_behind[blockIdx.x % 3]);
    __syncthreads();
    while (peek_twice(&from_behind[blockIdx.x % 3]) - start != size() - 1 - t)
        ;
    out[place()] = in[place()] + atomicAdd(&from_behind[blockIdx.x % 3], 1) - start;
}

static __device__ __noinline__ unsigned add(unsigned *to, unsigned value)
{
    return atomicAdd(to, value);
}

// as without optimisation, where each atomic operation is a function
KERNEL(loops_look_by_adding_nothing)
{
    __shared__ unsigned done;
    unsigned t = linear();
    if (t == 0)
        done = 0;
    __syncthreads();
    while (add(&done, 0) != size() - 1 - t)
        ;
    out[place()] = in[place()] + add(&done, 1);
}

static __device__ unsigned (*const look[2])(const unsigned *) = {peek, look_by_atomic};

KERNEL(loops_look_through_pointer)
{
    unsigned t = linear(), start = peek(&from_behind[blockIdx.x % 3]);
    __syncthreads();
    while (look[in[place()] % 2](&from_behind[blockIdx.x % 3]) - start != size() - 1 - t)
        ;
    out[place()] = in[place()] + atomicAdd(&from_behind[blockIdx.x % 3], 1) - start;
}

// ordinary loads, which fences keep in the loop
KERNEL(loops_look_behind_fence)
{
    __shared__ unsigned done;
    unsigned t = linear();
    if (t == 0)
        done = 0;
    __syncthreads();
    while (done != size() - 1 - t)
        __threadfence_block();
    out[place()] = in[place()] * 2;
    atomicAdd(&done, 1);
}

static __device__ unsigned seen_through[3];

// loads past the nearer caches
KERNEL(loops_look_through_caches)
{
    unsigned *from = &seen_through[blockIdx.x % 3], t = linear(), start = *(volatile unsigned *)from, now;
    __syncthreads();
    do
        if (t % 2)
            asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(now) : "l"(from) : "memory");
        else
            now = __ldcv(from);
    while (now - start != size() - 1 - t);
    out[place()] = in[place()] + t;
    atomicAdd(from, 1);
}

static __device__ __noinline__ void wait_for_turn(unsigned own)
{
    while (*(volatile unsigned *)&whose % gridDim.x != own)
        ;
}

KERNEL(fiber_function)
{
    if (linear() == 0)
        wait_for_turn(blockIdx.x);
    __syncthreads();
    if (linear() == 0)
        atomicAdd(&whose, 1);
    out[place()] = in[place()] * 3;
}

// plain loads, with barriers between
KERNEL(loops_meet_between_looks)
{
    while (__syncthreads_or(whose % gridDim.x != blockIdx.x))
        ;
    out[place()] = in[place()] * 5;
    __syncthreads();
    if (linear() == 0)
        atomicAdd(&whose, 1);
}

KERNEL(loops_one_looks_for_all)
{
    __shared__ unsigned seen;
    for (;;) {
        if (linear() == 0)
            seen = whose % gridDim.x;
        __syncthreads();
        unsigned now = seen;
        __syncthreads();
        if (now == blockIdx.x)
            break;
    }
    out[place()] = in[place()] * 7;
    __syncthreads();
    if (linear() == 0)
        atomicAdd(&whose, 1);
}

static __device__ __noinline__ void fence_apart()
{
    __threadfence();
}

static __device__ __noinline__ unsigned look_apart(const unsigned *at)
{
    return *at;
}

// as without optimisation
KERNEL(loops_fence_in_function)
{
    if (linear() == 0)
        while (look_apart(&whose) % gridDim.x != blockIdx.x)
            fence_apart();
    __syncthreads();
    out[place()] = in[place()] * 9;
    __syncthreads();
    if (linear() == 0)
        atomicAdd(&whose, 1);
}
