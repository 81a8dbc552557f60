/*
 * nvml_functions.h - the one list of NVML functions that exist here.
 *
 * The exports of libnvidia-ml.so.1, the client core's table and the tests are made of it. Three kinds of rows:
 *
 *   SERVED(returns, name, parameters, arguments)  has an implementation in client/nvml_*.c
 *   DEVICE(name)   takes a device first and asks or wants what a server does not tell or do: NVML's "not supported"
 *   SYSTEM(name)   the same without a device
 *
 * What is not in the list is not exported, which callers know as a library that is older than the function.
 */
#ifndef RG_CLIENT_NVML_FUNCTIONS_H
#define RG_CLIENT_NVML_FUNCTIONS_H

#include "client/nvml_types.h"

/* clang-format off */
#define RG_NVML_SERVED_FUNCTIONS(SERVED) \
    SERVED(int, nvmlInit, (void), ()) \
    SERVED(int, nvmlInit_v2, (void), ()) \
    SERVED(int, nvmlInitWithFlags, (unsigned flags), (flags)) \
    SERVED(int, nvmlShutdown, (void), ()) \
    SERVED(const char *, nvmlErrorString, (int result), (result)) \
    SERVED(int, nvmlSystemGetDriverVersion, (char *version, unsigned length), (version, length)) \
    SERVED(int, nvmlSystemGetNVMLVersion, (char *version, unsigned length), (version, length)) \
    SERVED(int, nvmlSystemGetCudaDriverVersion, (int *version), (version)) \
    SERVED(int, nvmlSystemGetCudaDriverVersion_v2, (int *version), (version)) \
    SERVED(int, nvmlSystemGetProcessName, (unsigned pid, char *name, unsigned length), (pid, name, length)) \
    SERVED(int, nvmlDeviceGetCount, (unsigned *count), (count)) \
    SERVED(int, nvmlDeviceGetCount_v2, (unsigned *count), (count)) \
    SERVED(int, nvmlDeviceGetHandleByIndex, (unsigned index, rg_nvml_device *device), (index, device)) \
    SERVED(int, nvmlDeviceGetHandleByIndex_v2, (unsigned index, rg_nvml_device *device), (index, device)) \
    SERVED(int, nvmlDeviceGetHandleByUUID, (const char *uuid, rg_nvml_device *device), (uuid, device)) \
    SERVED(int, nvmlDeviceGetHandleByPciBusId, (const char *id, rg_nvml_device *device), (id, device)) \
    SERVED(int, nvmlDeviceGetHandleByPciBusId_v2, (const char *id, rg_nvml_device *device), (id, device)) \
    SERVED(int, nvmlDeviceGetName, (rg_nvml_device device, char *name, unsigned length), (device, name, length)) \
    SERVED(int, nvmlDeviceGetUUID, (rg_nvml_device device, char *uuid, unsigned length), (device, uuid, length)) \
    SERVED(int, nvmlDeviceGetIndex, (rg_nvml_device device, unsigned *index), (device, index)) \
    SERVED(int, nvmlDeviceGetMinorNumber, (rg_nvml_device device, unsigned *number), (device, number)) \
    SERVED(int, nvmlDeviceGetBrand, (rg_nvml_device device, int *brand), (device, brand)) \
    SERVED(int, nvmlDeviceGetArchitecture, (rg_nvml_device device, unsigned *value), (device, value)) \
    SERVED(int, nvmlDeviceGetCudaComputeCapability, (rg_nvml_device device, int *major, int *minor), \
           (device, major, minor)) \
    SERVED(int, nvmlDeviceGetPciInfo, (rg_nvml_device device, struct rg_nvml_pci_v2 *pci), (device, pci)) \
    SERVED(int, nvmlDeviceGetPciInfo_v2, (rg_nvml_device device, struct rg_nvml_pci_v2 *pci), (device, pci)) \
    SERVED(int, nvmlDeviceGetPciInfo_v3, (rg_nvml_device device, struct rg_nvml_pci *pci), (device, pci)) \
    SERVED(int, nvmlDeviceGetMemoryInfo, (rg_nvml_device device, struct rg_nvml_memory *memory), (device, memory)) \
    SERVED(int, nvmlDeviceGetMemoryInfo_v2, (rg_nvml_device device, struct rg_nvml_memory_v2 *memory), \
           (device, memory)) \
    SERVED(int, nvmlDeviceGetComputeRunningProcesses, \
           (rg_nvml_device device, unsigned *count, struct rg_nvml_process_v1 *processes), (device, count, processes)) \
    SERVED(int, nvmlDeviceGetComputeRunningProcesses_v2, \
           (rg_nvml_device device, unsigned *count, struct rg_nvml_process *processes), (device, count, processes)) \
    SERVED(int, nvmlDeviceGetComputeRunningProcesses_v3, \
           (rg_nvml_device device, unsigned *count, struct rg_nvml_process *processes), (device, count, processes)) \
    SERVED(int, nvmlDeviceGetP2PStatus, (rg_nvml_device first, rg_nvml_device second, int which, int *status), \
           (first, second, which, status))

#define RG_NVML_UNSUPPORTED_FUNCTIONS(DEVICE, SYSTEM) \
    DEVICE(nvmlDeviceClearCpuAffinity) \
    DEVICE(nvmlDeviceGetAccountingMode) \
    DEVICE(nvmlDeviceGetApplicationsClock) \
    DEVICE(nvmlDeviceGetAttributes) \
    DEVICE(nvmlDeviceGetAttributes_v2) \
    DEVICE(nvmlDeviceGetAutoBoostedClocksEnabled) \
    DEVICE(nvmlDeviceGetBAR1MemoryInfo) \
    DEVICE(nvmlDeviceGetBoardId) \
    DEVICE(nvmlDeviceGetBoardPartNumber) \
    DEVICE(nvmlDeviceGetClock) \
    DEVICE(nvmlDeviceGetClockInfo) \
    DEVICE(nvmlDeviceGetComputeMode) \
    DEVICE(nvmlDeviceGetCpuAffinity) \
    DEVICE(nvmlDeviceGetCpuAffinityWithinScope) \
    DEVICE(nvmlDeviceGetCurrPcieLinkGeneration) \
    DEVICE(nvmlDeviceGetCurrPcieLinkWidth) \
    DEVICE(nvmlDeviceGetCurrentClocksEventReasons) \
    DEVICE(nvmlDeviceGetCurrentClocksThrottleReasons) \
    DEVICE(nvmlDeviceGetDecoderUtilization) \
    DEVICE(nvmlDeviceGetDefaultApplicationsClock) \
    DEVICE(nvmlDeviceGetDetailedEccErrors) \
    DEVICE(nvmlDeviceGetDisplayActive) \
    DEVICE(nvmlDeviceGetDisplayMode) \
    DEVICE(nvmlDeviceGetDriverModel) \
    DEVICE(nvmlDeviceGetEccMode) \
    DEVICE(nvmlDeviceGetEncoderUtilization) \
    DEVICE(nvmlDeviceGetEnforcedPowerLimit) \
    DEVICE(nvmlDeviceGetFanSpeed) \
    DEVICE(nvmlDeviceGetFanSpeed_v2) \
    DEVICE(nvmlDeviceGetFieldValues) \
    DEVICE(nvmlDeviceGetGpuFabricInfo) \
    DEVICE(nvmlDeviceGetGpuFabricInfoV) \
    DEVICE(nvmlDeviceGetGpuInstanceId) \
    DEVICE(nvmlDeviceGetComputeInstanceId) \
    DEVICE(nvmlDeviceGetGraphicsRunningProcesses) \
    DEVICE(nvmlDeviceGetGraphicsRunningProcesses_v2) \
    DEVICE(nvmlDeviceGetGraphicsRunningProcesses_v3) \
    DEVICE(nvmlDeviceGetInforomImageVersion) \
    DEVICE(nvmlDeviceGetInforomVersion) \
    DEVICE(nvmlDeviceGetMPSComputeRunningProcesses) \
    DEVICE(nvmlDeviceGetMPSComputeRunningProcesses_v2) \
    DEVICE(nvmlDeviceGetMPSComputeRunningProcesses_v3) \
    DEVICE(nvmlDeviceGetMaxClockInfo) \
    DEVICE(nvmlDeviceGetMaxMigDeviceCount) \
    DEVICE(nvmlDeviceGetMaxPcieLinkGeneration) \
    DEVICE(nvmlDeviceGetMaxPcieLinkWidth) \
    DEVICE(nvmlDeviceGetMemoryAffinity) \
    DEVICE(nvmlDeviceGetMemoryBusWidth) \
    DEVICE(nvmlDeviceGetMemoryErrorCounter) \
    DEVICE(nvmlDeviceGetMigDeviceHandleByIndex) \
    DEVICE(nvmlDeviceGetMigMode) \
    DEVICE(nvmlDeviceGetMultiGpuBoard) \
    DEVICE(nvmlDeviceGetNumFans) \
    DEVICE(nvmlDeviceGetNumGpuCores) \
    DEVICE(nvmlDeviceGetNumaNodeId) \
    DEVICE(nvmlDeviceGetNvLinkCapability) \
    DEVICE(nvmlDeviceGetNvLinkErrorCounter) \
    DEVICE(nvmlDeviceGetNvLinkRemoteDeviceType) \
    DEVICE(nvmlDeviceGetNvLinkRemotePciInfo) \
    DEVICE(nvmlDeviceGetNvLinkRemotePciInfo_v2) \
    DEVICE(nvmlDeviceGetNvLinkState) \
    DEVICE(nvmlDeviceGetNvLinkVersion) \
    DEVICE(nvmlDeviceGetPcieReplayCounter) \
    DEVICE(nvmlDeviceGetPcieThroughput) \
    DEVICE(nvmlDeviceGetPerformanceState) \
    DEVICE(nvmlDeviceGetPersistenceMode) \
    DEVICE(nvmlDeviceGetPowerManagementDefaultLimit) \
    DEVICE(nvmlDeviceGetPowerManagementLimit) \
    DEVICE(nvmlDeviceGetPowerManagementLimitConstraints) \
    DEVICE(nvmlDeviceGetPowerManagementMode) \
    DEVICE(nvmlDeviceGetPowerState) \
    DEVICE(nvmlDeviceGetPowerUsage) \
    DEVICE(nvmlDeviceGetProcessUtilization) \
    DEVICE(nvmlDeviceGetRemappedRows) \
    DEVICE(nvmlDeviceGetRetiredPages) \
    DEVICE(nvmlDeviceGetSamples) \
    DEVICE(nvmlDeviceGetSerial) \
    DEVICE(nvmlDeviceGetSupportedEventTypes) \
    DEVICE(nvmlDeviceGetSupportedGraphicsClocks) \
    DEVICE(nvmlDeviceGetSupportedMemoryClocks) \
    DEVICE(nvmlDeviceGetTemperature) \
    DEVICE(nvmlDeviceGetTemperatureThreshold) \
    DEVICE(nvmlDeviceGetTopologyCommonAncestor) \
    DEVICE(nvmlDeviceGetTopologyNearestGpus) \
    DEVICE(nvmlDeviceGetTotalEccErrors) \
    DEVICE(nvmlDeviceGetTotalEnergyConsumption) \
    DEVICE(nvmlDeviceGetUtilizationRates) \
    DEVICE(nvmlDeviceGetVbiosVersion) \
    DEVICE(nvmlDeviceGetViolationStatus) \
    DEVICE(nvmlDeviceGetVirtualizationMode) \
    DEVICE(nvmlDeviceIsMigDeviceHandle) \
    DEVICE(nvmlDeviceOnSameBoard) \
    DEVICE(nvmlDeviceRegisterEvents) \
    DEVICE(nvmlDeviceResetApplicationsClocks) \
    DEVICE(nvmlDeviceResetGpuLockedClocks) \
    DEVICE(nvmlDeviceSetApplicationsClocks) \
    DEVICE(nvmlDeviceSetComputeMode) \
    DEVICE(nvmlDeviceSetCpuAffinity) \
    DEVICE(nvmlDeviceSetEccMode) \
    DEVICE(nvmlDeviceSetGpuLockedClocks) \
    DEVICE(nvmlDeviceSetPersistenceMode) \
    DEVICE(nvmlDeviceSetPowerManagementLimit) \
    SYSTEM(nvmlDeviceGetHandleBySerial) \
    SYSTEM(nvmlEventSetCreate) \
    SYSTEM(nvmlEventSetFree) \
    SYSTEM(nvmlEventSetWait) \
    SYSTEM(nvmlEventSetWait_v2) \
    SYSTEM(nvmlSystemGetConfComputeState) \
    SYSTEM(nvmlSystemGetDriverBranch) \
    SYSTEM(nvmlSystemGetHicVersion) \
    SYSTEM(nvmlSystemGetTopologyGpuSet) \
    SYSTEM(nvmlUnitGetCount)
/* clang-format on */

/* Places in the table that the client core hands to the stand-in library. */
enum rg_nvml_function {
#define RG_NVML_SERVED(returns, name, parameters, arguments) RG_NVML_FUNCTION_##name,
#define RG_NVML_NAMED(name)                                  RG_NVML_FUNCTION_##name,
    RG_NVML_SERVED_FUNCTIONS(RG_NVML_SERVED) RG_NVML_UNSUPPORTED_FUNCTIONS(RG_NVML_NAMED, RG_NVML_NAMED)
#undef RG_NVML_SERVED
#undef RG_NVML_NAMED
        RG_NVML_FUNCTION_COUNT
};

#define RG_NVML_SERVED(returns, name, parameters, arguments) returns name parameters;
RG_NVML_SERVED_FUNCTIONS(RG_NVML_SERVED)
#undef RG_NVML_SERVED

#endif
