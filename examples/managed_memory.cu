/*
 * Managed memory: arrays that host and device take turns in changing, a list of nodes that the host builds and the
 * device walks, copies and sets of managed memory, several threads that read what the device wrote.
 */
#include "example.h"
#include <string.h>
#include <thread>
#include <vector>

struct node {
    struct node *next;
    int value;
};

__global__ void add(int *array, int n, int value)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        array[i] += value;
    }
}

__global__ void walk(const struct node *list, int *sum)
{
    for (*sum = 0; list != NULL; list = list->next) {
        *sum += list->value;
    }
}

static int wrong_in(const int *array, int n, const std::vector<int> &expected)
{
    int wrong = 0;

    for (int i = 0; i < n; i++) {
        wrong += array[i] != expected[i];
    }
    return wrong;
}

/* Host and device change the same array in turns. */
static int take_turns(int *array, int n, std::vector<int> &expected)
{
    int wrong = 0;

    for (int turn = 0; turn < 5; turn++) {
        for (int i = turn; i < n; i += 1 + turn * 500) {
            array[i] = expected[i] = i * turn;
        }
        add<<<(n + 255) / 256, 256>>>(array, n, turn);
        CHECK_LAUNCH();
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < n; i++) {
            expected[i] += turn;
        }
        wrong += wrong_in(array, n, expected);
    }
    printf("in turns: %d wrong\n", wrong);
    return wrong;
}

static int walk_a_list(int length)
{
    struct node *list = NULL;
    int *sum;
    int right;

    CHECK(cudaMallocManaged(&sum, sizeof *sum));
    for (int i = 0; i < length; i++) {
        struct node *node;

        CHECK(cudaMallocManaged(&node, sizeof *node));
        node->next = list;
        node->value = i;
        list = node;
    }
    walk<<<1, 1>>>(list, sum);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    printf("a list of %d nodes: sum %d\n", length, *sum);
    right = *sum == length * (length - 1) / 2;
    while (list != NULL) {
        struct node *next = list->next;

        CHECK(cudaFree(list));
        list = next;
    }
    CHECK(cudaFree(sum));
    return !right;
}

/* Copies and sets, in which managed memory stands for the host's as well as for the device's. */
static int copy(int *array, int n, std::vector<int> &expected)
{
    std::vector<int> plain(n);
    int *second;
    int wrong = 0;

    CHECK(cudaMallocManaged(&second, n * sizeof *second));
    CHECK(cudaMemcpy(plain.data(), array, n * sizeof *array, cudaMemcpyDeviceToHost));
    wrong += wrong_in(plain.data(), n, expected);
    array[n / 2] = expected[n / 2] = -1;
    CHECK(cudaMemcpy(second, array, n * sizeof *array, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize()); /* to the host, managed memory is the device's until then */
    wrong += wrong_in(second, n, expected);
    CHECK(cudaMemset(second, 0, n * sizeof *second));
    CHECK(cudaDeviceSynchronize());
    wrong += wrong_in(second, n, std::vector<int>(n));
    CHECK(cudaMemcpy(second, plain.data(), n * sizeof *second, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    wrong += wrong_in(second, n, plain);
    CHECK(cudaFree(second));
    printf("copies and sets: %d wrong\n", wrong);
    return wrong;
}

static int read_by_threads(int *array, int n, std::vector<int> &expected)
{
    std::vector<std::thread> threads;
    int wrong[4] = {};

    add<<<(n + 255) / 256, 256>>>(array, n, 7);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++) {
        expected[i] += 7;
    }
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&, t] { wrong[t] = wrong_in(array, n, expected); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    printf("read by 4 threads: %d wrong\n", wrong[0] + wrong[1] + wrong[2] + wrong[3]);
    return wrong[0] + wrong[1] + wrong[2] + wrong[3];
}

int main(int argc, char **argv)
{
    struct example example = example_begin("managed_memory", "[NUMBERS]", argc, argv);
    int n = example_number(&example, 0, 1000, 100000000, 300007);
    std::vector<int> expected(n);
    cudaPointerAttributes attributes;
    int *array;
    int wrong = 0;

    CHECK(cudaMallocManaged(&array, n * sizeof *array));
    memset(array, 0, n * sizeof *array);
    wrong += take_turns(array, n, expected);
    wrong += walk_a_list(100);
    wrong += copy(array, n, expected);
    wrong += read_by_threads(array, n, expected);
    CHECK(cudaPointerGetAttributes(&attributes, array));
    wrong += attributes.type != cudaMemoryTypeManaged || attributes.devicePointer != array ||
             attributes.hostPointer != array;
    CHECK(cudaFree(array));
    return example_end(&example, wrong == 0);
}
