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
