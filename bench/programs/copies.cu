/*
 * copies.cu - a program bound by copies: a batch to the device, three kernels over it, and a quarter of it back.
 *
 * From pageable memory with cudaMemcpy, which returns when the source may change and the result is there; with --pinned
 * with cudaMemcpyAsync and one wait at the end. Either way the step has one result. Every byte is compared.
 *
 *   copies [--pinned] [--bytes N] [OPTION…]     (step.h)
 */
#include "step.h"

enum { KERNELS = 3 };

int main(int argc, char **argv)
{
    double pinned = 0, bytes = 4 << 20;
    struct step_run run =
        step_begin("copies", argc, argv, {{"--pinned", &pinned, 0, 1}, {"--bytes", &bytes, 16, 1e9}}, 0);
    const size_t n = (size_t)bytes / sizeof(uint32_t), n_back = n / 4;
    struct step_place device = step_device(run);
    uint32_t *values = device.memory<uint32_t>(n);
    std::vector<uint32_t> pageable_in(n), pageable_out(n_back);
    uint32_t *in = pageable_in.data(), *out = pageable_out.data();
    if (pinned) {
        run.program = "copies --pinned";
        in = step_pinned<uint32_t>(n);
        out = step_pinned<uint32_t>(n_back);
    } else {
        device.stream = nullptr; /* the one that cudaMemcpy is ordered with */
    }
    CHECK(cudaDeviceSynchronize());

    std::vector<uint64_t> ns;
    uint64_t digest = STEP_DIGEST_START;
    for (int step = 0; step < run.warm + run.steps; step++) {
        for (size_t i = 0; i < n; i++)
            in[i] = (uint32_t)i * 2654435761u ^ (uint32_t)step;
        const uint64_t begin = step_now_ns();
        if (pinned) {
            CHECK(cudaMemcpyAsync(values, in, n * sizeof *in, cudaMemcpyHostToDevice, device.stream));
        } else {
            CHECK(cudaMemcpy(values, in, n * sizeof *in, cudaMemcpyHostToDevice));
        }
        for (int k = 0; k < KERNELS; k++)
            device.run(step_turn{values, 1664525u, (uint32_t)k}, (int)n);
        if (pinned) {
            CHECK(cudaMemcpyAsync(out, values, n_back * sizeof *out, cudaMemcpyDeviceToHost, device.stream));
            CHECK(cudaStreamSynchronize(device.stream));
        } else {
            CHECK(cudaMemcpy(out, values, n_back * sizeof *out, cudaMemcpyDeviceToHost));
        }
        if (step >= run.warm)
            ns.push_back(step_now_ns() - begin);
        for (size_t i = 0; i < n_back; i++) {
            uint32_t expected = in[i];
            for (uint32_t k = 0; k < KERNELS; k++)
                expected = expected * 1664525u + k + (uint32_t)i;
            if (out[i] != expected)
                step_fail("%s: element %zu of step %d is %u, not %u", run.program, i, step, out[i], expected);
        }
        step_digest(&digest, out[n_back - 1]);
    }
    step_report(run, 1, KERNELS, 1, ns, digest);
}
