/*
 * functions.h - the one list of NVML functions that exist here.
 *
 * The exports of libnvidia-ml.so.1, the client core's table and the tests are made of it. The kinds of rows:
 *
 *   SERVED(returns, name, parameters, arguments)  has an implementation in client/nvml/
 *   OLDER(name, served)  the name that a served function had before, exported and nothing else
 *   ASK(name, signature)  proto/management/management.h: is asked of the server's management library when it
 *   is called
 *   DEVICE(name)   takes a device first and asks what a server does not tell: NVML's "not supported"
 *   SYSTEM(name)   the same without a device
 *   and among RG_NVML_REFUSED_FUNCTIONS those that would change the server: "no permission"
 *
 * What is not in the list is not exported, which callers know as a library that is older than the function.
 */
#ifndef RG_CLIENT_NVML_FUNCTIONS_H
#define RG_CLIENT_NVML_FUNCTIONS_H

#include "client/nvml/types.h"
#include "proto/management/management.h"

/* clang-format off */
#define RG_NVML_SERVED_FUNCTIONS(SERVED) \
    SERVED(int, nvmlInit_v2, (void), ()) \
    SERVED(int, nvmlInitWithFlags, (unsigned flags), (flags)) \
    SERVED(int, nvmlShutdown, (void), ()) \
    SERVED(const char *, nvmlErrorString, (int result), (result)) \
    SERVED(int, nvmlSystemGetDriverVersion, (char *version, unsigned length), (version, length)) \
    SERVED(int, nvmlSystemGetDriverBranch, (struct rg_nvml_branch *branch, unsigned length), (branch, length)) \
    SERVED(int, nvmlSystemGetNVMLVersion, (char *version, unsigned length), (version, length)) \
    SERVED(int, nvmlSystemGetCudaDriverVersion_v2, (int *version), (version)) \
    SERVED(int, nvmlSystemGetProcessName, (unsigned pid, char *name, unsigned length), (pid, name, length)) \
    SERVED(int, nvmlDeviceGetCount_v2, (unsigned *count), (count)) \
    SERVED(int, nvmlDeviceGetHandleByIndex_v2, (unsigned index, rg_nvml_device *device), (index, device)) \
    SERVED(int, nvmlDeviceGetHandleByUUID, (const char *uuid, rg_nvml_device *device), (uuid, device)) \
    SERVED(int, nvmlDeviceGetHandleByUUIDV, (const struct rg_nvml_uuid *uuid, rg_nvml_device *device), (uuid, device)) \
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
    SERVED(int, nvmlDeviceGetPciInfoExt, (rg_nvml_device device, struct rg_nvml_pci_extended *pci), (device, pci)) \
    SERVED(int, nvmlDeviceGetMemoryInfo, (rg_nvml_device device, struct rg_nvml_memory *memory), (device, memory)) \
    SERVED(int, nvmlDeviceGetMemoryInfo_v2, (rg_nvml_device device, struct rg_nvml_memory_v2 *memory), \
           (device, memory)) \
    SERVED(int, nvmlDeviceGetComputeRunningProcesses, \
           (rg_nvml_device device, unsigned *count, struct rg_nvml_process_v1 *processes), (device, count, processes)) \
    SERVED(int, nvmlDeviceGetComputeRunningProcesses_v3, \
           (rg_nvml_device device, unsigned *count, struct rg_nvml_process *processes), (device, count, processes)) \
    SERVED(int, nvmlDeviceGetP2PStatus, (rg_nvml_device first, rg_nvml_device second, int which, int *status), \
           (first, second, which, status)) \
    SERVED(int, nvmlDeviceGetFieldValues, (rg_nvml_device device, int count, struct rg_nvml_field *fields), \
           (device, count, fields)) \
    SERVED(int, nvmlDeviceGetHandleBySerial, (const char *serial, rg_nvml_device *device), (serial, device)) \
    SERVED(int, nvmlDeviceIsMigDeviceHandle, (rg_nvml_device device, unsigned *is_one), (device, is_one)) \
    SERVED(int, nvmlDeviceGetMigDeviceHandleByIndex, (rg_nvml_device device, unsigned index, rg_nvml_device *out), \
           (device, index, out)) \
    SERVED(int, nvmlDeviceGetDeviceHandleFromMigDeviceHandle, (rg_nvml_device device, rg_nvml_device *out), \
           (device, out)) \
    SERVED(int, nvmlDeviceGetGpuInstanceId, (rg_nvml_device device, unsigned *id), (device, id)) \
    SERVED(int, nvmlDeviceGetComputeInstanceId, (rg_nvml_device device, unsigned *id), (device, id)) \
    SERVED(int, nvmlDeviceGetSupportedEventTypes, (rg_nvml_device device, unsigned long long *types), \
           (device, types)) \
    SERVED(int, nvmlDeviceRegisterEvents, (rg_nvml_device device, unsigned long long types, void *set), \
           (device, types, set)) \
    SERVED(int, nvmlEventSetCreate, (void **set), (set)) \
    SERVED(int, nvmlEventSetFree, (void *set), (set)) \
    SERVED(int, nvmlEventSetWait_v2, (void *set, void *data, unsigned milliseconds), (set, data, milliseconds)) \
    SERVED(int, nvmlUnitGetCount, (unsigned *count), (count)) \
    SERVED(int, nvmlGetExcludedDeviceCount, (unsigned *count), (count)) \
    SERVED(int, nvmlInternalGetExportTable, (const void **table, const void *id), (table, id))

#define RG_NVML_OLDER_NAMES(OLDER) \
    OLDER(nvmlInit, nvmlInit_v2) \
    OLDER(nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2) \
    OLDER(nvmlDeviceGetCount, nvmlDeviceGetCount_v2) \
    OLDER(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2) \
    OLDER(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2) \
    OLDER(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses_v3) \
    OLDER(nvmlEventSetWait, nvmlEventSetWait_v2)

#define RG_NVML_UNSUPPORTED_FUNCTIONS(DEVICE, SYSTEM) \
    DEVICE(nvmlDeviceClearCpuAffinity) \
    DEVICE(nvmlDeviceGetAccountingPids) \
    DEVICE(nvmlDeviceGetAccountingStats) \
    DEVICE(nvmlDeviceGetAccountingStats_v2) \
    DEVICE(nvmlDeviceGetActiveVgpus) \
    DEVICE(nvmlDeviceGetAdaptiveTgpModeInfo_v1) \
    DEVICE(nvmlDeviceGetBBXTimeData_v1) \
    DEVICE(nvmlDeviceGetBankRemapperStatus_v1) \
    DEVICE(nvmlDeviceGetConfComputeGpuAttestationReport) \
    DEVICE(nvmlDeviceGetConfComputeGpuCertificate) \
    DEVICE(nvmlDeviceGetConfComputeMemSizeInfo) \
    DEVICE(nvmlDeviceGetConfComputeProtectedMemoryUsage) \
    DEVICE(nvmlDeviceGetCpuAffinity) \
    DEVICE(nvmlDeviceGetCpuAffinityWithinScope) \
    DEVICE(nvmlDeviceGetCreatableVgpus) \
    DEVICE(nvmlDeviceGetDramEncryptionMode) \
    DEVICE(nvmlDeviceGetDriverModel) \
    DEVICE(nvmlDeviceGetDriverModel_v2) \
    DEVICE(nvmlDeviceGetEncoderSessions) \
    DEVICE(nvmlDeviceGetFBCSessions) \
    DEVICE(nvmlDeviceGetGpuFabricInfo_v4) \
    DEVICE(nvmlDeviceGetGpuInstanceById) \
    DEVICE(nvmlDeviceGetGpuInstancePossiblePlacements_v2) \
    DEVICE(nvmlDeviceGetGpuInstanceProfileInfo) \
    DEVICE(nvmlDeviceGetGpuInstanceProfileInfoByIdV) \
    DEVICE(nvmlDeviceGetGpuInstanceProfileInfoV) \
    DEVICE(nvmlDeviceGetGpuInstanceRemainingCapacity) \
    DEVICE(nvmlDeviceGetGpuInstances) \
    DEVICE(nvmlDeviceGetGraphicsRunningProcesses) \
    DEVICE(nvmlDeviceGetGraphicsRunningProcesses_v2) \
    DEVICE(nvmlDeviceGetGraphicsRunningProcesses_v3) \
    DEVICE(nvmlDeviceGetGridLicensableFeatures_v4) \
    DEVICE(nvmlDeviceGetHostVgpuMode) \
    DEVICE(nvmlDeviceGetHostname_v1) \
    DEVICE(nvmlDeviceGetMPSComputeRunningProcesses) \
    DEVICE(nvmlDeviceGetMPSComputeRunningProcesses_v2) \
    DEVICE(nvmlDeviceGetMPSComputeRunningProcesses_v3) \
    DEVICE(nvmlDeviceGetMemoryAffinity) \
    DEVICE(nvmlDeviceGetMemoryLimits_v1) \
    DEVICE(nvmlDeviceGetNumaNodeId) \
    DEVICE(nvmlDeviceGetNvLinkRemotePciInfo) \
    DEVICE(nvmlDeviceGetNvLinkTelemetrySamples_v1) \
    DEVICE(nvmlDeviceGetNvLinkUtilizationControl) \
    DEVICE(nvmlDeviceGetPgpuMetadataString) \
    DEVICE(nvmlDeviceGetPowerMizerMode_v1) \
    DEVICE(nvmlDeviceGetProcessUtilization) \
    DEVICE(nvmlDeviceGetProcessesUtilizationInfo) \
    DEVICE(nvmlDeviceGetRemappedRows_v2) \
    DEVICE(nvmlDeviceGetRetiredPages_v2) \
    DEVICE(nvmlDeviceGetRunningProcessDetailList) \
    DEVICE(nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts) \
    DEVICE(nvmlDeviceGetSupportedPerformanceStates) \
    DEVICE(nvmlDeviceGetSupportedVgpus) \
    DEVICE(nvmlDeviceGetTopologyNearestGpus) \
    DEVICE(nvmlDeviceGetVgpuCapabilities) \
    DEVICE(nvmlDeviceGetVgpuHeterogeneousMode) \
    DEVICE(nvmlDeviceGetVgpuInstancesUtilizationInfo) \
    DEVICE(nvmlDeviceGetVgpuMetadata) \
    DEVICE(nvmlDeviceGetVgpuProcessUtilization) \
    DEVICE(nvmlDeviceGetVgpuProcessesUtilizationInfo) \
    DEVICE(nvmlDeviceGetVgpuSchedulerCapabilities) \
    DEVICE(nvmlDeviceGetVgpuSchedulerLog) \
    DEVICE(nvmlDeviceGetVgpuSchedulerLog_v2) \
    DEVICE(nvmlDeviceGetVgpuSchedulerState) \
    DEVICE(nvmlDeviceGetVgpuSchedulerState_v2) \
    DEVICE(nvmlDeviceGetVgpuTypeCreatablePlacements) \
    DEVICE(nvmlDeviceGetVgpuTypeSupportedPlacements) \
    DEVICE(nvmlDeviceGetVgpuUtilization) \
    DEVICE(nvmlDevicePerfMetricsGetSamples_v1) \
    DEVICE(nvmlDeviceReadPRMCounters_v1) \
    DEVICE(nvmlDeviceSetCpuAffinity) \
    DEVICE(nvmlDeviceValidateInforom) \
    DEVICE(nvmlDeviceWorkloadPowerProfileGetCurrentProfiles) \
    DEVICE(nvmlDeviceWorkloadPowerProfileGetProfilesInfo) \
    DEVICE(nvmlGpmMigSampleGet) \
    DEVICE(nvmlGpmQueryDeviceSupport) \
    DEVICE(nvmlGpmQueryIfStreamingEnabled) \
    DEVICE(nvmlGpmSampleGet) \
    SYSTEM(nvmlComputeInstanceGetInfo_v2) \
    SYSTEM(nvmlDeviceDiscoverGpus) \
    SYSTEM(nvmlDeviceQueryDrainState) \
    SYSTEM(nvmlEventSetGetContextCount_v1) \
    SYSTEM(nvmlEventSetGetContextData_v1) \
    SYSTEM(nvmlEventSetGetContextInfo_v1) \
    SYSTEM(nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1) \
    SYSTEM(nvmlEventSetRegisterGpuOperationalEvents_v1) \
    SYSTEM(nvmlEventSetWait_v3) \
    SYSTEM(nvmlGetExcludedDeviceInfoByIndex) \
    SYSTEM(nvmlGetVgpuCompatibility) \
    SYSTEM(nvmlGetVgpuDriverCapabilities) \
    SYSTEM(nvmlGetVgpuVersion) \
    SYSTEM(nvmlGpmMetricsGet) \
    SYSTEM(nvmlGpmSampleAlloc) \
    SYSTEM(nvmlGpmSampleFree) \
    SYSTEM(nvmlGpuInstanceGetActiveVgpus) \
    SYSTEM(nvmlGpuInstanceGetComputeInstanceById) \
    SYSTEM(nvmlGpuInstanceGetComputeInstancePossiblePlacements) \
    SYSTEM(nvmlGpuInstanceGetComputeInstanceProfileInfo) \
    SYSTEM(nvmlGpuInstanceGetComputeInstanceProfileInfoV) \
    SYSTEM(nvmlGpuInstanceGetComputeInstanceRemainingCapacity) \
    SYSTEM(nvmlGpuInstanceGetComputeInstances) \
    SYSTEM(nvmlGpuInstanceGetCreatableVgpus) \
    SYSTEM(nvmlGpuInstanceGetInfo) \
    SYSTEM(nvmlGpuInstanceGetVgpuHeterogeneousMode) \
    SYSTEM(nvmlGpuInstanceGetVgpuSchedulerLog) \
    SYSTEM(nvmlGpuInstanceGetVgpuSchedulerLog_v2) \
    SYSTEM(nvmlGpuInstanceGetVgpuSchedulerState) \
    SYSTEM(nvmlGpuInstanceGetVgpuSchedulerState_v2) \
    SYSTEM(nvmlGpuInstanceGetVgpuTypeCreatablePlacements) \
    SYSTEM(nvmlSystemEventSetCreate) \
    SYSTEM(nvmlSystemEventSetFree) \
    SYSTEM(nvmlSystemEventSetWait) \
    SYSTEM(nvmlSystemGetCPER_v1) \
    SYSTEM(nvmlSystemGetConfComputeCapabilities) \
    SYSTEM(nvmlSystemGetConfComputeGpusReadyState) \
    SYSTEM(nvmlSystemGetConfComputeKeyRotationThresholdInfo) \
    SYSTEM(nvmlSystemGetConfComputeSettings) \
    SYSTEM(nvmlSystemGetConfComputeState) \
    SYSTEM(nvmlSystemGetHicVersion) \
    SYSTEM(nvmlSystemGetNvlinkBwMode) \
    SYSTEM(nvmlSystemGetTopologyGpuSet) \
    SYSTEM(nvmlSystemRegisterEvents) \
    SYSTEM(nvmlUnitGetDevices) \
    SYSTEM(nvmlUnitGetFanSpeedInfo) \
    SYSTEM(nvmlUnitGetHandleByIndex) \
    SYSTEM(nvmlUnitGetLedState) \
    SYSTEM(nvmlUnitGetPsuInfo) \
    SYSTEM(nvmlUnitGetTemperature) \
    SYSTEM(nvmlUnitGetUnitInfo) \
    SYSTEM(nvmlVgpuInstanceGetAccountingMode) \
    SYSTEM(nvmlVgpuInstanceGetAccountingPids) \
    SYSTEM(nvmlVgpuInstanceGetAccountingStats) \
    SYSTEM(nvmlVgpuInstanceGetEccMode) \
    SYSTEM(nvmlVgpuInstanceGetEncoderCapacity) \
    SYSTEM(nvmlVgpuInstanceGetEncoderSessions) \
    SYSTEM(nvmlVgpuInstanceGetEncoderStats) \
    SYSTEM(nvmlVgpuInstanceGetFBCSessions) \
    SYSTEM(nvmlVgpuInstanceGetFBCStats) \
    SYSTEM(nvmlVgpuInstanceGetFbUsage) \
    SYSTEM(nvmlVgpuInstanceGetFrameRateLimit) \
    SYSTEM(nvmlVgpuInstanceGetGpuInstanceId) \
    SYSTEM(nvmlVgpuInstanceGetGpuPciId) \
    SYSTEM(nvmlVgpuInstanceGetLicenseInfo_v2) \
    SYSTEM(nvmlVgpuInstanceGetLicenseStatus) \
    SYSTEM(nvmlVgpuInstanceGetMdevUUID) \
    SYSTEM(nvmlVgpuInstanceGetMetadata) \
    SYSTEM(nvmlVgpuInstanceGetPlacementId) \
    SYSTEM(nvmlVgpuInstanceGetRuntimeStateSize) \
    SYSTEM(nvmlVgpuInstanceGetType) \
    SYSTEM(nvmlVgpuInstanceGetUUID) \
    SYSTEM(nvmlVgpuInstanceGetVmDriverVersion) \
    SYSTEM(nvmlVgpuInstanceGetVmID) \
    SYSTEM(nvmlVgpuTypeGetBAR1Info) \
    SYSTEM(nvmlVgpuTypeGetCapabilities) \
    SYSTEM(nvmlVgpuTypeGetClass) \
    SYSTEM(nvmlVgpuTypeGetDeviceID) \
    SYSTEM(nvmlVgpuTypeGetFbReservation) \
    SYSTEM(nvmlVgpuTypeGetFrameRateLimit) \
    SYSTEM(nvmlVgpuTypeGetFramebufferSize) \
    SYSTEM(nvmlVgpuTypeGetGpuInstanceProfileId) \
    SYSTEM(nvmlVgpuTypeGetGspHeapSize) \
    SYSTEM(nvmlVgpuTypeGetLicense) \
    SYSTEM(nvmlVgpuTypeGetMaxInstances) \
    SYSTEM(nvmlVgpuTypeGetMaxInstancesPerGpuInstance) \
    SYSTEM(nvmlVgpuTypeGetMaxInstancesPerVm) \
    SYSTEM(nvmlVgpuTypeGetName) \
    SYSTEM(nvmlVgpuTypeGetNumDisplayHeads) \
    SYSTEM(nvmlVgpuTypeGetResolution)

#define RG_NVML_REFUSED_FUNCTIONS(DEVICE, SYSTEM) \
    DEVICE(nvmlDeviceClearAccountingPids) \
    DEVICE(nvmlDeviceClearEccErrorCounts) \
    DEVICE(nvmlDeviceClearFieldValues) \
    DEVICE(nvmlDeviceCreateGpuInstance) \
    DEVICE(nvmlDeviceCreateGpuInstanceWithPlacement) \
    DEVICE(nvmlDeviceFreezeNvLinkUtilizationCounter) \
    DEVICE(nvmlDevicePowerSmoothingActivatePresetProfile) \
    DEVICE(nvmlDevicePowerSmoothingSetState) \
    DEVICE(nvmlDevicePowerSmoothingUpdatePresetProfileParam) \
    DEVICE(nvmlDeviceReadWritePRM_v1) \
    DEVICE(nvmlDeviceResetApplicationsClocks) \
    DEVICE(nvmlDeviceResetGpuLockedClocks) \
    DEVICE(nvmlDeviceResetMemoryLockedClocks) \
    DEVICE(nvmlDeviceResetNvLinkErrorCounters) \
    DEVICE(nvmlDeviceResetNvLinkUtilizationCounter) \
    DEVICE(nvmlDeviceSetAPIRestriction) \
    DEVICE(nvmlDeviceSetAccountingMode) \
    DEVICE(nvmlDeviceSetAdaptiveTgpMode_v1) \
    DEVICE(nvmlDeviceSetApplicationsClocks) \
    DEVICE(nvmlDeviceSetAutoBoostedClocksEnabled) \
    DEVICE(nvmlDeviceSetClockOffsets) \
    DEVICE(nvmlDeviceSetComputeMode) \
    DEVICE(nvmlDeviceSetConfComputeUnprotectedMemSize) \
    DEVICE(nvmlDeviceSetDefaultAutoBoostedClocksEnabled) \
    DEVICE(nvmlDeviceSetDefaultFanSpeed_v2) \
    DEVICE(nvmlDeviceSetDramEncryptionMode) \
    DEVICE(nvmlDeviceSetDriverModel) \
    DEVICE(nvmlDeviceSetEccMode) \
    DEVICE(nvmlDeviceSetFanControlPolicy) \
    DEVICE(nvmlDeviceSetFanSpeed_v2) \
    DEVICE(nvmlDeviceSetGpcClkVfOffset) \
    DEVICE(nvmlDeviceSetGpuLockedClocks) \
    DEVICE(nvmlDeviceSetGpuOperationMode) \
    DEVICE(nvmlDeviceSetHostname_v1) \
    DEVICE(nvmlDeviceSetMemClkVfOffset) \
    DEVICE(nvmlDeviceSetMemoryLimits_v1) \
    DEVICE(nvmlDeviceSetMemoryLockedClocks) \
    DEVICE(nvmlDeviceSetMigMode) \
    DEVICE(nvmlDeviceSetNvLinkDeviceLowPowerThreshold) \
    DEVICE(nvmlDeviceSetNvLinkUtilizationControl) \
    DEVICE(nvmlDeviceSetNvlinkBwMode) \
    DEVICE(nvmlDeviceSetNvlinkBwModeAsync_v1) \
    DEVICE(nvmlDeviceSetPersistenceMode) \
    DEVICE(nvmlDeviceSetPowerManagementLimit) \
    DEVICE(nvmlDeviceSetPowerManagementLimit_v2) \
    DEVICE(nvmlDeviceSetPowerMizerMode_v1) \
    DEVICE(nvmlDeviceSetRusdSettings_v1) \
    DEVICE(nvmlDeviceSetTemperatureThreshold) \
    DEVICE(nvmlDeviceSetVgpuCapabilities) \
    DEVICE(nvmlDeviceSetVgpuHeterogeneousMode) \
    DEVICE(nvmlDeviceSetVgpuSchedulerState) \
    DEVICE(nvmlDeviceSetVgpuSchedulerState_v2) \
    DEVICE(nvmlDeviceSetVirtualizationMode) \
    DEVICE(nvmlDeviceVgpuForceGspUnload) \
    DEVICE(nvmlDeviceWorkloadPowerProfileClearRequestedProfiles) \
    DEVICE(nvmlDeviceWorkloadPowerProfileSetRequestedProfiles) \
    DEVICE(nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1) \
    DEVICE(nvmlGpmSetStreamingEnabled) \
    SYSTEM(nvmlComputeInstanceDestroy) \
    SYSTEM(nvmlDeviceModifyDrainState) \
    SYSTEM(nvmlDeviceRemoveGpu) \
    SYSTEM(nvmlDeviceRemoveGpu_v2) \
    SYSTEM(nvmlGpuInstanceCreateComputeInstance) \
    SYSTEM(nvmlGpuInstanceCreateComputeInstanceWithPlacement) \
    SYSTEM(nvmlGpuInstanceDestroy) \
    SYSTEM(nvmlGpuInstanceSetVgpuHeterogeneousMode) \
    SYSTEM(nvmlGpuInstanceSetVgpuSchedulerState) \
    SYSTEM(nvmlGpuInstanceSetVgpuSchedulerState_v2) \
    SYSTEM(nvmlSetVgpuVersion) \
    SYSTEM(nvmlSystemSetConfComputeGpusReadyState) \
    SYSTEM(nvmlSystemSetConfComputeKeyRotationThresholdInfo) \
    SYSTEM(nvmlSystemSetNvlinkBwMode) \
    SYSTEM(nvmlUnitSetLedState) \
    SYSTEM(nvmlVgpuInstanceClearAccountingPids) \
    SYSTEM(nvmlVgpuInstanceSetEncoderCapacity)
/* clang-format on */

/* Places in the table that the client core hands to the stand-in library. */
enum rg_nvml_function {
#define RG_NVML_SERVED(returns, name, parameters, arguments) RG_NVML_FUNCTION_##name,
#define RG_NVML_NAMED(name)                                  RG_NVML_FUNCTION_##name,
#define RG_NVML_ASKED(name, signature)                       RG_NVML_FUNCTION_##name,
    RG_NVML_SERVED_FUNCTIONS(RG_NVML_SERVED) RG_MANAGEMENT_QUESTIONS(RG_NVML_ASKED)
        RG_NVML_UNSUPPORTED_FUNCTIONS(RG_NVML_NAMED, RG_NVML_NAMED)
            RG_NVML_REFUSED_FUNCTIONS(RG_NVML_NAMED, RG_NVML_NAMED)
#undef RG_NVML_SERVED
#undef RG_NVML_NAMED
#undef RG_NVML_ASKED
                RG_NVML_FUNCTION_COUNT
};

/* How functions that are asked of the server are called: as many arguments as the longest has. */
typedef int rg_nvml_asked(rg_nvml_device device, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d,
                          uintptr_t e, uintptr_t f);

#define RG_NVML_SERVED(returns, name, parameters, arguments) returns name parameters;
RG_NVML_SERVED_FUNCTIONS(RG_NVML_SERVED)
#undef RG_NVML_SERVED

#endif
