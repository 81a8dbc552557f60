/*
 * inference.cu - a transformer makes one token a step, some 140 launches, and the program waits for each, as one that
 * shows text or looks for its end does. The token stays on the device, too, where the next step starts from it.
 *
 * Every layer: norm; query, key and value (kept for later tokens); scores, their softmax, the mix of values; projection;
 * norm; the two matrices of the feed-forward part. The same model runs on the host; every token must be the same.
 *
 *   inference [--layers N] [OPTION…]     (step.h)
 */
#include "step.h"

enum { MODEL = 32, HEADS = 4, HEAD = MODEL / HEADS, INNER = 64, TOKENS = 64, WINDOW = 64 };

/* y = W x, added to y or not, rectified or not. */
struct multiply {
    const float *w, *x;
    float *y;
    int columns;
    bool add, rectify;
    __host__ __device__ void operator()(int row) const
    {
        float sum = add ? y[row] : 0;
        for (int i = 0; i < columns; i++)
            sum += w[row * columns + i] * x[i];
        y[row] = rectify && sum < 0 ? 0 : sum;
    }
};

struct embed {
    const float *table;
    const uint32_t *token;
    float *x;
    __host__ __device__ void operator()(int i) const
    {
        x[i] = table[*token * MODEL + (uint32_t)i];
    }
};

struct normalise {
    const float *x;
    float *y;
    __host__ __device__ void operator()(int i) const
    {
        float sum = 0;
        for (int k = 0; k < MODEL; k++)
            sum += x[k] * x[k];
        y[i] = x[i] / sqrtf(sum / MODEL + 1e-5f);
    }
};

struct score {
    const float *q, *keys;
    float *scores;
    __host__ __device__ void operator()(int i) const
    {
        const int head = i / WINDOW, slot = i % WINDOW;
        float sum = 0;
        for (int k = 0; k < HEAD; k++)
            sum += q[head * HEAD + k] * keys[slot * MODEL + head * HEAD + k];
        scores[i] = sum * 0.35355339f;
    }
};

/* e^x for x <= 0 by operations that host and device do alike. */
__host__ __device__ static inline float exponential(float x)
{
    float y = 1 + (x < -200 ? -200 : x) / 256;
    for (int i = 0; i < 8; i++)
        y *= y;
    return y;
}

struct softmax {
    float *scores;
    int used; /* slots of the window */
    __host__ __device__ void operator()(int head) const
    {
        float *s = scores + head * WINDOW, most = s[0], sum = 0;
        for (int i = 1; i < used; i++)
            most = s[i] > most ? s[i] : most;
        for (int i = 0; i < used; i++)
            sum += s[i] = exponential(s[i] - most);
        for (int i = 0; i < used; i++)
            s[i] /= sum;
    }
};

struct mix {
    const float *scores, *values;
    float *y;
    int used;
    __host__ __device__ void operator()(int i) const
    {
        float sum = 0;
        for (int slot = 0; slot < used; slot++)
            sum += scores[i / HEAD * WINDOW + slot] * values[slot * MODEL + i];
        y[i] = sum;
    }
};

struct choose {
    const float *logits;
    uint32_t *token;
    uint32_t position;
    __host__ __device__ void operator()(int) const
    {
        uint32_t best = 0;
        for (uint32_t i = 1; i < TOKENS; i++)
            best = logits[i] > logits[best] ? i : best;
        /* A model without training says the same again and again: the position makes it vary. */
        *token = (best + position) % TOKENS;
    }
};

struct layer {
    float *q, *k, *v, *out, *up, *down, *keys, *values;
};

/* A model, on the device or on the host. */
class Model
{
  public:
    Model(struct step_place where, int depth) : place(where), layers((size_t)depth)
    {
        for (struct layer &l : layers) {
            l.q = weights(MODEL * MODEL);
            l.k = weights(MODEL * MODEL);
            l.v = weights(MODEL * MODEL);
            l.out = weights(MODEL * MODEL);
            l.up = weights(INNER * MODEL);
            l.down = weights(MODEL * INNER);
            l.keys = place.memory<float>(WINDOW * MODEL);
            l.values = place.memory<float>(WINDOW * MODEL);
        }
        table = weights(TOKENS * MODEL);
        x = place.memory<float>(MODEL);
        y = place.memory<float>(MODEL);
        q = place.memory<float>(MODEL);
        mixed = place.memory<float>(MODEL);
        inner = place.memory<float>(INNER);
        scores = place.memory<float>(HEADS * WINDOW);
        logits = place.memory<float>(TOKENS);
        token = place.memory<uint32_t>(1);
    }

    /** Enqueues a step; the token is in `token` at its end. */
    void step(int position)
    {
        const int slot = position % WINDOW, used = position < WINDOW ? position + 1 : WINDOW;
        place.run(embed{table, token, x}, MODEL);
        for (const struct layer &l : layers) {
            place.run(normalise{x, y}, MODEL);
            place.run(multiply{l.q, y, q, MODEL, false, false}, MODEL);
            place.run(multiply{l.k, y, l.keys + slot * MODEL, MODEL, false, false}, MODEL);
            place.run(multiply{l.v, y, l.values + slot * MODEL, MODEL, false, false}, MODEL);
            place.run(score{q, l.keys, scores}, HEADS * WINDOW);
            place.run(softmax{scores, used}, HEADS);
            place.run(mix{scores, l.values, mixed, used}, MODEL);
            place.run(multiply{l.out, mixed, x, MODEL, true, false}, MODEL);
            place.run(normalise{x, y}, MODEL);
            place.run(multiply{l.up, y, inner, MODEL, false, true}, INNER);
            place.run(multiply{l.down, inner, x, INNER, true, false}, MODEL);
        }
        place.run(normalise{x, y}, MODEL);
        place.run(multiply{table, y, logits, MODEL, false, false}, TOKENS);
        place.run(choose{logits, token, (uint32_t)position}, 1);
    }

    struct step_place place;
    uint32_t *token;

  private:
    float *weights(size_t n)
    {
        std::vector<float> values(n);
        step_fill(values.data(), n, ++seed, 0.3f);
        float *memory = place.memory<float>(n);
        place.set(memory, values.data(), n);
        return memory;
    }

    std::vector<struct layer> layers;
    uint32_t seed = 0;
    float *table, *x, *y, *q, *mixed, *inner, *scores, *logits;
};

int main(int argc, char **argv)
{
    double layers = 12;
    const struct step_run run = step_begin("inference", argc, argv, {{"--layers", &layers, 1, 1000}});
    Model device(step_device(run), (int)layers), host(step_host(), (int)layers);
    step_compare(
        run, device, host, &Model::token, [](int) {}, [](Model &model, int step) { model.step(step); });
}
