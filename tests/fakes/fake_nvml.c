/* A stand-in for libnvidia-ml.so.1. The file named by FAKE_NVML says what it answers, one `key=value` a line:
 *
 *   init=18                    result of nvmlInit; hang=FUNCTION and crash=FUNCTION stop there
 *   driver=580.95.05 cuda=13000 count=1
 *   N.name= N.uuid= N.pci=0000:01:00.0 N.cc=8.9 N.total= N.used= (bytes)
 *   N.handle=15                result of asking for GPU N's handle
 *   N.KEY=number               compute_mode persistence mig ecc ecc_errors processes pcie_gen pcie_gen_max pcie_width
 *                              pcie_width_max sm_clock sm_clock_max throttle temperature power limit
 *                              limit_default utilization
 *   N.mig.0=1g.10gb            MIG devices
 *   N.nvlinks=18 N.nvlinks_down=2   its NVLinks, and how many of the last are not active; N.nvlink_version=6 (4.0);
 *   N.nvlink_to=00000000:02:00.0    what all of them lead to; without it, a switch
 *   topology=10 topology.A.B=50     of all pairs, of one pair (A below B); peer_status= likewise
 *
 * A key that is absent gives NVML_ERROR_NOT_SUPPORTED.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Result;
typedef void *Device; /* index + 1; MIG devices are 1000 * (index + 1) + slot */
enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

static int look_up(const char *key, char *value, size_t size) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    int found = 0;
    size_t length = strlen(key);
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, key, length) && line[length] == '=') {
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    }
    if (file) fclose(file);
    return found;
}

static void enter(const char *function) {
    char value[128];
    if (look_up("hang", value, sizeof value) && !strcmp(value, function)) for (;;) sleep(60);
    if (look_up("crash", value, sizeof value) && !strcmp(value, function)) *(volatile int *)0 = 0;
}

static Result text(Device device, const char *name, char *out, unsigned size) {
    char key[64];
    snprintf(key, sizeof key, "%d.%s", (int)(long)device - 1, name);
    return look_up(key, out, size) ? OK : NOT_SUPPORTED;
}

static Result number(Device device, const char *name, unsigned long long *out) {
    char value[64];
    Result result = text(device, name, value, sizeof value);
    if (result == OK) *out = strtoull(value, NULL, 0);
    return result;
}

static Result small(Device device, const char *name, unsigned *out) {
    unsigned long long value = 0;
    Result result = number(device, name, &value);
    if (result == OK) *out = (unsigned)value;
    return result;
}

Result nvmlInitWithFlags(unsigned flags) {
    char value[16];
    (void)flags;
    enter("nvmlInit");
    return look_up("init", value, sizeof value) ? atoi(value) : OK;
}
Result nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
Result nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(Result result) {
    switch (result) {
    case 0: return "Success";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

Result nvmlSystemGetDriverVersion(char *out, unsigned size) { return look_up("driver", out, size) ? OK : NOT_SUPPORTED; }
Result nvmlSystemGetCudaDriverVersion_v2(int *out) {
    char value[16];
    if (!look_up("cuda", value, sizeof value)) return NOT_SUPPORTED;
    *out = atoi(value);
    return OK;
}
Result nvmlSystemGetCudaDriverVersion(int *out) { return nvmlSystemGetCudaDriverVersion_v2(out); }
Result nvmlDeviceGetCount_v2(unsigned *out) {
    char value[16];
    enter("nvmlDeviceGetCount");
    *out = look_up("count", value, sizeof value) ? (unsigned)atoi(value) : 1;
    return OK;
}
Result nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *out) {
    unsigned code = OK;
    *out = (Device)(long)(index + 1);
    enter("nvmlDeviceGetHandleByIndex");
    small(*out, "handle", &code);
    return (Result)code;
}

Result nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Device *out) {
    unsigned count = 0;
    nvmlDeviceGetCount_v2(&count);
    for (unsigned index = 0; index < count; ++index) {
        char own[32] = "";
        if (text((Device)(long)(index + 1), "pci", own, sizeof own) == OK && !strcmp(own, bus_id))
            return nvmlDeviceGetHandleByIndex_v2(index, out);
    }
    return NOT_FOUND;
}

Result nvmlDeviceGetName(Device device, char *out, unsigned size) {
    long id = (long)device;
    if (id < 1000) return text(device, "name", out, size);
    char key[32], profile[64];
    snprintf(key, sizeof key, "mig.%ld", id % 1000);
    Result result = text((Device)(id / 1000), key, profile, sizeof profile);
    snprintf(out, size, "NVIDIA H100 MIG %s", profile);
    return result;
}
Result nvmlDeviceGetUUID(Device device, char *out, unsigned size) { return text(device, "uuid", out, size); }

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} Pci;
Result nvmlDeviceGetPciInfo_v3(Device device, Pci *out) { memset(out, 0, sizeof *out); return text(device, "pci", out->busId, 32); }

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
Result nvmlDeviceGetMemoryInfo_v2(Device device, Memory2 *out) {
    Result result = number(device, "total", &out->total);
    return result ? result : number(device, "used", &out->used);
}
typedef struct { unsigned long long total, free, used; } Memory1;
Result nvmlDeviceGetMemoryInfo(Device device, Memory1 *out) {
    Result result = number(device, "total", &out->total);
    return result ? result : number(device, "used", &out->used);
}

Result nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
    char value[16];
    Result result = text(device, "cc", value, sizeof value);
    if (result == OK) sscanf(value, "%d.%d", major, minor);
    return result;
}
Result nvmlDeviceGetComputeMode(Device d, unsigned *out) { return small(d, "compute_mode", out); }
Result nvmlDeviceGetPersistenceMode(Device d, unsigned *out) { return small(d, "persistence", out); }
Result nvmlDeviceGetMigMode(Device d, unsigned *now, unsigned *later) { *later = 0; return small(d, "mig", now); }
Result nvmlDeviceGetMaxMigDeviceCount(Device d, unsigned *out) { (void)d; *out = 7; return OK; }
Result nvmlDeviceGetMigDeviceHandleByIndex(Device d, unsigned slot, Device *out) {
    char key[32], profile[64];
    snprintf(key, sizeof key, "mig.%u", slot);
    *out = (Device)((long)d * 1000 + slot);
    return text(d, key, profile, sizeof profile) == OK ? OK : NOT_FOUND;
}
Result nvmlDeviceGetEccMode(Device d, unsigned *now, unsigned *later) { *later = 0; return small(d, "ecc", now); }
Result nvmlDeviceGetTotalEccErrors(Device d, int type, int counter, unsigned long long *out) {
    (void)type; (void)counter;
    return number(d, "ecc_errors", out);
}
Result nvmlDeviceGetComputeRunningProcesses_v3(Device d, unsigned *count, void *list) {
    unsigned have = 0;
    (void)list;
    Result result = small(d, "processes", &have);
    if (result) return result;
    result = *count >= have ? OK : 7; /* insufficient size: the caller asks again with room */
    *count = have;
    return result;
}
Result nvmlDeviceGetCurrPcieLinkGeneration(Device d, unsigned *out) { return small(d, "pcie_gen", out); }
Result nvmlDeviceGetMaxPcieLinkGeneration(Device d, unsigned *out) { return small(d, "pcie_gen_max", out); }
Result nvmlDeviceGetCurrPcieLinkWidth(Device d, unsigned *out) { return small(d, "pcie_width", out); }
Result nvmlDeviceGetMaxPcieLinkWidth(Device d, unsigned *out) { return small(d, "pcie_width_max", out); }
Result nvmlDeviceGetClockInfo(Device d, int type, unsigned *out) { (void)type; return small(d, "sm_clock", out); }
Result nvmlDeviceGetMaxClockInfo(Device d, int type, unsigned *out) { (void)type; return small(d, "sm_clock_max", out); }
Result nvmlDeviceGetCurrentClocksThrottleReasons(Device d, unsigned long long *out) { return number(d, "throttle", out); }
Result nvmlDeviceGetTemperature(Device d, int sensor, unsigned *out) { (void)sensor; return small(d, "temperature", out); }
Result nvmlDeviceGetPowerUsage(Device d, unsigned *out) { return small(d, "power", out); }
Result nvmlDeviceGetEnforcedPowerLimit(Device d, unsigned *out) { return small(d, "limit", out); }
Result nvmlDeviceGetPowerManagementDefaultLimit(Device d, unsigned *out) { return small(d, "limit_default", out); }
Result nvmlDeviceGetUtilizationRates(Device d, unsigned *out) { return small(d, "utilization", out); }
Result nvmlDeviceGetNvLinkState(Device d, unsigned link, unsigned *out) {
    unsigned total = 0, down = 0;
    Result result = small(d, "nvlinks", &total);
    small(d, "nvlinks_down", &down);
    if (result) return result;
    *out = link + down < total;
    return link < total ? OK : 2; /* invalid argument */
}
Result nvmlDeviceGetNvLinkVersion(Device d, unsigned link, unsigned *out) { (void)link; return small(d, "nvlink_version", out); }
Result nvmlDeviceGetNvLinkRemoteDeviceType(Device d, unsigned link, unsigned *out) {
    char address[32];
    (void)link;
    *out = text(d, "nvlink_to", address, sizeof address) == OK ? 0 : 2;
    return OK;
}
Result nvmlDeviceGetNvLinkRemotePciInfo_v2(Device d, unsigned link, Pci *out) {
    (void)link;
    memset(out, 0, sizeof *out);
    return text(d, "nvlink_to", out->busId, 32);
}

static Result of_pair(Device one, Device other, const char *name, unsigned *out) {
    char key[64], value[16];
    int a = (int)(long)one - 1, b = (int)(long)other - 1;
    snprintf(key, sizeof key, "%s.%d.%d", name, a < b ? a : b, a < b ? b : a);
    if (!look_up(key, value, sizeof value) && !look_up(name, value, sizeof value)) return NOT_SUPPORTED;
    *out = (unsigned)atoi(value);
    return OK;
}
Result nvmlDeviceGetTopologyCommonAncestor(Device a, Device b, unsigned *out) { return of_pair(a, b, "topology", out); }
Result nvmlDeviceGetP2PStatus(Device a, Device b, unsigned index, unsigned *out) {
    (void)index;
    return of_pair(a, b, "peer_status", out);
}
