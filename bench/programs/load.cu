/*
 * load.cu - does one thing as often as it can between two points of time, in several threads, each with a stream of its
 * own: for many at once, to see what they get together and whether they get it in equal parts.
 *
 *   load launches|calls|copies [--threads N] [OPTION…]     (step.h; without --steps and --warm)
 *
 * launches: kernels that do next to nothing, waited for once in BATCH. calls: a launch and its result, waited for each time.
 * copies: 1 MiB to the device from page-locked memory, waited for each time.
 * When all threads are set up it says "ready" and reads the two points of time, ns of CLOCK_MONOTONIC, from stdin. Then it
 * prints {"kind", "threads", "counts": [of each thread, of what was done before the end]}. Each thread compares what its
 * memory holds then with what its work comes to.
 */
#include "step.h"

#include <chrono>
#include <string>
#include <thread>

enum { BATCH = 200, VALUES = 32, COPY = 1 << 20 };
enum kind { LAUNCHES, CALLS, COPIES };

struct add_one {
    uint32_t *values;
    __host__ __device__ void operator()(int i) const
    {
        values[i] += 1;
    }
};

/* A thread: its stream, its memory, what it has done. */
class Worker
{
  public:
    Worker(const struct step_run &run, enum kind what) : place(step_device(run)), kind(what)
    {
        values = place.memory<uint32_t>(kind == COPIES ? (size_t)COPY / sizeof *values : (size_t)VALUES);
        host = step_pinned<uint32_t>(kind == COPIES ? (size_t)COPY / sizeof *host : 1);
        once();
        place.launches = 0;
    }

    void until(uint64_t end)
    {
        for (;;) {
            const uint64_t done = once();
            if (step_now_ns() > end)
                return;
            count += done;
        }
    }

    /* Copies are compared at the end, so that comparing is not what is measured. */
    void check()
    {
        if (kind != COPIES)
            return;
        std::vector<uint32_t> back(COPY / sizeof *values);
        CHECK(cudaMemcpyAsync(back.data(), values, COPY, cudaMemcpyDeviceToHost, place.stream));
        CHECK(cudaStreamSynchronize(place.stream));
        if (memcmp(back.data(), host, COPY) != 0)
            step_fail("load: after %u copies the device's memory is not the host's", turns);
    }

    uint64_t count = 0;

  private:
    /* One turn; how much it was. */
    uint64_t once()
    {
        const int launches = kind == LAUNCHES ? BATCH : kind == CALLS ? 1 : 0;
        turns++;
        for (int i = 0; i < launches; i++)
            place.run(add_one{values}, VALUES);
        if (kind == COPIES) {
            host[turns % (COPY / sizeof *host)] = turns;
            CHECK(cudaMemcpyAsync(values, host, COPY, cudaMemcpyHostToDevice, place.stream));
        } else {
            CHECK(cudaMemcpyAsync(host, values + VALUES - 1, sizeof *host, cudaMemcpyDeviceToHost,
                                  place.stream));
        }
        CHECK(cudaStreamSynchronize(place.stream));
        if (kind != COPIES && *host != turns * (uint32_t)launches)
            step_fail("load: turn %u gave %u, not %u", turns, *host, turns * (uint32_t)launches);
        return kind == COPIES ? (uint64_t)COPY : (uint64_t)launches;
    }

    struct step_place place;
    enum kind kind;
    uint32_t *values, *host;
    uint32_t turns = 0;
};

int main(int argc, char **argv)
{
    const char *const names[] = {"launches", "calls", "copies"};
    int what = 0;
    while (what < 3 && (argc < 2 || strcmp(argv[1], names[what]) != 0))
        what++;
    if (what == 3) {
        fprintf(stderr, "usage: load launches|calls|copies [OPTION…]\n");
        return 2;
    }
    double n = 1;
    const struct step_run run = step_begin("load", argc - 1, argv + 1, {{"--threads", &n, 1, 4096}}, 0);
    std::vector<Worker *> workers((size_t)n);
    std::vector<std::thread> threads;
    for (Worker *&worker : workers)
        threads.emplace_back([&worker, &run, what] { worker = new Worker(run, (enum kind)what); });
    for (std::thread &thread : threads)
        thread.join();
    threads.clear();

    unsigned long long begin, end;
    printf("ready\n");
    fflush(stdout);
    if (scanf("%llu %llu", &begin, &end) != 2)
        step_fail("load: stdin ended before it told when to begin and to end");
    for (Worker *worker : workers)
        threads.emplace_back([worker, begin, end] {
            for (uint64_t now; (now = step_now_ns()) < begin;)
                std::this_thread::sleep_for(std::chrono::nanoseconds(begin - now));
            worker->until(end);
        });
    for (std::thread &thread : threads)
        thread.join();
    std::string counts;
    for (Worker *worker : workers) {
        worker->check();
        counts += (counts.empty() ? "" : ",") + std::to_string(worker->count);
    }
    printf("{\"kind\":\"%s\",\"threads\":%d,\"counts\":[%s]}\n", names[what], (int)n, counts.c_str());
}
