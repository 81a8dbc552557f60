/*
 * Moves bodies under their mutual gravity, tile by tile through dynamic shared memory, and compares the
 * positions with a simulation in double precision on the CPU. The launch takes a structure by value.
 */
#include "example.h"
#include <cmath>
#include <vector>

struct settings {
    int count;
    float softening;
    float step;
};

__global__ void accelerate(const float4 *bodies, float4 *velocities, struct settings settings)
{
    extern __shared__ float4 tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 self = i < settings.count ? bodies[i] : make_float4(0, 0, 0, 0);
    float3 pull = make_float3(0, 0, 0);

    for (int start = 0; start < settings.count; start += blockDim.x) {
        int other = start + threadIdx.x;

        tile[threadIdx.x] = other < settings.count ? bodies[other] : make_float4(0, 0, 0, 0);
        __syncthreads();
        for (int k = 0; k < blockDim.x; k++) {
            float x = tile[k].x - self.x, y = tile[k].y - self.y, z = tile[k].z - self.z;
            float inverse = rsqrtf(x * x + y * y + z * z + settings.softening);
            float force = tile[k].w * inverse * inverse * inverse;

            pull.x += x * force;
            pull.y += y * force;
            pull.z += z * force;
        }
        __syncthreads();
    }
    if (i < settings.count) {
        velocities[i].x += pull.x * settings.step;
        velocities[i].y += pull.y * settings.step;
        velocities[i].z += pull.z * settings.step;
    }
}

__global__ void move(float4 *bodies, const float4 *velocities, struct settings settings)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < settings.count) {
        bodies[i].x += velocities[i].x * settings.step;
        bodies[i].y += velocities[i].y * settings.step;
        bodies[i].z += velocities[i].z * settings.step;
    }
}

static void simulate(std::vector<double> &position, std::vector<double> &velocity,
                     const std::vector<float4> &bodies, const struct settings &settings, int steps)
{
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < settings.count; i++) {
            for (int k = 0; k < settings.count; k++) {
                double away[3], distance = settings.softening;

                for (int axis = 0; axis < 3; axis++) {
                    away[axis] = position[3 * k + axis] - position[3 * i + axis];
                    distance += away[axis] * away[axis];
                }
                double force = bodies[k].w / (distance * std::sqrt(distance));
                for (int axis = 0; axis < 3; axis++) {
                    velocity[3 * i + axis] += away[axis] * force * settings.step;
                }
            }
        }
        for (size_t i = 0; i < position.size(); i++) {
            position[i] += velocity[i] * settings.step;
        }
    }
}

int main(int argc, char **argv)
{
    struct example example = example_begin("nbody", "[BODIES [STEPS]]", argc, argv);
    int count = example_number(&example, 0, 2, 1 << 20, 500);
    int steps = example_number(&example, 1, 1, 1000, 5);
    struct settings settings = {count, 0.01f, 0.005f};
    std::vector<float4> bodies(count);
    std::vector<double> position, velocity(3 * count);

    for (int i = 0; i < count; i++) {
        bodies[i].x = (float)(example_mix(4 * i) >> 8) / (1 << 23) - 1.0f;
        bodies[i].y = (float)(example_mix(4 * i + 1) >> 8) / (1 << 23) - 1.0f;
        bodies[i].z = (float)(example_mix(4 * i + 2) >> 8) / (1 << 23) - 1.0f;
        bodies[i].w = (1.0f + (float)(example_mix(4 * i + 3) % 8)) / (float)count;
        position.insert(position.end(), {bodies[i].x, bodies[i].y, bodies[i].z});
    }

    float4 *device_bodies, *device_velocities;
    CHECK(cudaMalloc(&device_bodies, count * sizeof(float4)));
    CHECK(cudaMalloc(&device_velocities, count * sizeof(float4)));
    CHECK(cudaMemcpy(device_bodies, bodies.data(), count * sizeof(float4), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(device_velocities, 0, count * sizeof(float4)));

    int threads = 128;
    int blocks = (count + threads - 1) / threads;
    for (int step = 0; step < steps; step++) {
        accelerate<<<blocks, threads, threads * sizeof(float4)>>>(device_bodies, device_velocities, settings);
        CHECK_LAUNCH();
        move<<<blocks, threads>>>(device_bodies, device_velocities, settings);
        CHECK_LAUNCH();
    }
    simulate(position, velocity, bodies, settings, steps);
    CHECK(cudaMemcpy(bodies.data(), device_bodies, count * sizeof(float4), cudaMemcpyDeviceToHost));

    double largest = 0, centre[3] = {0, 0, 0};
    for (int i = 0; i < count; i++) {
        const float moved[3] = {bodies[i].x, bodies[i].y, bodies[i].z};

        for (int axis = 0; axis < 3; axis++) {
            largest = std::fmax(largest, std::fabs(moved[axis] - position[3 * i + axis]));
            centre[axis] += moved[axis] / count;
        }
    }
    printf("%d bodies, %d steps, centre (%.5f, %.5f, %.5f)\n", count, steps, centre[0], centre[1], centre[2]);
    if (!(largest < 1e-4)) {
        printf("a position is off by %g\n", largest);
    }

    CHECK(cudaFree(device_bodies));
    CHECK(cudaFree(device_velocities));
    return example_end(&example, largest < 1e-4);
}
