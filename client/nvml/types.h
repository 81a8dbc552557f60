/*
 * types.h - what of NVML's binary interface the stand-in library needs: return values, and the layouts of the
 * structures that are filled in.
 *
 * NVML's own header is no part of a CUDA toolkit's minimal installation and is not needed: these are our
 * declarations of an interface that has been stable for years, held to their sizes below. Names of functions
 * are NVML's, since they are what programs look up; names of types are ours.
 */
#ifndef RG_CLIENT_NVML_TYPES_H
#define RG_CLIENT_NVML_TYPES_H

#include <assert.h>
#include <stddef.h>

enum rg_nvml_return {
    RG_NVML_SUCCESS = 0,
    RG_NVML_UNINITIALIZED = 1,
    RG_NVML_INVALID_ARGUMENT = 2,
    RG_NVML_NOT_SUPPORTED = 3,
    RG_NVML_NO_PERMISSION = 4,
    RG_NVML_ALREADY_INITIALIZED = 5,
    RG_NVML_NOT_FOUND = 6,
    RG_NVML_INSUFFICIENT_SIZE = 7,
    RG_NVML_INSUFFICIENT_POWER = 8,
    RG_NVML_DRIVER_NOT_LOADED = 9,
    RG_NVML_TIMEOUT = 10,
    RG_NVML_IRQ_ISSUE = 11,
    RG_NVML_LIBRARY_NOT_FOUND = 12,
    RG_NVML_FUNCTION_NOT_FOUND = 13,
    RG_NVML_CORRUPTED_INFOROM = 14,
    RG_NVML_GPU_IS_LOST = 15,
    RG_NVML_RESET_REQUIRED = 16,
    RG_NVML_OPERATING_SYSTEM = 17,
    RG_NVML_LIBRARY_MISMATCH = 18,
    RG_NVML_IN_USE = 19,
    RG_NVML_MEMORY = 20,
    RG_NVML_NO_DATA = 21,
    RG_NVML_ECC_NOT_SUPPORTED = 22,
    RG_NVML_INSUFFICIENT_RESOURCES = 23,
    RG_NVML_FREQUENCY_NOT_SUPPORTED = 24,
    RG_NVML_VERSION_MISMATCH = 25,
    RG_NVML_DEPRECATED = 26,
    RG_NVML_NOT_READY = 27,
    RG_NVML_GPU_NOT_FOUND = 28,
    RG_NVML_INVALID_STATE = 29,
    RG_NVML_RESET_TYPE_NOT_SUPPORTED = 30,
    RG_NVML_UNKNOWN = 999,
};

enum rg_nvml_brand {
    RG_NVML_BRAND_UNKNOWN = 0,
    RG_NVML_BRAND_QUADRO = 1,
    RG_NVML_BRAND_TESLA = 2,
    RG_NVML_BRAND_GEFORCE = 5,
    RG_NVML_BRAND_TITAN = 6,
    RG_NVML_BRAND_QUADRO_RTX = 12,
    RG_NVML_BRAND_NVIDIA_RTX = 13,
    RG_NVML_BRAND_NVIDIA = 14,
};

enum rg_nvml_architecture {
    RG_NVML_KEPLER = 2,
    RG_NVML_MAXWELL = 3,
    RG_NVML_PASCAL = 4,
    RG_NVML_VOLTA = 5,
    RG_NVML_TURING = 6,
    RG_NVML_AMPERE = 7,
    RG_NVML_ADA = 8,
    RG_NVML_HOPPER = 9,
    RG_NVML_BLACKWELL = 10,
};
#define RG_NVML_ARCHITECTURE_UNKNOWN 0xffffffffu

#define RG_NVML_P2P_STATUS_UNKNOWN 6

/* A device as the caller holds it: opaque. */
typedef struct rg_nvml_handle *rg_nvml_device;

/* First and second version: "0000:01:00.0", and reserved words to the end. */
struct rg_nvml_pci_v2 {
    char bus_id[16];
    unsigned domain, bus, device;
    unsigned device_id;    /* device << 16 | vendor */
    unsigned subsystem_id; /* in the second version only */
    unsigned reserved[4];
};
#define RG_NVML_PCI_V1_SIZE offsetof(struct rg_nvml_pci_v2, subsystem_id)

/* Third version: both forms of the bus id. */
struct rg_nvml_pci {
    char bus_id_legacy[16]; /* "0000:01:00.0" */
    unsigned domain, bus, device;
    unsigned device_id;
    unsigned subsystem_id;
    char bus_id[32]; /* "00000000:01:00.0" */
};

/* What is asked for by its version: the third version's, and the class of the PCI device. */
struct rg_nvml_pci_extended {
    unsigned version; /* RG_NVML_PCI_EXTENDED, set by the caller */
    unsigned domain, bus, device;
    unsigned device_id;
    unsigned subsystem_id;
    unsigned base_class, sub_class; /* 0: not known */
    char bus_id[32];
};
#define RG_NVML_PCI_EXTENDED (sizeof(struct rg_nvml_pci_extended) | 1u << 24)

struct rg_nvml_memory {
    unsigned long long total, free, used;
};

struct rg_nvml_memory_v2 {
    unsigned version; /* RG_NVML_MEMORY_V2, set by the caller */
    unsigned long long total, reserved, free, used;
};
/* A structure's version is its size and, in the top byte, its number. */
#define RG_NVML_MEMORY_V2 (sizeof(struct rg_nvml_memory_v2) | 2u << 24)

/* A process that uses a device; what is not known is all ones. */
struct rg_nvml_process_v1 {
    unsigned pid;
    unsigned long long memory;
};
struct rg_nvml_process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance; /* parts of a divided GPU */
};
/* The branch of the driver's releases. */
struct rg_nvml_branch {
    unsigned version; /* RG_NVML_BRANCH, set by the caller */
    char text[80];
};
#define RG_NVML_BRANCH (sizeof(struct rg_nvml_branch) | 1u << 24)

/* A device's UUID, by one of two kinds. */
enum rg_nvml_uuid_kind {
    RG_NVML_UUID_TEXT = 1,
    RG_NVML_UUID_BYTES = 2,
};
struct rg_nvml_uuid {
    unsigned version; /* RG_NVML_UUID, set by the caller */
    unsigned kind;    /* enum rg_nvml_uuid_kind */
    union {
        char text[41]; /* "GPU-1b4e28ba-…", which ends with NUL */
        unsigned char bytes[16];
    };
};
#define RG_NVML_UUID (sizeof(struct rg_nvml_uuid) | 1u << 24)

/* One of many values that are asked for at once. */
struct rg_nvml_field {
    unsigned id, scope; /* given */
    long long timestamp, latency;
    int type;
    int result; /* enum rg_nvml_return */
    unsigned long long value;
};

#define RG_NVML_VALUE_UNKNOWN    (~0ull)
#define RG_NVML_INSTANCE_UNKNOWN 0xffffffffu

static_assert(sizeof(enum rg_nvml_return) == 4, "an int on the wire between library and caller");
static_assert(sizeof(struct rg_nvml_pci_v2) == 52 && RG_NVML_PCI_V1_SIZE == 32, "nvmlPciInfo_v2_t");
static_assert(sizeof(struct rg_nvml_pci) == 68 && offsetof(struct rg_nvml_pci, bus_id) == 36,
              "nvmlPciInfo_t");
static_assert(RG_NVML_PCI_EXTENDED == 0x01000040 && offsetof(struct rg_nvml_pci_extended, bus_id) == 32,
              "nvmlPciInfoExt_v1_t");
static_assert(sizeof(struct rg_nvml_process_v1) == 16 && sizeof(struct rg_nvml_process) == 24,
              "nvmlProcessInfo_t");
static_assert(RG_NVML_BRANCH == 0x01000054, "nvmlSystemDriverBranchInfo_v1_t");
static_assert(RG_NVML_UUID == 0x01000034 && offsetof(struct rg_nvml_uuid, text) == 8, "nvmlUUID_v1_t");
static_assert(sizeof(struct rg_nvml_field) == 40, "nvmlFieldValue_t");
static_assert(sizeof(struct rg_nvml_memory) == 24, "nvmlMemory_t");
static_assert(sizeof(struct rg_nvml_memory_v2) == 40 && RG_NVML_MEMORY_V2 == 0x02000028, "nvmlMemory_v2_t");

#endif
