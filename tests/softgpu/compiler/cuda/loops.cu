// Kernels whose threads meet in all kinds of ways; loops.c compares what they give with and without loops. Each
// computes out[i] of every thread from in[], the same whatever the order in which threads run. Those called loops_…
// are in loop form, block_… in block form, fiber_… in thread form.
#include <cooperative_groups.h>

#include "common.cuh"

namespace cg = cooperative_groups;

KERNEL(loops_neighbours)
{
    __shared__ unsigned part[1024];
    unsigned t = linear(), value = in[place()];
    for (int i = 0; i < 5; i++) {
        part[t] = value;
        __syncthreads();
        value = mix(value, part[(t + i + 1) % size()]);
        __syncthreads();
    }
    out[place()] = value;
}

// all threads take part in a barrier that stands in different places of the program
KERNEL(loops_two_places)
{
    __shared__ unsigned part[1024];
    unsigned t = linear(), value = in[place()];
    part[t] = value;
    if (value & 1) {
        __syncthreads();
        value = part[(t + 1) % size()] + 7;
    } else {
        __syncthreads();
        value = part[(t + 2) % size()] * 3;
    }
    out[place()] = value;
}

// threads leave one after the other; the barrier is for those that are left
KERNEL(loops_early_return)
{
    __shared__ unsigned sums[64];
    unsigned t = linear();
    if (t < 64)
        sums[t] = 0;
    __syncthreads();
    out[place()] = 1;
    if (in[place()] % 5 == 0)
        return;
    for (unsigned round = 0; round < 40; round++) {
        atomicAdd(&sums[round], t + 1);
        __syncthreads();
        out[place()] = mix(sums[round], round);
        if (t % 40 == round)
            return;
        __syncthreads();
    }
}

KERNEL(loops_counts)
{
    unsigned value = in[place()], sum = 0;
    for (int i = 0; i < 4; i++) {
        sum = mix(sum, __syncthreads_count(value >> i & 1));
        sum = mix(sum, __syncthreads_and((value & 15u) != 15u) != 0);
        sum = mix(sum, __syncthreads_or((value & 255u) == (unsigned)i) != 0);
    }
    out[place()] = sum;
}

// warps hand over to each other through barriers of their own
KERNEL(loops_named_barriers)
{
    __shared__ unsigned part[1024];
    unsigned t = linear(), pair = t / 64, half = t / 32 % 2;
    bool whole = (pair + 1) * 64 <= size() && pair < 7; // sixteen barriers are what there is
    unsigned value = in[place()];
    for (int i = 0; whole && i < 6; i++) {
        if (half == 0) {
            part[t] = value + i;
            asm volatile("bar.arrive %0, 64;" ::"r"(pair + 1) : "memory");
            asm volatile("bar.sync %0, 64;" ::"r"(pair + 8) : "memory");
            value = mix(value, part[t + 32]);
        } else {
            asm volatile("bar.sync %0, 64;" ::"r"(pair + 1) : "memory");
            part[t] = mix(part[t - 32], value);
            value = part[t];
            asm volatile("bar.arrive %0, 64;" ::"r"(pair + 8) : "memory");
        }
    }
    out[place()] = value;
}

KERNEL(loops_shuffles)
{
    unsigned value = in[place()], lanes = size() - linear() / 32 * 32, lane = linear() % 32;
    unsigned all = lanes >= 32 ? 0xffffffffu : (1u << lanes) - 1;
    value = mix(value, __shfl_down_sync(all, value, 3));
    value = mix(value, __shfl_up_sync(all, value, 1, 8));
    value = mix(value, __shfl_xor_sync(0xffffffff, value, 5, 16));
    value = mix(value, __shfl_sync(all, value, value % 8, 8));
    value = mix(value, __shfl_down_sync(all, value, lane % 4));
    double d = __shfl_xor_sync(all, (double)value, 2);
    for (int step = 16; step > 0; step >>= 1)
        value += __shfl_down_sync(0xffffffff, value, step);
    // lanes that the mask names but do not exist give what is not defined: they are kept out of the result
    out[place()] = lanes >= 32 ? mix(value, (unsigned)d) : (unsigned)all;
}

KERNEL(loops_divergent_shuffles)
{
    unsigned value = in[place()], lane = linear() % 32, whole = size() - linear() / 32 * 32 >= 32;
    if (whole) {
        if (lane < 12)
            value = mix(value, __shfl_sync(0xfff, value, (lane + 5) % 12));
        else if (lane % 2)
            value = mix(value, __shfl_sync(0xaaaaa000, value, 13 + lane % 8 / 2 * 2));
        else
            value = mix(value, __shfl_xor_sync(0x55555000, value, 16) + 1);
        for (unsigned i = 0; i < lane % 3; i++)
            value = mix(value, i);
        __syncwarp();
        value = mix(value, __shfl_up_sync(0xffffffff, value, 2));
    }
    out[place()] = value;
}

KERNEL(loops_votes)
{
    unsigned value = in[place()], lanes = size() - linear() / 32 * 32;
    unsigned all = lanes >= 32 ? 0xffffffffu : (1u << lanes) - 1, sum = 0;
    sum = mix(sum, __ballot_sync(all, value & 1));
    sum = mix(sum, __any_sync(all, value % 31 == 0));
    sum = mix(sum, __all_sync(all, value % 31 != 0));
    sum = mix(sum, __match_any_sync(all, value % 3));
    sum = mix(sum, __match_any_sync(all, (unsigned long long)(value % 2) << 40));
    int same;
    sum = mix(sum, __match_all_sync(all, value / 0x20000000u, &same));
    sum = mix(sum, same);
#if __CUDA_ARCH__ >= 800
    sum = mix(sum, __reduce_add_sync(all, value) ^ __reduce_max_sync(all, value));
    sum = mix(sum, __reduce_min_sync(all, (int)value) ^ __reduce_xor_sync(all, value));
#endif
    if (value & 2)
        sum = mix(sum, __ballot_sync(__match_any_sync(__activemask(), 1), value & 4));
    out[place()] = sum;
}

// lanes of two paths that both begin by asking, and end so
KERNEL(loops_active_masks)
{
    unsigned value = in[place()], mask, sum;
    if (value & 1) {
        mask = __activemask();
        sum = mix(value, 3);
        mask ^= __activemask() * 3;
    } else {
        mask = __activemask();
        sum = mix(value, 5);
        mask ^= __activemask() * 3;
    }
    out[place()] = mix(sum, mask);
}

KERNEL(loops_tiles)
{
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    unsigned value = in[place()];
    if (size() % 32 == 0) {
        for (int step = 4; step > 0; step /= 2)
            value += tile.shfl_down(value, step);
        value = mix(value, tile.any(value & 8));
        tile.sync();
        block.sync();
        value = mix(value, tile.shfl(value, 3));
    }
    out[place()] = value;
}

// what lives across a barrier: predicates, 64 bits, doubles, arrays, the carry of a long sum
KERNEL(loops_registers)
{
    __shared__ unsigned part[1024];
    unsigned t = linear(), value = in[place()], array[8];
    bool odd = value & 1;
    double d = value * 0.5;
    unsigned long long wide = (unsigned long long)value << 17;
    short small = (short)value;
    for (int i = 0; i < 8; i++)
        array[i] = mix(value, i);
    part[t] = value;
    __syncthreads();
    unsigned other = part[(t + 3) % size()];
    array[other % 8] += other;
    __syncthreads();
    part[t] = array[(other >> 3) % 8];
    __syncthreads();
    __int128 sum = ((__int128)wide << 70) + wide * 3;
    sum += part[(t + 1) % size()];
    array[0] ^= odd ? array[other % 8] : array[value % 8];
    out[place()] = mix(mix(array[0], (unsigned)(sum >> 66) ^ (unsigned)sum), (unsigned)(d * 2) + small);
}

KERNEL(loops_sort)
{
    __shared__ unsigned part[1024];
    unsigned t = linear(), n_sorted = 1;
    while (n_sorted * 2 <= size())
        n_sorted *= 2;
    part[t] = in[place()];
    __syncthreads();
    for (unsigned k = 2; k <= n_sorted; k *= 2)
        for (unsigned j = k / 2; j > 0; j /= 2) {
            unsigned other = t ^ j;
            if (other > t && t < n_sorted && (part[t] > part[other]) == ((t & k) == 0)) {
                unsigned swapped = part[t];
                part[t] = part[other];
                part[other] = swapped;
            }
            __syncthreads();
        }
    out[place()] = part[t];
}

KERNEL(loops_choices)
{
    unsigned value = in[place()], lane = linear() % 32, group = __match_any_sync(__activemask(), lane % 4);
    switch (lane % 4) {
    case 0:
        value = mix(value, __shfl_sync(group, value, lane & 3));
        break;
    case 1:
        value = mix(value, __popc(__ballot_sync(group, value & 1)));
        break;
    case 2:
        __syncwarp(group);
        value = mix(value, 2);
        break;
    default:
        for (int i = 0; i < 3; i++)
            value = mix(value, __any_sync(group, value % 7 == (unsigned)i));
        break;
    }
    __syncthreads();
    out[place()] = value;
}

// loops without barriers that are taken side by side
KERNEL(loops_strided)
{
    unsigned sum = 0;
    for (int i = place(); i < n; i += gridDim.x * size())
        sum = mix(sum, in[i]);
    out[place()] = sum;
}

KERNEL(loops_nested)
{
    unsigned sum = 0;
    for (int i = 0; i < n / 256; i++)
        for (int k = 0; k < 5 + n / 512; k++)
            sum = mix(sum, in[i * 37 + k * 3 + linear()] + k);
    out[place()] = sum;
}

KERNEL(loops_partly)
{
    int t = place(), end = 40 + t % 3;
    unsigned sum = in[t];
    for (int i = t; i < n; i += 256)
        sum = mix(sum, in[i % 1024]);
    __shared__ unsigned part[1024];
    part[linear()] = sum;
    __syncthreads();
    for (int i = 0; i < end; i++)
        sum = mix(sum, part[(linear() + i) % size()]);
    out[t] = sum;
}

KERNEL(loops_shared_atomics)
{
    __shared__ unsigned a[16], wide_or;
    __shared__ int least, most;
    __shared__ unsigned long long total;
    __shared__ float fsum;
    unsigned t = linear(), value = in[place()];
    if (t < 16)
        a[t] = t;
    if (t == 0)
        wide_or = 0, least = 1 << 30, most = -(1 << 30), total = 0, fsum = 0;
    __syncthreads();
    atomicAdd(&a[value % 8], value);
    atomicInc(&a[8], 6);
    atomicDec(&a[9], 5);
    atomicXor(&a[10], value);
    atomicAnd(&a[11], value | 9);
    atomicOr(&wide_or, 1u << value % 32);
    atomicMin(&least, (int)value >> 3);
    atomicMax(&most, (int)value >> 3);
    atomicMin(&a[12], value);
    atomicMax(&a[13], value);
    atomicAdd(&total, (unsigned long long)value << 8);
    atomicAdd(&fsum, (float)(value % 16));
    for (unsigned seen = a[14], before; (before = atomicCAS(&a[14], seen, seen + value % 9)) != seen;)
        seen = before;
    __syncthreads();
    unsigned sum = a[t % 15];
    sum = mix(sum, wide_or ^ (unsigned)least ^ (unsigned)most ^ (unsigned)(total >> 5) ^ (unsigned)fsum);
    out[place()] = sum;
}

KERNEL(block_guarded)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = threadIdx.y, z = threadIdx.z;
    if (x < 3 || x >= n / 3 || y == 1 || z > 1)
        return;
    out[place()] = mix(in[place()], x * 3 + y + z);
}

static __device__ __noinline__ unsigned meet(unsigned *part, unsigned t, unsigned value)
{
    part[t] = value;
    __syncthreads();
    value = mix(value, part[(t + 1) % size()]);
    __syncthreads();
    return value;
}

KERNEL(fiber_function)
{
    __shared__ unsigned part[1024];
    unsigned value = in[place()];
    for (int i = 0; i < 3; i++)
        value = meet(part, linear(), value);
    out[place()] = value;
}

KERNEL(loops_waits)
{
    __shared__ volatile unsigned turn;
    unsigned t = linear();
    if (t == 0)
        turn = 0;
    __syncthreads();
    while (turn != size() - 1 - t)
        ;
    out[place()] = turn * 2 + in[place()];
    turn = turn + 1;
}

KERNEL(loops_volatile_scan)
{
    __shared__ volatile unsigned sums[2048];
    unsigned t = linear(), at = t + size();
    sums[t] = 0;
    sums[at] = in[place()];
    for (unsigned step = 1; step < size(); step *= 2) {
        __syncthreads();
        unsigned sum = sums[at] + sums[at - step];
        __syncthreads();
        sums[at] = sum;
    }
    out[place()] = sums[at];
}

KERNEL(loops_until_found)
{
    __shared__ volatile unsigned found;
    unsigned t = linear(), round = 0;
    if (t == 0)
        found = 0;
    do {
        __syncthreads();
        if (in[(t * 7 + round) % 64] % 16 == 3 || round == 40)
            found = 1;
        __syncthreads();
        round++;
    } while (!found);
    out[place()] = mix(round, in[place()]);
}

/* How a lane gets another's value, and whether it does: both go into the sum. */
#define GET(way, distance, clamp)                                                                        \
    asm volatile("{ .reg .pred p; shfl.sync." way ".b32 %0|p, %2, " distance ", " clamp ", 0xffffffff;"  \
                 " selp.u32 %1, 1, 0, p; }"                                                              \
                 : "=r"(got), "=r"(is_other)                                                             \
                 : "r"(value));                                                                          \
    sum = mix(sum, got * 2 + is_other)

KERNEL(loops_even_shuffles)
{
    unsigned value = in[place()], sum = 0, got, is_other;
    GET("bfly", "0", "31");
    GET("bfly", "1", "31");
    GET("bfly", "2", "31");
    GET("bfly", "7", "31");
    GET("bfly", "12", "31");
    GET("bfly", "31", "31");
    GET("bfly", "3", "20");
    GET("down", "0", "31");
    GET("down", "5", "31");
    GET("down", "31", "31");
    GET("down", "5", "27");
    GET("up", "0", "0");
    GET("up", "5", "0");
    GET("up", "31", "0");
    GET("up", "5", "3");
    GET("idx", "0", "31");
    GET("idx", "21", "31");
    GET("idx", "21", "20");
    out[place()] = sum;
}

// warps that count on running instruction by instruction together: volatile shared memory and no barriers
KERNEL(loops_volatile_warp)
{
    __shared__ volatile unsigned s[2048];
    unsigned t = linear(), i = 2 * t - t % 32, value = in[place()];
    for (unsigned k = t; k < 2048; k += size()) // the last warp may have few lanes
        s[k] = 0;
    __syncthreads();
    s[i] = 0;
    i += 32;
    s[i] = value;
    s[i] += s[i - 1];
    s[i] += s[i - 2];
    s[i] += s[i - 4];
    s[i] += s[i - 8];
    s[i] += s[i - 16];
    out[place()] = s[i] - value;
}

// lanes read what others of their warp have written, with nothing between: what they get is what all have written
KERNEL(loops_plain_warp)
{
    __shared__ unsigned s[1024];
    unsigned t = linear(), lane = t % 32, value = in[place()];
    out[place()] = value;
    unsigned next = lane != 31 && t + 1 < size() ? out[place() + 1] : 0;
    s[t] = value;
    if (lane >= 1)
        s[t] += s[t - 1];
    if (lane >= 2)
        s[t] += s[t - 2];
    unsigned sum = s[t], first = 0;
    __syncthreads();
    if (t < 32) {
        s[t] = value;
        if (t == 0)
            first = s[0] + s[size() < 32 ? 0 : 30];
    }
    __syncthreads();
    out[place()] = next + 3 * sum + 5 * first;
}

// the same with a row of places for each warp, found from the thread's warp and lane: sums over lanes
KERNEL(loops_plain_rows)
{
    __shared__ unsigned s[32 * 48];
    unsigned t = linear(), lane = t & 31, *mine = &s[t / 32 * 48 + lane + 16], sum = 0;
    for (unsigned i = t; i < 32 * 48; i += size())
        s[i] = 0;
    __syncthreads();
    for (int i = 0; i < 3; i++) {
        *mine = in[place()] + i;
        __threadfence_block();
        *mine += mine[-1];
        __threadfence_block();
        *mine += mine[-2];
        __threadfence_block();
        *mine += mine[-4];
        __threadfence_block();
        *mine += mine[-8];
        __threadfence_block();
        *mine += mine[-16];
        __threadfence_block();
        sum = 7 * sum + mine[-1];
    }
    out[place()] = sum;
}

// lanes store to places that others have stored to before, with nothing between: theirs stay
KERNEL(loops_overwritten)
{
    __shared__ __align__(16) unsigned s[4096];
    unsigned t = linear(), lane = t % 32, *row = &s[t - lane], *rows = &s[4 * (t - lane)], value = in[place()], sum;
    *(uint4 *)&s[4 * t] = make_uint4(0, 0, 0, 0);
    rows[(lane * 4 + 5) % 128] = value;
    __syncthreads();
    sum = rows[(lane * 4 + 5) % 128];
    __syncthreads();
    for (unsigned k = t; k < 2048; k += size()) // the last warp may have few lanes
        s[k] = 0;
    __syncthreads();
    s[t] = 3 * value;
    if (value & 64)
        row[(lane * 5 + 2) % 32] = value;
    __syncthreads();
    sum = 7 * sum + s[t];
    __syncthreads();
    s[t] = value;
    if (lane == 2)
        s[t + 3] = 9;
    if (lane == 11)
        row[value % 8 + 20] = 5;
    __syncthreads();
    out[place()] = 7 * sum + s[t];
}

// a variable of each thread's own is where its alignment says
KERNEL(loops_aligned_local)
{
    __align__(512) unsigned few[8];
    unsigned t = linear(), value = in[place()];
    for (unsigned i = 0; i < 8; i++)
        few[(i + value) % 8] = value + i;
    size_t at; // as nvcc knows what it should be
    asm volatile("mov.u64 %0, %1;" : "=l"(at) : "l"(few));
    __syncthreads();
    out[place()] = few[t % 8] + (unsigned)(at % 512) * 1000;
}

// eight lanes take what lies in one place, and leave a mark there
KERNEL(loops_marks)
{
    __shared__ unsigned s[1024 / 8];
    unsigned t = linear(), *place_of_row = &s[t / 8];
    if (t % 8 == 0)
        *place_of_row = in[place()];
    __syncthreads();
    unsigned taken = *place_of_row;
    if (t != 77)
        *place_of_row = 5;
    __syncthreads();
    out[place()] = taken + *place_of_row;
}

// masks that disagree: each lane names those below it
KERNEL(loops_masks_of_lower_lanes)
{
    unsigned lane = linear() % 32, below = (1u << lane) - 1, value = in[place()], sum = 0;
    for (int i = 0; i < 8; i++) {
        sum += __popc(__ballot_sync(below, value >> i & 1)) << 4 * i / 2;
        if (i % 4 == 2)
            __syncthreads();
    }
    out[place()] = sum;
}

// lanes that begin again with all others meet those that still have turns left, at one instruction
KERNEL(loops_masks_of_turns)
{
    unsigned lane = linear() % 32, turns = in[place()] >> 7, left = turns % 5, mask = ~0u, sum = 0, round = 0;
#pragma unroll 1
    while (round < 3) {
        unsigned more = __ballot_sync(mask, left > 0);
        sum = mix(sum, more);
        if (more >> lane & 1) {
            left--;
            mask = more;
        } else {
            left = (turns + ++round) % 5;
            mask = ~0u;
        }
    }
    __syncthreads();
    out[place()] = sum;
}

// the same with one lane a group, of which the first has no turns of its own: at first no two lanes name the same mask
KERNEL(loops_masks_of_turns_of_one)
{
    unsigned lane = linear() % 32, own = 1u << lane, value = in[place()], turns = lane == 0 ? 0 : 1 + (value >> 7 & 3), sum = 0;
#pragma unroll 1
    for (unsigned i = 0; i <= turns; i++)
        sum = mix(sum, __ballot_sync(i < turns ? own : ~0u, value % 2 == 0));
    out[place()] = sum;
}

KERNEL(loops_elected)
{
    unsigned lane = linear() % 32;
    out[place()] = 7;
    if (lane < 3)
        return;
    unsigned leader, chosen;
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred p; elect.sync %0|p, -1; selp.u32 %1, 100, 0, p; }" : "=r"(leader), "=r"(chosen));
#else
    leader = __ffs(__ballot_sync(~0u, 1)) - 1, chosen = lane == leader ? 100 : 0;
#endif
    out[place()] = leader + chosen;
}

KERNEL(loops_volatile_tree)
{
    __shared__ unsigned part[1024 + 64];
    unsigned t = linear();
    for (unsigned i = t; i < 1024 + 64; i += size())
        part[i] = 0;
    __syncthreads();
    part[t % 64] = in[place()];
    __syncthreads();
    if (t < 32) {
        volatile unsigned *p = part;
        p[t] += p[t + 32];
        p[t] += p[t + 16];
        p[t] += p[t + 8];
        p[t] += p[t + 4];
        p[t] += p[t + 2];
        p[t] += p[t + 1];
    }
    __syncthreads();
    out[place()] = size() <= 64 ? part[0] : 1;
}

// some lanes of a warp add to others' places, then some to others still: those that only do so wait for the rest
KERNEL(loops_volatile_parts)
{
    __shared__ volatile unsigned marks[1024];
    __shared__ unsigned sums[1024];
    unsigned t = linear(), value = in[place()], row = t & ~31u;
    marks[t] = sums[t] = 0;
    __syncwarp();
    if (value & 1) {
        marks[row + t * 5 % 32] = 1;
        sums[row + t * 5 % 32] += value;
        value = mix(value, in[value % 64]);
    }
    if (value & 2) {
        marks[row + (t * 11 + 7) % 32] = 1;
        sums[row + (t * 11 + 7) % 32] += value;
        value = mix(value, in[value % 32]);
    }
    __syncwarp();
    out[place()] = sums[t] + marks[t] + value;
}

// lanes leave a loop after different turns: those that have left wait for the rest
KERNEL(loops_volatile_leaving)
{
    __shared__ volatile unsigned s[1024];
    unsigned t = linear(), value = in[place()], row = t & ~31u;
    s[t] = value;
    __syncwarp();
#pragma unroll 1
    for (unsigned i = 0; i <= (value >> 9 & 7); i++)
        s[row + (t * 5 + 3) % 32] += value;
    s[row + (t * 3 + 1) % 32] ^= value;
    __syncwarp();
    out[place()] = s[t];
}

KERNEL(loops_volatile_turns)
{
    __shared__ volatile unsigned s[1024];
    unsigned t = linear(), lane = t % 32;
    s[t] = in[place()];
#pragma unroll 1
    for (unsigned d = 1; d < 32; d *= 2) {
        unsigned value = s[t];
        if (lane >= d)
            value = mix(value, s[t - d]);
        s[t] = value;
    }
    out[place()] = s[t];
}

// what is read plainly before others overwrite it
KERNEL(loops_volatile_in_place)
{
    __shared__ unsigned part[2048];
    unsigned t = linear(), i = 2 * t - t % 32;
    for (unsigned k = t; k < 2048; k += size())
        part[k] = 0;
    __syncthreads();
    part[t] = in[place()];
    __syncthreads();
    if (t < 32) {
        volatile unsigned *s = part + 1024;
        unsigned value = part[t];
        s[i] = 0;
        i += 32;
        s[i] = value;
        s[i] += s[i - 1];
        s[i] += s[i - 2];
        part[t] = s[i];
    }
    __syncthreads();
    out[place()] = part[t];
}

static __device__ __noinline__ unsigned shift(volatile unsigned *s, unsigned t, unsigned value)
{
    s[t] = value;
    unsigned next = s[t ^ 1 & t];
    s[t] = value + next;
    return s[t];
}
KERNEL(fiber_volatile_call)
{
    __shared__ unsigned part[1024];
    out[place()] = shift(part, linear(), in[place()]);
}

// the loop's counter is wanted behind it, where the threads meet
KERNEL(loops_stride_counter)
{
    __shared__ unsigned part[1024];
    unsigned sum = 1;
    int i = place();
    for (; i < n; i += gridDim.x * size())
        sum = mix(sum, in[i]);
    part[linear()] = sum + i;
    __syncthreads();
    out[place()] = mix(part[(linear() + 3) % size()], i);
}

// what is read decides who goes on
KERNEL(loops_stride_break)
{
    unsigned sum = 2;
    for (int i = place(), k = 7; i < n; i += gridDim.x * size(), k += 3) {
        sum = mix(sum, in[i] + k);
        if (sum % 5 == 0)
            break;
    }
    __syncthreads();
    out[place()] = sum;
}

// nvcc makes four turns one, and a loop for the rest, whose number is a quotient
KERNEL(loops_stride_copy)
{
    for (int i = place(); i < n; i += gridDim.x * size())
        out[i] = in[i] ^ 0x5a5a5a5a;
}

KERNEL(loops_stride_of_bytes)
{
    for (int i = place(); i < n * 2; i += gridDim.x * size())
        ((unsigned char *)out)[i] = ((const unsigned char *)in)[i];
}

// the counter overflows, for the threads of a row in different turns
KERNEL(loops_stride_overflow)
{
    unsigned sum = 3;
    for (unsigned i = place() + 0xfffff000u; i > 0x80000000u; i += gridDim.x * size())
        sum = mix(sum, in[i & 1023]);
    out[place()] = sum;
    __syncthreads();
}

KERNEL(loops_tree)
{
    __shared__ unsigned part[1024];
    unsigned t = linear();
    part[t] = in[place()];
    __syncthreads();
    for (unsigned s = size() / 2; s > 0; s >>= 1) {
        if (t < s)
            part[t] = mix(part[t], part[t + s]);
        __syncthreads();
    }
    out[place()] = t == 0 ? part[0] : t > 5 && t <= 9 ? part[t] : t;
}

KERNEL(loops_last_warp)
{
    __shared__ unsigned part[1024];
    unsigned t = linear(), sum = in[place()], lanes = size() < 32 ? (1u << size()) - 1 : ~0u;
    part[t] = sum;
    __syncthreads();
    if (t < 32) {
        sum += part[(t + 32) % size()];
        for (int step = 16; step > 0; step >>= 1)
            sum += __shfl_xor_sync(lanes, sum, step) & 0xffff;
    }
    out[place()] = size() < 32 ? t : sum;
}

// tests of several kinds, what stands before them, and what is written on both sides
KERNEL(block_tests)
{
    int i = place(), end = n / 4;
    long long far = (long long)i * 8 - 1024;
    out[i] = i;
    if (i < 5 || i >= end || far == 4096 || threadIdx.x == 3)
        return;
    out[i] = mix(in[i], far < 2048 ? in[i + 1] : 7u);
}
