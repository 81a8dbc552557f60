/*
 * management.h - questions to the management library (NVML) of a server, as data.
 *
 * One row a function: its name, and a signature that says what its arguments are. The client makes its functions of
 * the rows, the server checks a question against them and calls its own library by them. Nothing here changes
 * anything on the server: functions that set are not in the list, and never may be.
 *
 * A signature has one letter an argument, after the device, which every function has first:
 *   e     a second device of the same server
 *   i l   a number of 32 or 64 bits, given
 *   oN    N bytes, told
 *   v     a structure whose first word is its version and, in the lower 24 bits, its size: given and told
 *   t     a text and the room for it: two arguments
 *   gN    a text without its room, N bytes
 *   cN    an array and its length: two arguments, `unsigned *count, T *items` of N bytes each; items may be NULL to
 *         ask for the length
 *   fN    a given count and as many items of N bytes, given and told: two arguments
 * Names, layouts and sizes are facts of NVML's binary interface (nvml.h of version 13, nvidia-ml-py).
 */
#ifndef RG_PROTO_MANAGEMENT_MANAGEMENT_H
#define RG_PROTO_MANAGEMENT_MANAGEMENT_H

#include "common/base/limits.h"
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* clang-format off */
#define RG_MANAGEMENT_QUESTIONS(ASK) \
    ASK(nvmlDeviceGetAPIRestriction, "io4") \
    ASK(nvmlDeviceGetAccountingBufferSize, "o4") \
    ASK(nvmlDeviceGetAccountingMode, "o4") \
    ASK(nvmlDeviceGetAdaptiveClockInfoStatus, "o4") \
    ASK(nvmlDeviceGetAddressingMode, "v") \
    ASK(nvmlDeviceGetApplicationsClock, "io4") \
    ASK(nvmlDeviceGetAttributes, "o40") \
    ASK(nvmlDeviceGetAttributes_v2, "o40") \
    ASK(nvmlDeviceGetAutoBoostedClocksEnabled, "o4o4") \
    ASK(nvmlDeviceGetBAR1MemoryInfo, "o24") \
    ASK(nvmlDeviceGetBoardId, "o4") \
    ASK(nvmlDeviceGetBoardPartNumber, "t") \
    ASK(nvmlDeviceGetBridgeChipInfo, "o1028") \
    ASK(nvmlDeviceGetBusType, "o4") \
    ASK(nvmlDeviceGetC2cModeInfoV, "o4") \
    ASK(nvmlDeviceGetCapabilities, "v") \
    ASK(nvmlDeviceGetClkMonStatus, "o264") \
    ASK(nvmlDeviceGetClock, "iio4") \
    ASK(nvmlDeviceGetClockInfo, "io4") \
    ASK(nvmlDeviceGetClockOffsets, "v") \
    ASK(nvmlDeviceGetComputeMode, "o4") \
    ASK(nvmlDeviceGetCoolerInfo, "v") \
    ASK(nvmlDeviceGetCurrPcieLinkGeneration, "o4") \
    ASK(nvmlDeviceGetCurrPcieLinkWidth, "o4") \
    ASK(nvmlDeviceGetCurrentClockFreqs, "v") \
    ASK(nvmlDeviceGetCurrentClocksEventReasons, "o8") \
    ASK(nvmlDeviceGetCurrentClocksThrottleReasons, "o8") \
    ASK(nvmlDeviceGetDecoderUtilization, "o4o4") \
    ASK(nvmlDeviceGetDefaultApplicationsClock, "io4") \
    ASK(nvmlDeviceGetDefaultEccMode, "o4") \
    ASK(nvmlDeviceGetDetailedEccErrors, "iio32") \
    ASK(nvmlDeviceGetDisplayActive, "o4") \
    ASK(nvmlDeviceGetDisplayMode, "o4") \
    ASK(nvmlDeviceGetDynamicPstatesInfo, "o132") \
    ASK(nvmlDeviceGetEccMode, "o4o4") \
    ASK(nvmlDeviceGetEncoderCapacity, "io4") \
    ASK(nvmlDeviceGetEncoderStats, "o4o4o4") \
    ASK(nvmlDeviceGetEncoderUtilization, "o4o4") \
    ASK(nvmlDeviceGetEnforcedPowerLimit, "o4") \
    ASK(nvmlDeviceGetFBCStats, "o12") \
    ASK(nvmlDeviceGetFanControlPolicy_v2, "io4") \
    ASK(nvmlDeviceGetFanSpeed, "o4") \
    ASK(nvmlDeviceGetFanSpeedRPM, "v") \
    ASK(nvmlDeviceGetFanSpeed_v2, "io4") \
    ASK(nvmlDeviceGetGpcClkMinMaxVfOffset, "o4o4") \
    ASK(nvmlDeviceGetGpcClkVfOffset, "o4") \
    ASK(nvmlDeviceGetGpuFabricInfo, "o28") \
    ASK(nvmlDeviceGetGpuFabricInfoV, "v") \
    ASK(nvmlDeviceGetGpuMaxPcieLinkGeneration, "o4") \
    ASK(nvmlDeviceGetGpuOperationMode, "o4o4") \
    ASK(nvmlDeviceGetGspFirmwareMode, "o4o4") \
    ASK(nvmlDeviceGetGspFirmwareVersion, "g64") \
    ASK(nvmlDeviceGetInforomConfigurationChecksum, "o4") \
    ASK(nvmlDeviceGetInforomImageVersion, "t") \
    ASK(nvmlDeviceGetInforomVersion, "it") \
    ASK(nvmlDeviceGetIrqNum, "o4") \
    ASK(nvmlDeviceGetJpgUtilization, "o4o4") \
    ASK(nvmlDeviceGetLastBBXFlushTime, "o8o8") \
    ASK(nvmlDeviceGetMarginTemperature, "v") \
    ASK(nvmlDeviceGetMaxClockInfo, "io4") \
    ASK(nvmlDeviceGetMaxCustomerBoostClock, "io4") \
    ASK(nvmlDeviceGetMaxMigDeviceCount, "o4") \
    ASK(nvmlDeviceGetMaxPcieLinkGeneration, "o4") \
    ASK(nvmlDeviceGetMaxPcieLinkWidth, "o4") \
    ASK(nvmlDeviceGetMemClkMinMaxVfOffset, "o4o4") \
    ASK(nvmlDeviceGetMemClkVfOffset, "o4") \
    ASK(nvmlDeviceGetMemoryBusWidth, "o4") \
    ASK(nvmlDeviceGetMemoryErrorCounter, "iiio8") \
    ASK(nvmlDeviceGetMigMode, "o4o4") \
    ASK(nvmlDeviceGetMinMaxClockOfPState, "iio4o4") \
    ASK(nvmlDeviceGetMinMaxFanSpeed, "o4o4") \
    ASK(nvmlDeviceGetModuleId, "o4") \
    ASK(nvmlDeviceGetMultiGpuBoard, "o4") \
    ASK(nvmlDeviceGetNumFans, "o4") \
    ASK(nvmlDeviceGetNumGpuCores, "o4") \
    ASK(nvmlDeviceGetNvLinkCapability, "iio4") \
    ASK(nvmlDeviceGetNvLinkErrorCounter, "iio8") \
    ASK(nvmlDeviceGetNvLinkInfo, "v") \
    ASK(nvmlDeviceGetNvLinkRemoteDeviceType, "io4") \
    ASK(nvmlDeviceGetNvLinkRemotePciInfo_v2, "io68") \
    ASK(nvmlDeviceGetNvLinkState, "io4") \
    ASK(nvmlDeviceGetNvLinkUtilizationCounter, "iio8o8") \
    ASK(nvmlDeviceGetNvLinkVersion, "io4") \
    ASK(nvmlDeviceGetNvlinkBwMode, "v") \
    ASK(nvmlDeviceGetNvlinkSupportedBwModes, "v") \
    ASK(nvmlDeviceGetOfaUtilization, "o4o4") \
    ASK(nvmlDeviceGetPcieLinkMaxSpeed, "o4") \
    ASK(nvmlDeviceGetPcieReplayCounter, "o4") \
    ASK(nvmlDeviceGetPcieSpeed, "o4") \
    ASK(nvmlDeviceGetPcieThroughput, "io4") \
    ASK(nvmlDeviceGetPdi, "v") \
    ASK(nvmlDeviceGetPerformanceModes, "v") \
    ASK(nvmlDeviceGetPerformanceState, "o4") \
    ASK(nvmlDeviceGetPersistenceMode, "o4") \
    ASK(nvmlDeviceGetPlatformInfo, "v") \
    ASK(nvmlDeviceGetPowerManagementDefaultLimit, "o4") \
    ASK(nvmlDeviceGetPowerManagementLimit, "o4") \
    ASK(nvmlDeviceGetPowerManagementLimitConstraints, "o4o4") \
    ASK(nvmlDeviceGetPowerManagementMode, "o4") \
    ASK(nvmlDeviceGetPowerSource, "o4") \
    ASK(nvmlDeviceGetPowerState, "o4") \
    ASK(nvmlDeviceGetPowerUsage, "o4") \
    ASK(nvmlDeviceGetRemappedRows, "o4o4o4o4") \
    ASK(nvmlDeviceGetRepairStatus, "v") \
    ASK(nvmlDeviceGetRetiredPages, "ic8") \
    ASK(nvmlDeviceGetRetiredPagesPendingStatus, "o4") \
    ASK(nvmlDeviceGetRowRemapperHistogram, "o20") \
    ASK(nvmlDeviceGetSamples, "ilo4c16") \
    ASK(nvmlDeviceGetSerial, "t") \
    ASK(nvmlDeviceGetSramEccErrorStatus, "v") \
    ASK(nvmlDeviceGetSupportedClocksEventReasons, "o8") \
    ASK(nvmlDeviceGetSupportedClocksThrottleReasons, "o8") \
    ASK(nvmlDeviceGetSupportedGraphicsClocks, "ic4") \
    ASK(nvmlDeviceGetSupportedMemoryClocks, "c4") \
    ASK(nvmlDeviceGetTargetFanSpeed, "io4") \
    ASK(nvmlDeviceGetTemperature, "io4") \
    ASK(nvmlDeviceGetTemperatureThreshold, "io4") \
    ASK(nvmlDeviceGetTemperatureV, "v") \
    ASK(nvmlDeviceGetThermalSettings, "io64") \
    ASK(nvmlDeviceGetTopologyCommonAncestor, "eo4") \
    ASK(nvmlDeviceGetTotalEccErrors, "iio8") \
    ASK(nvmlDeviceGetTotalEnergyConsumption, "o8") \
    ASK(nvmlDeviceGetUnrepairableMemoryFlag_v1, "v") \
    ASK(nvmlDeviceGetUtilizationRates, "o8") \
    ASK(nvmlDeviceGetVbiosVersion, "t") \
    ASK(nvmlDeviceGetViolationStatus, "io16") \
    ASK(nvmlDeviceGetVirtualizationMode, "o4") \
    ASK(nvmlDeviceOnSameBoard, "eo4")
/* Asked by functions of the client that do more than ask, and by the server itself. */
#define RG_MANAGEMENT_INNER_QUESTIONS(ASK) \
    ASK(nvmlDeviceGetFieldValues, "f40") \
    ASK(nvmlDeviceGetMemoryInfo_v2, "v") \
    ASK(nvmlDeviceGetP2PStatus, "eio4") \
    ASK(nvmlDeviceGetPciInfoExt, "v") \
    ASK(nvmlDeviceGetPciInfo_v3, "o68")
/* clang-format on */

enum rg_nvml_question {
#define RG_MANAGEMENT_QUESTION(name, signature) RG_QUESTION_##name,
    RG_MANAGEMENT_QUESTIONS(RG_MANAGEMENT_QUESTION) RG_MANAGEMENT_INNER_QUESTIONS(RG_MANAGEMENT_QUESTION)
#undef RG_MANAGEMENT_QUESTION
        RG_QUESTION_COUNT
};

#define RG_QUESTION_ARGUMENTS 6 /* after the device */

/* One argument or, where a length belongs to it, two. */
struct rg_question_argument {
    char letter;
    uint32_t unit;   /* the number behind the letter; v: once taken apart, its size */
    uint64_t number; /* i, l: its value; t, c, f: how many the caller has room for or gives */
    uint32_t *told;  /* c: where their number goes, and was given */
    void *memory;    /* what is given and told; c: NULL asks for the number alone */
};

struct rg_question_call {
    enum rg_nvml_question question;
    uint8_t devices[2][16]; /* UUIDs; the second for `e` */
    unsigned n;
    struct rg_question_argument arguments[RG_QUESTION_ARGUMENTS];
};

/** The function's name, "nvmlDeviceGetName". */
const char *rg_question_name(enum rg_nvml_question question);
/** Sets question, letters and units; the rest is zero. */
void rg_question_prepare(enum rg_nvml_question question, struct rg_question_call *out);
/** Bytes behind argument->memory, 0 for numbers; a `v` says it by itself. */
size_t rg_question_capacity(const struct rg_question_argument *argument);

/** Writes a question; RG_ERR_LIMIT: what is given or asked for is too much. */
RG_MUST_CHECK enum rg_status rg_question_encode(const struct rg_question_call *call, void *out, size_t *size);
/**
 * Takes a question apart. Memory of arguments lies in `storage` (RG_ANSWER_SIZE_MAX bytes, aligned for anything,
 * zeroed by this). RG_ERR_PROTOCOL, RG_ERR_LIMIT; RG_ERR_UNSUPPORTED: a function that this build does not know.
 */
RG_MUST_CHECK enum rg_status rg_question_decode(const void *data, size_t size, void *storage,
                                                struct rg_question_call *out);
/** The function's result (an nvmlReturn_t) and what it told. */
RG_MUST_CHECK enum rg_status rg_answer_encode(const struct rg_question_call *call, int result, void *out,
                                              size_t *size);
/** Puts an answer where the call's arguments point, if its result says that there is something. */
RG_MUST_CHECK enum rg_status rg_answer_decode(const void *data, size_t size, struct rg_question_call *call,
                                              int *result);

#endif
