/* gpus.c - see gpus.h. Names, numbers and layouts are facts of NVML's binary interface (nvml.h). */
#include "server/http/gpus.h"

#include "common/base/clock.h"
#include "common/sync/scoped_lock.h"
#include "proto/management/management.h"

#include <stdalign.h>
#include <string.h>

#define NVML_SUCCESS      0
#define NVML_UNKNOWN      999
#define CLOCK_SM          1
#define CLOCK_MEMORY      2
#define TEMPERATURE_GPU   0
#define FIELD_MEMORY_TEMP 82
#define VALUE_UNSIGNED    1 /* nvmlFieldValue_t: how the value is stored */

/* nvmlFieldValue_t */
struct field_value {
    uint32_t field, scope;
    int64_t timestamp, latency;
    uint32_t type, result;
    uint64_t value;
};
_Static_assert(sizeof(struct field_value) == 40, "as in nvml.h");

/* nvmlMemory_v2_t */
struct memory_info {
    uint32_t version;
    uint64_t total, reserved, free, used;
};
#define MEMORY_VERSION ((uint32_t)sizeof(struct memory_info) | 2u << 24)
_Static_assert(sizeof(struct memory_info) == 40, "as in nvml.h");

struct asking {
    struct rg_gpus *gpus;
    const uint8_t *uuid;
    struct rg_gpu_figures *out;
    bool hangs;
};

/* False: the library does not know, or did not answer. */
static bool ask(struct asking *asking, struct rg_question_call *call)
{
    static _Thread_local alignas(16) unsigned char question[RG_QUESTION_SIZE_MAX], answer[RG_ANSWER_SIZE_MAX];
    size_t question_size = sizeof question, answer_size = sizeof answer;
    int result = NVML_UNKNOWN;
    memcpy(call->devices[0], asking->uuid, sizeof call->devices[0]);
    if (asking->hangs || rg_question_encode(call, question, &question_size) != RG_OK)
        return false;
    rg_management_ask(asking->gpus->management, question, question_size, answer, &answer_size);
    if (rg_answer_decode(answer, answer_size, call, &result) != RG_OK)
        return false;
    asking->hangs = result == NVML_UNKNOWN;
    return result == NVML_SUCCESS;
}

static void know(struct asking *asking, enum rg_gpu_figure figure, double value)
{
    asking->out->values[figure] = value;
    asking->out->known |= 1u << figure;
}

/* A question that tells one number of 32 bits, after one that is given if `with` is. */
static void ask_word(struct asking *asking, enum rg_nvml_question question, bool with, uint32_t given,
                     enum rg_gpu_figure figure, double scale)
{
    struct rg_question_call call;
    uint32_t word = 0;
    rg_question_prepare(question, &call);
    call.arguments[0].number = given;
    call.arguments[with].memory = &word;
    if (ask(asking, &call))
        know(asking, figure, word * scale);
}

static void ask_utilisation(struct asking *asking)
{
    struct rg_question_call call;
    uint32_t rates[2] = {0}, rate = 0, period = 0;
    rg_question_prepare(RG_QUESTION_nvmlDeviceGetUtilizationRates, &call);
    call.arguments[0].memory = rates;
    if (ask(asking, &call)) {
        know(asking, RG_GPU_UTIL, rates[0]);
        know(asking, RG_GPU_MEM_COPY_UTIL, rates[1]);
    }
    rg_question_prepare(RG_QUESTION_nvmlDeviceGetEncoderUtilization, &call);
    call.arguments[0].memory = &rate;
    call.arguments[1].memory = &period;
    if (ask(asking, &call))
        know(asking, RG_GPU_ENC_UTIL, rate);
    rg_question_prepare(RG_QUESTION_nvmlDeviceGetDecoderUtilization, &call);
    call.arguments[0].memory = &rate;
    call.arguments[1].memory = &period;
    if (ask(asking, &call))
        know(asking, RG_GPU_DEC_UTIL, rate);
}

static void ask_energy(struct asking *asking)
{
    struct rg_question_call call;
    uint64_t millijoules = 0;
    rg_question_prepare(RG_QUESTION_nvmlDeviceGetTotalEnergyConsumption, &call);
    call.arguments[0].memory = &millijoules;
    if (ask(asking, &call))
        know(asking, RG_GPU_ENERGY, (double)millijoules);
}

static void ask_memory_temperature(struct asking *asking)
{
    struct rg_question_call call;
    struct field_value field = {.field = FIELD_MEMORY_TEMP};
    rg_question_prepare(RG_QUESTION_nvmlDeviceGetFieldValues, &call);
    call.arguments[0].number = 1;
    call.arguments[0].memory = &field;
    if (ask(asking, &call) && field.result == NVML_SUCCESS && field.type == VALUE_UNSIGNED)
        know(asking, RG_GPU_MEMORY_TEMP, (uint32_t)field.value);
}

static void ask_memory(struct asking *asking)
{
    struct rg_question_call call;
    struct memory_info memory = {.version = MEMORY_VERSION};
    rg_question_prepare(RG_QUESTION_nvmlDeviceGetMemoryInfo_v2, &call);
    call.arguments[0].memory = &memory;
    if (!ask(asking, &call))
        return;
    know(asking, RG_GPU_FB_USED, (double)memory.used);
    know(asking, RG_GPU_FB_FREE, (double)memory.free);
    know(asking, RG_GPU_FB_RESERVED, (double)memory.reserved);
}

/* False: it hangs. */
static bool ask_all(struct rg_gpus *gpus, const struct rg_device_info *device, struct rg_gpu_figures *out)
{
    struct asking asking = {.gpus = gpus, .uuid = device->uuid, .out = out};
    ask_word(&asking, RG_QUESTION_nvmlDeviceGetClockInfo, true, CLOCK_SM, RG_GPU_SM_CLOCK, 1);
    ask_word(&asking, RG_QUESTION_nvmlDeviceGetClockInfo, true, CLOCK_MEMORY, RG_GPU_MEM_CLOCK, 1);
    ask_word(&asking, RG_QUESTION_nvmlDeviceGetTemperature, true, TEMPERATURE_GPU, RG_GPU_TEMP, 1);
    ask_word(&asking, RG_QUESTION_nvmlDeviceGetPowerUsage, false, 0, RG_GPU_POWER_USAGE, 1e-3);
    ask_word(&asking, RG_QUESTION_nvmlDeviceGetPcieReplayCounter, false, 0, RG_GPU_PCIE_REPLAYS, 1);
    ask_utilisation(&asking);
    ask_energy(&asking);
    ask_memory_temperature(&asking);
    ask_memory(&asking);
    return !asking.hangs;
}

void rg_gpus_init(struct rg_gpus *gpus, struct rg_management *management)
{
    *gpus = (struct rg_gpus){.management = management};
    pthread_mutex_init(&gpus->asking, NULL);
    pthread_mutex_init(&gpus->lock, NULL);
}

static bool is_due(struct rg_gpus *gpus)
{
    const uint64_t now = rg_now_ns();
    RG_SCOPED_LOCK(&gpus->lock);
    const bool due =
        now >= gpus->not_before_ns && (gpus->asked_ns == 0 || now - gpus->asked_ns >= RG_GPUS_FRESH_NS);
    return due;
}

/* Under `asking`. */
static void look(struct rg_gpus *gpus, const struct rg_driver *driver)
{
    struct rg_gpu_figures found[RG_DEVICES_MAX];
    bool good = true;
    memset(found, 0, sizeof found);
    for (uint32_t i = 0; i < driver->n_devices && good; i++)
        good = ask_all(gpus, &driver->devices[i], &found[i]);
    if (!good)
        memset(found, 0, sizeof found);
    const uint64_t now = rg_now_ns();
    RG_SCOPED_LOCK(&gpus->lock);
    memcpy(gpus->figures, found, sizeof found);
    gpus->asked_ns = now;
    gpus->not_before_ns = good ? 0 : now + RG_GPUS_PAUSE_NS;
}

void rg_gpus_look(struct rg_gpus *gpus, const struct rg_driver *driver,
                  struct rg_gpu_figures out[RG_DEVICES_MAX])
{
    if (is_due(gpus) && pthread_mutex_trylock(&gpus->asking) == 0) {
        if (is_due(gpus))
            look(gpus, driver);
        pthread_mutex_unlock(&gpus->asking);
    }
    pthread_mutex_lock(&gpus->lock);
    memcpy(out, gpus->figures, sizeof gpus->figures);
    pthread_mutex_unlock(&gpus->lock);
}
