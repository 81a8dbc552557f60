/*
 * Two-dimensional memory: allocations with a pitch, copies and sets of rectangles, in every direction, whole
 * and in part. Each step is done to an image on the CPU too, and the two must stay the same.
 */
#include "example.h"
#include <vector>

__global__ void brighten(unsigned char *image, size_t pitch, int width, int height, int by)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;

    if (x < width && y < height) {
        image[y * pitch + x] += by;
    }
}

static int compare(const char *step, const std::vector<unsigned char> &image,
                   const std::vector<unsigned char> &expected)
{
    int wrong = 0;

    for (size_t i = 0; i < image.size(); i++) {
        wrong += image[i] != expected[i];
    }
    printf("%s: %d wrong\n", step, wrong);
    return wrong;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("pitched_memory", "[WIDTH [HEIGHT]]", argc, argv);
    int width = example_number(&example, 0, 64, 8192, 331);
    int height = example_number(&example, 1, 64, 8192, 117);
    size_t bytes = (size_t)width * height;
    std::vector<unsigned char> expected(bytes), image(bytes);
    unsigned char *device, *second;
    size_t pitch, second_pitch;
    int wrong = 0;
    auto at = [width](int x, int y) { return (size_t)y * width + x; };

    for (size_t i = 0; i < bytes; i++) {
        expected[i] = (unsigned char)example_mix(i);
    }
    CHECK(cudaMallocPitch(&device, &pitch, width, height));
    CHECK(cudaMallocPitch(&second, &second_pitch, width, height));
    if (pitch < (size_t)width || second_pitch < (size_t)width) {
        printf("the pitch is less than the width\n");
        wrong++;
    }

    CHECK(cudaMemcpy2D(device, pitch, expected.data(), width, width, height, cudaMemcpyHostToDevice));
    dim3 threads(32, 4), blocks((width + 31) / 32, (height + 3) / 4);
    brighten<<<blocks, threads>>>(device, pitch, width, height, 40);
    CHECK_LAUNCH();
    for (unsigned char &value : expected) {
        value += 40;
    }
    CHECK(cudaMemcpy2D(image.data(), width, device, pitch, width, height, cudaMemcpyDeviceToHost));
    wrong += compare("in, kernel, out", image, expected);

    /* A rectangle inside is set, and nothing around it. */
    CHECK(cudaMemset2D(device + 9 * pitch + 13, pitch, 0xa5, width - 40, height - 50));
    for (int y = 9; y < 9 + height - 50; y++) {
        for (int x = 13; x < 13 + width - 40; x++) {
            expected[at(x, y)] = 0xa5;
        }
    }
    CHECK(cudaMemcpy2D(image.data(), width, device, pitch, width, height, cudaMemcpyDeviceToHost));
    wrong += compare("set of a rectangle", image, expected);

    /* From device to device, to another place; and a row of the host over a column of the device. */
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemset2DAsync(second, second_pitch, 0, width, height, stream));
    CHECK(cudaMemcpy2DAsync(second + 20 * second_pitch + 5, second_pitch, device + 3 * pitch + 30, pitch,
                            width - 31, height - 30, cudaMemcpyDeviceToDevice, stream));
    std::vector<unsigned char> column(height, 0x3c), moved(bytes, 0);
    CHECK(cudaMemcpy2DAsync(second + 2, second_pitch, column.data(), 1, 1, height, cudaMemcpyHostToDevice,
                            stream));
    CHECK(cudaMemcpy2DAsync(image.data(), width, second, second_pitch, width, height, cudaMemcpyDeviceToHost,
                            stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int y = 0; y < height - 30; y++) {
        memcpy(&moved[at(5, y + 20)], &expected[at(30, y + 3)], width - 31);
    }
    for (int y = 0; y < height; y++) {
        moved[at(2, y)] = 0x3c;
    }
    wrong += compare("device to device, column", image, moved);

    /* Part of an image out into part of another; the rest of the host's stays as it is. */
    std::vector<unsigned char> part(bytes, 0x77), part_expected(bytes, 0x77);
    CHECK(
        cudaMemcpy2D(&part[at(7, 8)], width, device + 5 * pitch + 6, pitch, 33, 44, cudaMemcpyDeviceToHost));
    for (int y = 0; y < 44; y++) {
        memcpy(&part_expected[at(7, y + 8)], &expected[at(6, y + 5)], 33);
    }
    wrong += compare("part into part", part, part_expected);

    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(device));
    CHECK(cudaFree(second));
    return example_end(&example, wrong == 0);
}
