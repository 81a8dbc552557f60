/*
 * Textures and surfaces: filtering, addressing, formats, layers and cube faces. Every fetch is computed on the CPU
 * too, by the rules of the programming guide, with the weights of linear filtering in steps of 1/256.
 */
#include "example.h"
#include <math.h>
#include <vector>

static const int width = 37, height = 23, depth = 5;

__global__ void fetch_2d(cudaTextureObject_t texture, const float2 *at, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        out[i] = tex2D<float>(texture, at[i].x, at[i].y);
    }
}

__global__ void fetch_3d(cudaTextureObject_t texture, const float2 *at, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        out[i] = tex3D<float>(texture, at[i].x, at[i].y, at[i].x * 0.25f);
    }
}

__global__ void fetch_layered(cudaTextureObject_t texture, const float2 *at, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        out[i] = tex2DLayered<float>(texture, at[i].x, at[i].y, i % depth);
    }
}

__global__ void fetch_linear(cudaTextureObject_t texture, int4 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        out[i] = tex1Dfetch<int4>(texture, i);
    }
}

__global__ void fetch_bytes(cudaTextureObject_t texture, const float2 *at, float4 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        out[i] = tex2D<float4>(texture, at[i].x, at[i].y);
    }
}

__global__ void fetch_cube(cudaTextureObject_t texture, float *out)
{
    int i = threadIdx.x;
    float3 axis[6] = {make_float3(1, 0, 0),  make_float3(-1, 0, 0), make_float3(0, 1, 0),
                      make_float3(0, -1, 0), make_float3(0, 0, 1),  make_float3(0, 0, -1)};

    out[i] = texCubemap<float>(texture, axis[i].x, axis[i].y, axis[i].z);
}

__global__ void invert(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int w, int h)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;

    if (x < w && y < h) {
        uchar4 pixel;

        surf2Dread(&pixel, from, x * 4, y);
        pixel = make_uchar4(255 - pixel.x, 255 - pixel.y, 255 - pixel.z, pixel.w);
        surf2Dwrite(pixel, to, (w - 1 - x) * 4, y);
        /* outside: nothing is written */
        surf2Dwrite(pixel, to, (x + w) * 4, y, cudaBoundaryModeZero);
    }
}

/* --- the same on the CPU --- */

static long place(cudaTextureAddressMode mode, bool normalised, long i, long n)
{
    if (i >= 0 && i < n) {
        return i;
    }
    if (mode == cudaAddressModeBorder) {
        return -1;
    }
    if (mode == cudaAddressModeWrap && normalised) {
        return ((i % n) + n) % n;
    }
    if (mode == cudaAddressModeMirror && normalised) {
        i = ((i % (2 * n)) + 2 * n) % (2 * n);
        return i < n ? i : 2 * n - 1 - i;
    }
    return i < 0 ? 0 : n - 1;
}

struct image {
    const float *texels;
    int extent[3];
    cudaTextureAddressMode mode;
    bool normalised, filter;
};

static float texel(const struct image *image, const long *index)
{
    long at[3];

    for (int d = 0; d < 3; d++) {
        at[d] = place(image->mode, image->normalised, index[d], image->extent[d]);
        if (at[d] < 0) {
            return 0;
        }
    }
    return image->texels[(at[2] * image->extent[1] + at[1]) * image->extent[0] + at[0]];
}

static bool where_is_edge(float coordinate)
{
    return coordinate == floorf(coordinate);
}

static float sample(const struct image *image, int dimensions, const float *coordinates)
{
    long first[3] = {0, 0, 0};
    float weight[3] = {0, 0, 0}, sum = 0;

    for (int d = 0; d < dimensions; d++) {
        float u = coordinates[d];

        if (image->normalised) {
            u = image->mode == cudaAddressModeWrap     ? u - floorf(u)
                : image->mode == cudaAddressModeMirror ? u - 2 * floorf(u / 2)
                                                       : u;
            u *= image->extent[d];
        }
        if (image->filter) {
            u -= 0.5f;
            weight[d] = rintf((u - floorf(u)) * 256) / 256;
        }
        first[d] = (long)floorf(u);
    }
    for (int corner = 0; corner < 1 << dimensions; corner++) {
        long index[3] = {0, 0, 0};
        float part = 1;

        for (int d = 0; d < dimensions; d++) {
            index[d] = first[d] + (corner >> d & 1);
            part *= corner >> d & 1 ? weight[d] : 1 - weight[d];
        }
        if (part != 0) {
            sum += part * texel(image, index);
        }
    }
    return sum;
}

static cudaTextureObject_t make_texture(cudaArray_t array, cudaTextureAddressMode mode, bool normalised,
                                        bool filter, cudaTextureReadMode read)
{
    cudaResourceDesc resource = {};
    cudaTextureDesc texture = {};
    cudaTextureObject_t object;

    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    texture.addressMode[0] = texture.addressMode[1] = texture.addressMode[2] = mode;
    texture.filterMode = filter ? cudaFilterModeLinear : cudaFilterModePoint;
    texture.readMode = read;
    texture.normalizedCoords = normalised;
    CHECK(cudaCreateTextureObject(&object, &resource, &texture, NULL));
    return object;
}

static cudaArray_t make_volume(const std::vector<float> &texels, int w, int h, int d, unsigned flags)
{
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaMemcpy3DParms copy = {};

    CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(w, h, d), flags));
    copy.srcPtr = make_cudaPitchedPtr((void *)texels.data(), w * sizeof(float), w, h);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(w, h, d);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    return array;
}

static int report(const char *what, int wrong)
{
    printf("%s: %d wrong\n", what, wrong);
    return wrong;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("texture", "[FETCHES]", argc, argv);
    int n = example_number(&example, 0, 1, 1 << 20, 4096), wrong = 0, blocks = (n + 127) / 128;
    std::vector<float> texels(width * height * depth), result(n);
    std::vector<float2> at(n), fractions(n);

    for (size_t i = 0; i < texels.size(); i++) {
        texels[i] = (float)(example_mix((uint32_t)i) % 1000);
    }
    for (int i = 0; i < n; i++) { /* up to an extent outside, in steps of 1/64 of a texel */
        int x = (int)(example_mix(2 * i) % (3 * width * 64)) - width * 64;
        int y = (int)(example_mix(2 * i + 1) % (3 * height * 64)) - height * 64;

        at[i] = make_float2(x / 64.0f, y / 64.0f);
        fractions[i] = make_float2(x / 64.0f / width, y / 64.0f / height);
    }
    float2 *device_at;
    float *device_out;

    CHECK(cudaMalloc(&device_at, n * sizeof(float2)));
    CHECK(cudaMalloc(&device_out, n * sizeof(float4)));

    cudaArray_t plain = make_volume(texels, width, height, 0 + 1, 0), volume, layers;
    volume = make_volume(texels, width, height, depth, 0);
    layers = make_volume(texels, width, height, depth, cudaArrayLayered);

    const char *const names[] = {"wrap", "clamp", "mirror", "border"};
    for (int mode = 0; mode < 4; mode++) {
        for (int kind = 0; kind < 4; kind++) {
            bool normalised = kind & 1, filter = kind & 2;
            struct image image = {
                texels.data(), {width, height, 1}, (cudaTextureAddressMode)mode, normalised, filter};
            cudaTextureObject_t texture =
                make_texture(plain, image.mode, normalised, filter, cudaReadModeElementType);
            int bad = 0;
            const std::vector<float2> &where = normalised ? fractions : at;

            CHECK(cudaMemcpy(device_at, where.data(), n * sizeof(float2), cudaMemcpyHostToDevice));
            fetch_2d<<<blocks, 128>>>(texture, device_at, device_out, n);
            CHECK_LAUNCH();
            CHECK(cudaMemcpy(result.data(), device_out, n * sizeof(float), cudaMemcpyDeviceToHost));
            for (int i = 0; i < n; i++) {
                float expected = sample(&image, 2, &where[i].x);
                /* a fraction of the width that stands for a texel's edge may fall on either side of it */
                bool edge = normalised && !filter && (where_is_edge(at[i].x) || where_is_edge(at[i].y));

                bad += !edge && fabsf(result[i] - expected) > (filter ? 0.1f : 0.0f);
            }
            printf("2d %s%s%s: %d wrong\n", names[mode], normalised ? " normalised" : "",
                   filter ? " linear" : "", bad);
            wrong += bad;
            CHECK(cudaDestroyTextureObject(texture));
        }
    }

    struct image image = {texels.data(), {width, height, depth}, cudaAddressModeClamp, false, true};
    cudaTextureObject_t texture =
        make_texture(volume, cudaAddressModeClamp, false, true, cudaReadModeElementType);
    int bad = 0;

    CHECK(cudaMemcpy(device_at, at.data(), n * sizeof(float2), cudaMemcpyHostToDevice));
    fetch_3d<<<blocks, 128>>>(texture, device_at, device_out, n);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(result.data(), device_out, n * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        float u[3] = {at[i].x, at[i].y, at[i].x * 0.25f};

        bad += fabsf(result[i] - sample(&image, 3, u)) > 0.1f;
    }
    wrong += report("3d linear", bad);
    CHECK(cudaDestroyTextureObject(texture));

    texture = make_texture(layers, cudaAddressModeClamp, false, true, cudaReadModeElementType);
    fetch_layered<<<blocks, 128>>>(texture, device_at, device_out, n);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(result.data(), device_out, n * sizeof(float), cudaMemcpyDeviceToHost));
    bad = 0;
    for (int i = 0; i < n; i++) {
        struct image layer = {texels.data() + i % depth * width * height,
                              {width, height, 1},
                              cudaAddressModeClamp,
                              false,
                              true};

        bad += fabsf(result[i] - sample(&layer, 2, &at[i].x)) > 1e-3f;
    }
    wrong += report("layers", bad);
    CHECK(cudaDestroyTextureObject(texture));

    /* linear memory: outside of it there are zeros */
    std::vector<int4> numbers(n), fetched(n + 128);
    int4 *device_numbers, *device_fetched;
    cudaResourceDesc resource = {};
    cudaTextureDesc description = {};

    for (int i = 0; i < n; i++) {
        numbers[i] = make_int4(i, -i, (int)example_mix(i), 7);
    }
    CHECK(cudaMalloc(&device_numbers, n * sizeof(int4)));
    CHECK(cudaMalloc(&device_fetched, (n + 128) * sizeof(int4)));
    CHECK(cudaMemcpy(device_numbers, numbers.data(), n * sizeof(int4), cudaMemcpyHostToDevice));
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = device_numbers;
    resource.res.linear.desc = cudaCreateChannelDesc<int4>();
    resource.res.linear.sizeInBytes = n * sizeof(int4);
    CHECK(cudaCreateTextureObject(&texture, &resource, &description, NULL));
    fetch_linear<<<blocks + 1, 128>>>(texture, device_fetched, n + 128);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(fetched.data(), device_fetched, (n + 128) * sizeof(int4), cudaMemcpyDeviceToHost));
    bad = memcmp(fetched.data(), numbers.data(), n * sizeof(int4)) != 0;
    for (int i = n; i < n + 128; i++) {
        bad += fetched[i].x != 0 || fetched[i].y != 0 || fetched[i].z != 0 || fetched[i].w != 0;
    }
    wrong += report("linear memory", bad);
    CHECK(cudaDestroyTextureObject(texture));

    /* bytes as fractions, and surfaces */
    const int side = 64;
    std::vector<uchar4> pixels(side * side), inverted(side * side);
    cudaArray_t from, to;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<uchar4>();
    cudaSurfaceObject_t surface_from, surface_to;

    for (int i = 0; i < side * side; i++) {
        uint32_t mixed = example_mix(i);
        memcpy(&pixels[i], &mixed, 4);
    }
    CHECK(cudaMallocArray(&from, &format, side, side, cudaArraySurfaceLoadStore));
    CHECK(cudaMallocArray(&to, &format, side, side, cudaArraySurfaceLoadStore));
    CHECK(cudaMemcpy2DToArray(from, 0, 0, pixels.data(), side * 4, side * 4, side, cudaMemcpyHostToDevice));
    texture = make_texture(from, cudaAddressModeClamp, false, false, cudaReadModeNormalizedFloat);
    std::vector<float4> colours(n);
    fetch_bytes<<<blocks, 128>>>(texture, device_at, (float4 *)device_out, n);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(colours.data(), device_out, n * sizeof(float4), cudaMemcpyDeviceToHost));
    bad = 0;
    for (int i = 0; i < n; i++) {
        int x = (int)floorf(at[i].x), y = (int)floorf(at[i].y);
        uchar4 pixel = pixels[(y < 0       ? 0
                               : y >= side ? side - 1
                                           : y) *
                                  side +
                              (x < 0       ? 0
                               : x >= side ? side - 1
                                           : x)];

        bad += colours[i].x != pixel.x / 255.0f || colours[i].y != pixel.y / 255.0f ||
               colours[i].z != pixel.z / 255.0f || colours[i].w != pixel.w / 255.0f;
    }
    wrong += report("bytes as fractions", bad);
    CHECK(cudaDestroyTextureObject(texture));

    resource = cudaResourceDesc();
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = from;
    CHECK(cudaCreateSurfaceObject(&surface_from, &resource));
    resource.res.array.array = to;
    CHECK(cudaCreateSurfaceObject(&surface_to, &resource));
    invert<<<dim3(side / 16, side / 16), dim3(16, 16)>>>(surface_from, surface_to, side, side);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy2DFromArray(inverted.data(), side * 4, to, 0, 0, side * 4, side, cudaMemcpyDeviceToHost));
    bad = 0;
    for (int i = 0; i < side * side; i++) {
        uchar4 a = pixels[i], b = inverted[i / side * side + side - 1 - i % side];

        bad += b.x != 255 - a.x || b.y != 255 - a.y || b.z != 255 - a.z || b.w != a.w;
    }
    wrong += report("surfaces", bad);
    CHECK(cudaDestroySurfaceObject(surface_from));
    CHECK(cudaDestroySurfaceObject(surface_to));

    /* the middle of each face of a cube */
    std::vector<float> faces(6 * 9);
    for (int i = 0; i < 54; i++) {
        faces[i] = (float)i;
    }
    cudaArray_t cube = make_volume(faces, 3, 3, 6, cudaArrayCubemap);
    texture = make_texture(cube, cudaAddressModeClamp, true, false, cudaReadModeElementType);
    fetch_cube<<<1, 6>>>(texture, device_out);
    CHECK_LAUNCH();
    float middles[6];
    CHECK(cudaMemcpy(middles, device_out, sizeof middles, cudaMemcpyDeviceToHost));
    bad = 0;
    for (int i = 0; i < 6; i++) {
        bad += middles[i] != (float)(9 * i + 4);
    }
    wrong += report("cube", bad);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(cube));
    CHECK(cudaFreeArray(from));
    CHECK(cudaFreeArray(to));
    CHECK(cudaFreeArray(plain));
    CHECK(cudaFreeArray(volume));
    CHECK(cudaFreeArray(layers));
    return example_end(&example, wrong == 0);
}
