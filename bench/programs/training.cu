/*
 * training.cu - a step of training a convolutional network, some 300 launches and one result: the loss.
 *
 * Each step copies a sample and its target in from page-locked memory, goes forward through the layers (convolution,
 * bias and rectifier, residual), computes the loss, goes back (four gradients a layer), updates weights and biases with momentum, and
 * waits for the loss, as a loop that prints it does. The same network trains on the host; every loss must be the same.
 *
 *   training [--layers N] [OPTION…]     (step.h)
 */
#include "step.h"

enum { CHANNELS = 4, WIDTH = 32, TAPS = 3, VALUES = CHANNELS * WIDTH, WEIGHTS = CHANNELS * CHANNELS * TAPS };

__host__ __device__ static inline float at(const float *x, int channel, int position)
{
    return position >= 0 && position < WIDTH ? x[channel * WIDTH + position] : 0.0f;
}

struct convolve {
    const float *x, *w;
    float *y;
    __host__ __device__ void operator()(int i) const
    {
        const int c = i / WIDTH, p = i % WIDTH;
        float sum = 0;
        for (int k = 0; k < CHANNELS; k++)
            for (int d = 0; d < TAPS; d++)
                sum += w[(c * CHANNELS + k) * TAPS + d] * at(x, k, p + d - 1);
        y[i] = sum;
    }
};

struct rectify {
    const float *y, *b;
    float *z;
    __host__ __device__ void operator()(int i) const
    {
        const float value = y[i] + b[i / WIDTH];
        z[i] = value > 0 ? value : 0;
    }
};

struct add_residual {
    const float *x, *z;
    float *out;
    __host__ __device__ void operator()(int i) const
    {
        out[i] = x[i] + 0.25f * z[i];
    }
};

struct mean_square {
    const float *out, *target;
    float *loss;
    __host__ __device__ void operator()(int) const
    {
        float sum = 0;
        for (int i = 0; i < VALUES; i++)
            sum += (out[i] - target[i]) * (out[i] - target[i]);
        *loss = sum / VALUES;
    }
};

struct loss_gradient {
    const float *out, *target;
    float *g;
    __host__ __device__ void operator()(int i) const
    {
        g[i] = 2 * (out[i] - target[i]) / VALUES;
    }
};

struct rectify_gradient {
    const float *z, *g;
    float *gy;
    __host__ __device__ void operator()(int i) const
    {
        gy[i] = z[i] > 0 ? 0.25f * g[i] : 0;
    }
};

struct weight_gradient {
    const float *x, *gy;
    float *gw;
    __host__ __device__ void operator()(int i) const
    {
        const int d = i % TAPS, k = i / TAPS % CHANNELS, c = i / TAPS / CHANNELS;
        float sum = 0;
        for (int p = 0; p < WIDTH; p++)
            sum += gy[c * WIDTH + p] * at(x, k, p + d - 1);
        gw[i] = sum;
    }
};

struct bias_gradient {
    const float *gy;
    float *gb;
    __host__ __device__ void operator()(int c) const
    {
        float sum = 0;
        for (int p = 0; p < WIDTH; p++)
            sum += gy[c * WIDTH + p];
        gb[c] = sum;
    }
};

struct input_gradient {
    const float *gy, *w;
    float *g; /* of the layer's output; becomes that of its input */
    __host__ __device__ void operator()(int i) const
    {
        const int k = i / WIDTH, p = i % WIDTH;
        float sum = g[i];
        for (int c = 0; c < CHANNELS; c++)
            for (int d = 0; d < TAPS; d++)
                sum += w[(c * CHANNELS + k) * TAPS + d] * at(gy, c, p - d + 1);
        g[i] = sum;
    }
};

struct update {
    float *value, *momentum;
    const float *gradient;
    __host__ __device__ void operator()(int i) const
    {
        momentum[i] = 0.9f * momentum[i] + gradient[i];
        value[i] -= 0.01f * momentum[i];
    }
};

struct layer {
    float *w, *b, *momentum_w, *momentum_b, *gw, *gb;
    float *x, *y, *z; /* what goes in, after the convolution, after the rectifier */
};

/* A network, on the device or on the host. */
class Network
{
  public:
    Network(struct step_place where, int depth) : place(where), layers((size_t)depth)
    {
        input = place.memory<float>(VALUES);
        float *x = input;
        for (size_t i = 0; i < layers.size(); i++) {
            struct layer *l = &layers[i];
            float w[WEIGHTS];
            l->x = x;
            l->w = place.memory<float>(WEIGHTS);
            l->b = place.memory<float>(CHANNELS);
            l->momentum_w = place.memory<float>(WEIGHTS);
            l->momentum_b = place.memory<float>(CHANNELS);
            l->gw = place.memory<float>(WEIGHTS);
            l->gb = place.memory<float>(CHANNELS);
            l->y = place.memory<float>(VALUES);
            l->z = place.memory<float>(VALUES);
            x = place.memory<float>(VALUES);
            step_fill(w, WEIGHTS, (uint32_t)i + 1, 0.5f);
            place.set(l->w, w, WEIGHTS);
        }
        output = x;
        target = place.memory<float>(VALUES);
        g = place.memory<float>(VALUES);
        gy = place.memory<float>(VALUES);
        loss = place.memory<float>(1);
    }

    /** Enqueues a step; the loss is in `loss` at its end. */
    void step(const float *sample, const float *sample_target)
    {
        place.set(input, sample, VALUES);
        place.set(target, sample_target, VALUES);
        for (size_t i = 0; i < layers.size(); i++) {
            const struct layer &l = layers[i];
            place.run(convolve{l.x, l.w, l.y}, VALUES);
            place.run(rectify{l.y, l.b, l.z}, VALUES);
            place.run(add_residual{l.x, l.z, i + 1 < layers.size() ? layers[i + 1].x : output}, VALUES);
        }
        place.run(mean_square{output, target, loss}, 1);
        place.run(loss_gradient{output, target, g}, VALUES);
        for (size_t i = layers.size(); i-- > 0;) {
            const struct layer &l = layers[i];
            place.run(rectify_gradient{l.z, g, gy}, VALUES);
            place.run(weight_gradient{l.x, gy, l.gw}, WEIGHTS);
            place.run(bias_gradient{gy, l.gb}, CHANNELS);
            place.run(input_gradient{gy, l.w, g}, VALUES);
        }
        for (const struct layer &l : layers) {
            place.run(update{l.w, l.momentum_w, l.gw}, WEIGHTS);
            place.run(update{l.b, l.momentum_b, l.gb}, CHANNELS);
        }
    }

    struct step_place place;
    float *loss;

  private:
    std::vector<struct layer> layers;
    float *input, *output, *target, *g, *gy;
};

/* The sample of a step: there are eight, which come again. */
static void fill_sample(float *sample, float *target, int step)
{
    step_fill(sample, VALUES, (uint32_t)(1000 + step % 8), 1);
    step_fill(target, VALUES, (uint32_t)(2000 + step % 8), 1);
}

int main(int argc, char **argv)
{
    double layers = 33;
    const struct step_run run = step_begin("training", argc, argv, {{"--layers", &layers, 1, 1000}});
    Network device(step_device(run), (int)layers), host(step_host(), (int)layers);
    float *sample = step_pinned<float>(VALUES), *target = step_pinned<float>(VALUES);
    step_compare(
        run, device, host, &Network::loss, [=](int step) { fill_sample(sample, target, step); },
        [=](Network &network, int) { network.step(sample, target); });
}
