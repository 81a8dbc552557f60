/*
 * A small network is trained on all devices at once, each with its part of the samples: gradients are added up by NCCL, and every
 * device takes the same step. First one device trains it with all samples: the losses must be the same but for the order of
 * additions, and at the end all devices must have the same weights, bit for bit.
 *
 * With RANK RANKS ID_FILE, the processes of a job train together, each with all its devices, which are as many for each; the first
 * one writes NCCL's id into ID_FILE. Each prints its losses and has the same ones.
 *
 * The network has 8 inputs, 24 hidden units (tanh) and one output; the loss is the mean of the squares of the errors.
 */
#include "example_nccl.h"

#include <chrono>
#include <math.h>
#include <string>
#include <thread>
#include <vector>

#define INPUTS  8
#define HIDDEN  24
#define WEIGHTS (HIDDEN * (INPUTS + 1) + HIDDEN + 1) /* of hidden units with biases, then of the output */
#define SAMPLES 512
#define RATE    0.1f

struct replica {
    int device;
    int samples;
    ncclComm_t comm;
    cudaStream_t stream;
    float *inputs, *targets; /* of its samples */
    float *weights;
    float *hidden, *errors; /* of each sample */
    float *gradients;       /* and behind them the sum of the squares of the errors */
};

/* What the network makes of a sample: a thread each. */
__global__ void forward(const float *inputs, const float *targets, const float *weights, float *hidden,
                        float *errors, int samples)
{
    int s = blockIdx.x * blockDim.x + threadIdx.x;

    if (s >= samples) {
        return;
    }
    const float *outer = weights + HIDDEN * (INPUTS + 1);
    float output = outer[HIDDEN];
    for (int h = 0; h < HIDDEN; h++) {
        const float *own = weights + h * (INPUTS + 1);
        float sum = own[INPUTS];
        for (int i = 0; i < INPUTS; i++) {
            sum += own[i] * inputs[s * INPUTS + i];
        }
        hidden[s * HIDDEN + h] = tanhf(sum);
        output += outer[h] * hidden[s * HIDDEN + h];
    }
    errors[s] = output - targets[s];
}

/* The gradient of a weight, over the device's samples in their order: a thread each. */
__global__ void backward(const float *inputs, const float *weights, const float *hidden, const float *errors,
                         float *gradients, int samples)
{
    int w = blockIdx.x * blockDim.x + threadIdx.x;
    const float *outer = weights + HIDDEN * (INPUTS + 1);
    float sum = 0;

    if (w > WEIGHTS) {
        return;
    }
    for (int s = 0; s < samples; s++) {
        if (w == WEIGHTS) {
            sum += errors[s] * errors[s];
        } else if (w >= HIDDEN * (INPUTS + 1)) {
            int h = w - HIDDEN * (INPUTS + 1);
            sum += 2 * errors[s] * (h == HIDDEN ? 1 : hidden[s * HIDDEN + h]);
        } else {
            int h = w / (INPUTS + 1), i = w % (INPUTS + 1);
            float unit = hidden[s * HIDDEN + h];
            sum += 2 * errors[s] * outer[h] * (1 - unit * unit) * (i == INPUTS ? 1 : inputs[s * INPUTS + i]);
        }
    }
    gradients[w] = sum;
}

__global__ void step(float *weights, const float *gradients)
{
    int w = blockIdx.x * blockDim.x + threadIdx.x;

    if (w < WEIGHTS) {
        weights[w] -= RATE / SAMPLES * gradients[w];
    }
}

static float number(unsigned i)
{
    return (float)(example_mix(i) >> 8) / (1 << 23) - 1;
}

/* Gives a device the samples from `first` on, and the weights that all begin with. */
static void prepare(replica &replica, int first)
{
    std::vector<float> inputs(replica.samples * INPUTS), targets(replica.samples), weights(WEIGHTS);

    for (int s = 0; s < replica.samples; s++) {
        float sum = 0;
        for (int i = 0; i < INPUTS; i++) {
            inputs[s * INPUTS + i] = number((unsigned)((first + s) * INPUTS + i));
            sum += inputs[s * INPUTS + i] * (i % 2 ? 1 : -1);
        }
        targets[s] = sinf(sum);
    }
    for (int w = 0; w < WEIGHTS; w++) {
        weights[w] = 0.5f * number(1000000u + (unsigned)w);
    }
    CHECK(cudaSetDevice(replica.device));
    CHECK(cudaStreamCreate(&replica.stream));
    CHECK(cudaMalloc(&replica.inputs, inputs.size() * sizeof(float)));
    CHECK(cudaMalloc(&replica.targets, targets.size() * sizeof(float)));
    CHECK(cudaMalloc(&replica.weights, WEIGHTS * sizeof(float)));
    CHECK(cudaMalloc(&replica.hidden, replica.samples * HIDDEN * sizeof(float)));
    CHECK(cudaMalloc(&replica.errors, replica.samples * sizeof(float)));
    CHECK(cudaMalloc(&replica.gradients, (WEIGHTS + 1) * sizeof(float)));
    CHECK(cudaMemcpy(replica.inputs, inputs.data(), inputs.size() * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(
        cudaMemcpy(replica.targets, targets.data(), targets.size() * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(replica.weights, weights.data(), WEIGHTS * sizeof(float), cudaMemcpyHostToDevice));
}

static void finish(replica &replica)
{
    CHECK(cudaSetDevice(replica.device));
    CHECK(cudaStreamSynchronize(replica.stream));
    for (float *memory : {replica.inputs, replica.targets, replica.weights, replica.hidden, replica.errors,
                          replica.gradients}) {
        CHECK(cudaFree(memory));
    }
    CHECK(cudaStreamDestroy(replica.stream));
    NCCL(ncclCommDestroy(replica.comm));
}

static void step_all(std::vector<replica> &replicas)
{
    for (replica &r : replicas) {
        CHECK(cudaSetDevice(r.device));
        forward<<<(r.samples + 63) / 64, 64, 0, r.stream>>>(r.inputs, r.targets, r.weights, r.hidden,
                                                            r.errors, r.samples);
        CHECK_LAUNCH();
        backward<<<(WEIGHTS + 64) / 64, 64, 0, r.stream>>>(r.inputs, r.weights, r.hidden, r.errors,
                                                           r.gradients, r.samples);
        CHECK_LAUNCH();
    }
    NCCL(ncclGroupStart());
    for (replica &r : replicas) {
        NCCL(ncclAllReduce(r.gradients, r.gradients, WEIGHTS + 1, ncclFloat32, ncclSum, r.comm, r.stream));
    }
    NCCL(ncclGroupEnd());
    for (replica &r : replicas) {
        CHECK(cudaSetDevice(r.device));
        step<<<(WEIGHTS + 63) / 64, 64, 0, r.stream>>>(r.weights, r.gradients);
        CHECK_LAUNCH();
    }
}

/* The processes that train together. */
struct job {
    int rank, ranks;
    const char *id_file;
};

static ncclUniqueId share_id(const job &job)
{
    ncclUniqueId id;
    std::string temporary = std::string(job.id_file) + ".new";

    if (job.rank == 0) {
        NCCL(ncclGetUniqueId(&id));
        FILE *file = fopen(temporary.c_str(), "wb");
        if (!file || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) != 0 ||
            rename(temporary.c_str(), job.id_file) != 0) {
            fprintf(stderr, "%s cannot be written\n", job.id_file);
            exit(1);
        }
        return id;
    }
    for (;;) {
        FILE *file = fopen(job.id_file, "rb");
        if (file && fread(&id, sizeof id, 1, file) == 1) {
            fclose(file);
            return id;
        }
        if (file) {
            fclose(file);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

/* A communicator of all devices of all processes. */
static void connect(const job &job, std::vector<ncclComm_t> &comms)
{
    int n = (int)comms.size();

    if (job.ranks == 1) {
        NCCL(ncclCommInitAll(comms.data(), n, NULL));
        return;
    }
    ncclUniqueId id = share_id(job);
    NCCL(ncclGroupStart());
    for (int i = 0; i < n; i++) {
        CHECK(cudaSetDevice(i));
        NCCL(ncclCommInitRank(&comms[i], n * job.ranks, id, job.rank * n + i));
    }
    NCCL(ncclGroupEnd());
}

/*
 * Trains on `n` devices of each process; the loss at every tenth step. `equal`: whether all devices of this process have the same weights
 * then.
 */
static std::vector<float> train(const job &job, int n, int steps, bool *equal)
{
    std::vector<replica> replicas(n);
    std::vector<ncclComm_t> comms(n);
    std::vector<float> losses, first(WEIGHTS), other(WEIGHTS);

    connect(job, comms);
    for (int i = 0; i < n; i++) {
        int all = n * job.ranks, rank = n * job.rank + i;
        replicas[i].device = i;
        replicas[i].comm = comms[i];
        replicas[i].samples = SAMPLES * (rank + 1) / all - SAMPLES * rank / all;
        prepare(replicas[i], SAMPLES * rank / all);
    }
    for (int s = 0; s < steps; s++) {
        step_all(replicas);
        if (s % 10 == 0 || s == steps - 1) {
            float sum;
            CHECK(cudaSetDevice(0));
            CHECK(cudaMemcpyAsync(&sum, replicas[0].gradients + WEIGHTS, sizeof sum, cudaMemcpyDeviceToHost,
                                  replicas[0].stream));
            CHECK(cudaStreamSynchronize(replicas[0].stream));
            losses.push_back(sum / SAMPLES);
        }
    }
    *equal = true;
    for (int i = 0; i < n; i++) {
        ncclResult_t state;
        CHECK(cudaSetDevice(i));
        CHECK(cudaStreamSynchronize(replicas[i].stream));
        NCCL(ncclCommGetAsyncError(replicas[i].comm, &state));
        NCCL(state);
        CHECK(cudaMemcpy(other.data(), replicas[i].weights, WEIGHTS * sizeof(float), cudaMemcpyDeviceToHost));
        if (i == 0) {
            first = other;
        }
        *equal = *equal && memcmp(first.data(), other.data(), WEIGHTS * sizeof(float)) == 0;
    }
    for (replica &r : replicas) {
        finish(r);
    }
    return losses;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("data_parallel", "[STEPS] [RANK RANKS ID_FILE]", argc, argv);
    int steps = example_number(&example, 0, 10, 100000, 200), n = 0;
    bool equal, good = true;

    CHECK(cudaGetDeviceCount(&n));
    job together_with = {0, 1, NULL};
    if (example.argument_count > 3) {
        together_with = {example_number(&example, 1, 0, 63, 0), example_number(&example, 2, 1, 64, 1),
                         example.arguments[3]};
    }
    std::vector<float> alone = train({0, 1, NULL}, 1, steps, &equal),
                       together = train(together_with, n, steps, &equal);
    for (size_t i = 0; i < alone.size(); i++) {
        bool near = fabsf(alone[i] - together[i]) <= 1e-3f * alone[i];
        good = good && near;
        if (i % 5 == 0 || i + 1 == alone.size() || !near) {
            printf("loss %.4f on one device, %.4f on %d\n", alone[i], together[i], n * together_with.ranks);
        }
    }
    printf("the weights are %s on all devices\n", equal ? "the same" : "not the same");
    return example_end(&example, good && equal && together.back() < 0.3f * together.front());
}
