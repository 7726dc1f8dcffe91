/* A stand-in for libcuda.so.1 on a machine without a GPU. Device memory is host memory; what goes wrong is chosen by variables:
 *
 *   FAKE_CUDA_DEVICES         number of devices (default 1); CUDA_VISIBLE_DEVICES is obeyed as a list of numbers
 *   FAKE_CUDA_NAME            name of every device; FAKE_CUDA_CC its compute capability ("9.0", or "9.0,8.0": one each, the last
 *                             for the rest); FAKE_CUDA_MEMORY in bytes;
 *   FAKE_CUDA_COMPUTE_MODE    0 default, 2 prohibited, 3 exclusive process
 *   FAKE_CUDA_DRIVER_VERSION  what cuDriverGetVersion says (default 13000); PTX newer than it is rejected with 222
 *   FAKE_CUDA_INIT            result of cuInit
 *   FAKE_CUDA_HANG, _CRASH    name of the function that never returns, or dies of SIGSEGV
 *   FAKE_CUDA_FAIL            "function=code", e.g. "cuMemAlloc_v2=2"; several separated by commas
 *   FAKE_CUDA_LAUNCH_ERROR    result that the first wait after a launch gives, and every call after it (a sticky fault)
 *   FAKE_CUDA_COMPUTE         1: launches compute what the kernel's name promises; else they do nothing
 *   FAKE_CUDA_KERNELS         folder of NAME.so, each a kernel compiled for the CPU (cuda_on_cpu.h), launched in place of that
 *   FAKE_CUDA_SHARED_MEMORY   most bytes of dynamic shared memory that a kernel may ask for
 *   FAKE_CUDA_WRITE_PAST      1: a launch also writes behind the end of its output
 *   FAKE_CUDA_NO_LAUNCH_ON    number of a device on which launches do nothing
 *   FAKE_CUDA_PEERS           what copies between devices meet, e.g. "3=wrong,0-1=far,2-5=hang": of a device with all others, or
 *                             of a pair; far (no peer access), refused (access cannot be enabled), wrong (one byte), dropped
 *                             (nothing arrives), hang, slow (a tenth of the rate)
 *   FAKE_CUDA_PEER_GB_S       rate of copies between devices (default 40; through the host a quarter); their time is virtual
 *   FAKE_CUDA_NAMELESS        1: cuGetErrorName and cuGetErrorString fail, as in the toolkit's stub
 *
 * Cubins for another architecture give 209, text that is no PTX gives 218, as the real driver does.
 */
#include <dlfcn.h>
#include <elf.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "half.h"

typedef int CUresult;
typedef unsigned long long CUdeviceptr;

static int number(const char *name, int fallback) {
    const char *text = getenv(name);
    return text && *text ? atoi(text) : fallback;
}

static int sticky;

/* Every entry point begins here: hang, crash, or the result asked for. */
static CUresult enter(const char *function) {
    const char *hang = getenv("FAKE_CUDA_HANG"), *crash = getenv("FAKE_CUDA_CRASH"), *fail = getenv("FAKE_CUDA_FAIL");
    if (hang && !strcmp(hang, function)) for (;;) sleep(60);
    if (crash && !strcmp(crash, function)) raise(SIGSEGV);
    size_t length = strlen(function);
    while (fail && *fail) {
        if (!strncmp(fail, function, length) && fail[length] == '=') return atoi(fail + length + 1);
        fail = strchr(fail, ',');
        if (fail) ++fail;
    }
    return sticky;
}
#define ENTER() do { CUresult result_ = enter(__func__); if (result_) return result_; } while (0)

static int visible_devices(void) {
    int present = number("FAKE_CUDA_DEVICES", 1), count = 0;
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list) return present;
    while (*list >= '0' && *list <= '9') { /* the list ends at the first entry that is no device */
        if (atoi(list) >= present) break;
        ++count;
        list += strspn(list, "0123456789");
        if (*list == ',') ++list;
    }
    return count;
}

static __thread int current; /* the device whose context is current in this thread */

static void capability(int device, int *major, int *minor) {
    const char *text = getenv("FAKE_CUDA_CC"), *next;
    for (; text && device && (next = strchr(text, ',')); --device) text = next + 1;
    if (sscanf(text ? text : "9.0", "%d.%d", major, minor) != 2) { *major = 9; *minor = 0; }
}

CUresult cuInit(unsigned flags) {
    (void)flags;
    ENTER();
    int code = number("FAKE_CUDA_INIT", 0);
    return code ? code : visible_devices() ? 0 : 100;
}

CUresult cuDriverGetVersion(int *version) { ENTER(); *version = number("FAKE_CUDA_DRIVER_VERSION", 13000); return 0; }

static const struct { int code; const char *name, *text; } TEXTS[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {205, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
};

static const char *text_of(int code, int want_name) {
    for (unsigned i = 0; i < sizeof TEXTS / sizeof *TEXTS; ++i)
        if (TEXTS[i].code == code) return want_name ? TEXTS[i].name : TEXTS[i].text;
    return NULL;
}

CUresult cuGetErrorName(CUresult code, const char **text) {
    *text = number("FAKE_CUDA_NAMELESS", 0) ? NULL : text_of(code, 1);
    return *text ? 0 : 1;
}

CUresult cuGetErrorString(CUresult code, const char **text) {
    *text = number("FAKE_CUDA_NAMELESS", 0) ? NULL : text_of(code, 0);
    return *text ? 0 : 1;
}

CUresult cuDeviceGetCount(int *count) { ENTER(); *count = visible_devices(); return 0; }

CUresult cuDeviceGet(int *device, int ordinal) {
    ENTER();
    if (ordinal < 0 || ordinal >= visible_devices()) return 101;
    *device = ordinal;
    return 0;
}

CUresult cuDeviceGetName(char *name, int length, int device) {
    (void)device;
    ENTER();
    const char *text = getenv("FAKE_CUDA_NAME");
    snprintf(name, (size_t)length, "%s", text ? text : "NVIDIA Fake GPU");
    return 0;
}

CUresult cuDeviceGetUuid(unsigned char *uuid, int device) { ENTER(); memset(uuid, 0x11 * (device + 1), 16); return 0; }
CUresult cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return cuDeviceGetUuid(uuid, device); }

CUresult cuDeviceGetPCIBusId(char *text, int length, int device) {
    ENTER();
    snprintf(text, (size_t)length, "0000:%02x:00.0", device + 1);
    return 0;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    ENTER();
    const char *text = getenv("FAKE_CUDA_MEMORY");
    *bytes = text ? strtoull(text, NULL, 10) : 24ull << 30;
    return 0;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER();
    int major, minor;
    capability(device, &major, &minor);
    switch (attribute) {
        case 1: *value = 1024; return 0;
        case 8: *value = 49152; return 0;
        case 10: *value = 32; return 0;
        case 12: case 82: *value = 65536; return 0;
        case 13: *value = 1500000; return 0;
        case 16: *value = 100; return 0;
        case 20: *value = number("FAKE_CUDA_COMPUTE_MODE", 0); return 0;
        case 39: *value = 2048; return 0;
        case 75: *value = major; return 0;
        case 76: *value = minor; return 0;
        case 81: *value = 102400; return 0;
        case 97: *value = 101376; return 0;
        default: *value = 0; return attribute > 0 && attribute < 200 ? 0 : 1;
    }
}

CUresult cuDevicePrimaryCtxRetain(void **context, int device) {
    ENTER();
    if (number("FAKE_CUDA_COMPUTE_MODE", 0) == 2) return 46;
    *context = (void *)(uintptr_t)(device + 1);
    return 0;
}
CUresult cuDevicePrimaryCtxRelease_v2(int device) { (void)device; ENTER(); return 0; }
CUresult cuCtxSetCurrent(void *context) { ENTER(); current = (int)(uintptr_t)context - 1; return 0; }

/* ---- copies between devices ---- */

/* Does FAKE_CUDA_PEERS name this fault for the pair, or for one of the two with all others? */
static int meets(int one, int other, const char *fault) {
    const char *list = getenv("FAKE_CUDA_PEERS");
    size_t length = strlen(fault);
    while (list && *list) {
        int first, second = -1, used = 0;
        if (sscanf(list, "%d-%d=%n", &first, &second, &used) < 2 || !used) { second = -1; sscanf(list, "%d=%n", &first, &used); }
        int named = second < 0 ? first == one || first == other
                               : (first == one && second == other) || (first == other && second == one);
        if (used && named && !strncmp(list + used, fault, length) && (list[used + length] == ',' || !list[used + length])) return 1;
        list = strchr(list, ',');
        if (list) ++list;
    }
    return 0;
}

CUresult cuDeviceCanAccessPeer(int *can, int device, int peer) {
    ENTER();
    if (device == peer || device >= visible_devices() || peer >= visible_devices()) return 101;
    *can = !meets(device, peer, "far");
    return 0;
}

CUresult cuDeviceGetP2PAttribute(int *value, int attribute, int device, int peer) {
    ENTER();
    *value = attribute == 1 ? 0 : !meets(device, peer, "far");
    return 0;
}

CUresult cuCtxEnablePeerAccess(void *context, unsigned flags) {
    ENTER();
    int peer = (int)(uintptr_t)context - 1;
    if (flags) return 1;
    if (meets(current, peer, "far")) return 217;
    return meets(current, peer, "refused") ? 205 : 0;
}
CUresult cuCtxDisablePeerAccess(void *context) { (void)context; ENTER(); return 0; }

static double copied_ms; /* the virtual time of all copies between devices */

CUresult cuMemcpyPeerAsync(CUdeviceptr to, void *to_context, CUdeviceptr from, void *from_context, size_t bytes, void *stream) {
    (void)stream;
    ENTER();
    int target = (int)(uintptr_t)to_context - 1, source = (int)(uintptr_t)from_context - 1;
    if (meets(source, target, "hang")) for (;;) sleep(60);
    if (!meets(source, target, "dropped")) memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    if (meets(source, target, "wrong")) ((unsigned char *)(uintptr_t)to)[bytes / 2] ^= 1;
    double gb_s = number("FAKE_CUDA_PEER_GB_S", 40);
    if (meets(source, target, "far")) gb_s /= 4;
    if (meets(source, target, "slow")) gb_s /= 10;
    copied_ms += (double)bytes / gb_s * 1e-6;
    return 0;
}

/* ---- modules ---- */

typedef struct { char *image; size_t size; } Module;

static size_t image_size(const char *image) {
    if (memcmp(image, ELFMAG, SELFMAG)) return strlen(image);
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
    size_t sections = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
    size_t segments = header->e_phoff + (size_t)header->e_phnum * header->e_phentsize;
    return sections > segments ? sections : segments;
}

/* SASS runs on the same major with an equal or higher minor. From ABI version 8 on the number lies in bits 8 to 15. */
static CUresult check_cubin(const char *image) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
    int major, minor, sm = (header->e_ident[EI_ABIVERSION] >= 8 ? header->e_flags >> 8 : header->e_flags) & 0xff;
    capability(current, &major, &minor);
    return sm / 10 == major && sm % 10 <= minor ? 0 : 209;
}

/* The PTX ISA of a CUDA release: 7.x with 11.x, 8.x with 12.x (8.5 with 12.5 and 12.6, one behind from 12.8), 9.x with 13.x. */
static int newest_ptx(int driver) {
    int major = driver / 1000, minor = driver % 1000 / 10;
    if (major == 12 && minor > 5) --minor;
    return major >= 11 ? (major - 4) * 10 + minor : 65;
}

static CUresult check_ptx(const char *image) {
    const char *version = strstr(image, ".version"), *target = strstr(image, ".target");
    int major, minor, sm, device_major, device_minor;
    if (!version || !target || sscanf(version, ".version %d.%d", &major, &minor) != 2) return 218;
    if (major * 10 + minor > newest_ptx(number("FAKE_CUDA_DRIVER_VERSION", 13000))) return 222;
    capability(current, &device_major, &device_minor);
    if (sscanf(target, ".target sm_%d", &sm) != 1) return 218;
    return sm <= device_major * 10 + device_minor ? 0 : 209;
}

CUresult cuModuleLoadDataEx(void **module, const void *image, unsigned count, const int *options, void **values) {
    (void)count; (void)options; (void)values;
    ENTER();
    CUresult result = memcmp(image, ELFMAG, SELFMAG) ? check_ptx(image) : check_cubin(image);
    if (result) {
        if (result == 218 && count == 2 && options[0] == 5) strcpy(values[0], "ptxas fatal   : Ptx assembly aborted due to errors");
        return result;
    }
    Module *loaded = malloc(sizeof *loaded);
    loaded->size = image_size(image);
    loaded->image = malloc(loaded->size);
    memcpy(loaded->image, image, loaded->size);
    *module = loaded;
    return 0;
}

CUresult cuModuleUnload(Module *module) { ENTER(); free(module->image); free(module); return 0; }

CUresult cuModuleGetFunction(void **function, Module *module, const char *name) {
    ENTER();
    for (size_t i = 0; i + strlen(name) <= module->size; ++i)
        if (!memcmp(module->image + i, name, strlen(name))) { *function = strdup(name); return 0; }
    return 500;
}

/* ---- memory ---- */

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    ENTER();
    void *memory = malloc(bytes);
    if (!memory) return 2;
    *address = (CUdeviceptr)(uintptr_t)memory;
    return 0;
}
CUresult cuMemFree_v2(CUdeviceptr address) { free((void *)(uintptr_t)address); ENTER(); return 0; }
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    ENTER(); memcpy((void *)(uintptr_t)to, from, bytes); return 0;
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    ENTER(); memcpy(to, (void *)(uintptr_t)from, bytes); return 0;
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    ENTER(); memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes); return 0;
}
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes) {
    ENTER(); memset((void *)(uintptr_t)to, value, bytes); return 0;
}
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    ENTER();
    CUresult result = cuDeviceTotalMem_v2(total, 0);
    *free_bytes = *total / 2;
    return result;
}
CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER();
    *memory = malloc(bytes);
    return *memory ? 0 : 2;
}
CUresult cuMemFreeHost(void *memory) { free(memory); ENTER(); return 0; }

/* ---- launches ---- */

enum { F32, F16, BF16 };  /* the argument `half` */

static float get(const void *data, size_t index, int half) {
    if (half == F32) return ((const float *)data)[index];
    uint16_t bits = ((const uint16_t *)data)[index];
    if (half == F16) return half_to_float(bits);
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static void put(void *data, size_t index, int half, float value) {
    if (half == F16) ((uint16_t *)data)[index] = float_to_half(value);
    else if (half == F32) ((float *)data)[index] = value;
    else {
        uint32_t wide;
        memcpy(&wide, &value, sizeof wide);
        ((uint16_t *)data)[index] = (uint16_t)((wide + 0x7fffu + (wide >> 16 & 1u)) >> 16);
    }
}

static float *widened(const void *data, size_t count, int half) {
    float *values = malloc(count * sizeof *values);
    for (size_t i = 0; i < count; ++i) values[i] = get(data, i, half);
    return values;
}

#define POINTER(i) (*(void **)parameters[i])
#define INT(i) (*(int *)parameters[i])

static size_t gemm(void **parameters, int half) {
    int M = INT(3), N = INT(4), K = INT(5);
    float *a = widened(POINTER(0), (size_t)M * K, half), *b = widened(POINTER(1), (size_t)N * K, half);
    for (int row = 0; row < M; ++row)
        for (int column = 0; column < N; ++column) {
            const float *x = a + (size_t)row * K, *y = b + (size_t)column * K;
            float sum[8] = {0}, total = 0;
            int k = 0;
            for (; k + 8 <= K; k += 8) for (int j = 0; j < 8; ++j) sum[j] += x[k + j] * y[k + j];
            for (; k < K; ++k) total += x[k] * y[k];
            for (int j = 0; j < 8; ++j) total += sum[j];
            put(POINTER(2), (size_t)row * N + column, half, total);
        }
    free(a);
    free(b);
    return (size_t)M * N;
}

static size_t attention(void **parameters, int half, int batch) {
    enum { D = 64 };
    int heads = INT(5), kv_heads = INT(6), Lq = INT(7), Lk = INT(8), causal = INT(10);
    float scale = *(float *)parameters[9], *weights = malloc((size_t)Lk * sizeof *weights);
    for (int head = 0; head < batch * heads; ++head) {
        size_t kv = (size_t)(head / heads * kv_heads + head % heads / (heads / kv_heads)) * Lk * D;
        for (int query = 0; query < Lq; ++query) {
            int seen = ((const int *)POINTER(4))[head / heads];
            if (causal && query + 1 + Lk - Lq < seen) seen = query + 1 + Lk - Lq;
            size_t row = ((size_t)head * Lq + query) * D;
            float peak = -INFINITY, total = 0;
            for (int key = 0; key < seen; ++key) {
                float score = 0;
                for (int d = 0; d < D; ++d) score += get(POINTER(0), row + d, half) * get(POINTER(1), kv + (size_t)key * D + d, half);
                weights[key] = score * scale;
                if (weights[key] > peak) peak = weights[key];
            }
            for (int key = 0; key < seen; ++key) total += weights[key] = expf(weights[key] - peak);
            for (int d = 0; d < D; ++d) {
                float sum = 0;
                for (int key = 0; key < seen; ++key) sum += weights[key] * get(POINTER(2), kv + (size_t)key * D + d, half);
                put(POINTER(3), row + d, half, total > 0 ? sum / total : 0);
            }
        }
    }
    free(weights);
    return (size_t)batch * heads * Lq * D;
}

CUresult cuFuncSetAttribute(const char *function, int attribute, int value) {
    (void)function;
    ENTER();
    return attribute == 8 && value <= number("FAKE_CUDA_SHARED_MEMORY", 232448) ? 0 : 1;
}

CUresult cuFuncGetAttribute(int *value, int attribute, const char *function) {
    (void)function;
    ENTER();
    *value = attribute == 4 ? 32 : 0;
    return 0;
}

CUresult cuStreamCreate(void **stream, unsigned flags) { ENTER(); *stream = malloc(1); return flags <= 1 ? 0 : 1; }
CUresult cuStreamDestroy_v2(void *stream) { free(stream); ENTER(); return 0; }

/* Keeps the address where a launch looks for a pointer; refuses what the real one refuses. */
CUresult cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *extents, const uint64_t *strides,
                                const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion, int fill) {
    (void)interleave; (void)promotion; (void)fill;
    ENTER();
    unsigned bytes = type == 7 ? 4 : 2;
    int aligned = (uintptr_t)map % 64 == 0 && (uintptr_t)address % 16 == 0 && extents[0] && extents[1];
    for (unsigned i = 0; i + 1 < rank; ++i) aligned = aligned && strides[i] % 16 == 0;
    for (unsigned i = 0; i < rank; ++i) aligned = aligned && box[i] && box[i] <= 256 && steps[i] == 1;
    if (!aligned || swizzle != 3 || box[0] * bytes > 128) return 1;
    memset(map, 0, 128);
    memcpy(map, &address, sizeof address);
    return 0;
}

typedef void (*Runner)(const unsigned *grid, const unsigned *block, void **parameters);

static Runner kernel_on_cpu(const char *function) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.so", getenv("FAKE_CUDA_KERNELS"), function);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return library ? (Runner)dlsym(library, "run_kernel") : NULL;
}

static int launched;

CUresult cuLaunchKernel(const char *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, void *stream, void **parameters, void **extra) {
    (void)shared; (void)stream; (void)extra;
    ENTER();
    launched = 1;
    if (getenv("FAKE_CUDA_KERNELS")) {
        Runner run = kernel_on_cpu(function);
        if (!run) return 500;
        run((unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, parameters);
        return 0;
    }
    if (!number("FAKE_CUDA_COMPUTE", 0) || number("FAKE_CUDA_NO_LAUNCH_ON", -1) == current) return 0;
    if (!strncmp(function, "clock", 5)) { /* 1.5 cycles a nanosecond */
        unsigned *out = POINTER(0);
        out[1] = (unsigned)INT(1);
        out[0] = out[1] / 2 * 3;
        return 0;
    }
    int half = strstr(function, "_bf16_") ? BF16 : strstr(function, "_f16_") ? F16 : F32, is_gemm = !strncmp(function, "gemm", 4);
    int batch = !is_gemm && gy == 1 && gz == 1 && (strstr(function, "_mma_") || strstr(function, "_wgmma_")) ? INT(11) : (int)gz; /* grid in a line */
    size_t count = is_gemm ? gemm(parameters, half) : attention(parameters, half, batch);
    if (number("FAKE_CUDA_WRITE_PAST", 0)) put(POINTER(is_gemm ? 2 : 3), count, half, 1.0f);
    return 0;
}

static CUresult fault(void) {
    if (launched) sticky = number("FAKE_CUDA_LAUNCH_ERROR", 0);
    return sticky;
}

CUresult cuCtxSynchronize(void) { ENTER(); return fault(); }

/* ---- events: the time of the host's clock when recorded, as launches run at once; between devices, the virtual time ---- */

typedef struct { struct timespec at; double copied_ms; } Event;

CUresult cuEventCreate(void **event, unsigned flags) { (void)flags; ENTER(); *event = calloc(1, sizeof(Event)); return 0; }
CUresult cuEventDestroy_v2(void *event) { free(event); ENTER(); return 0; }
CUresult cuEventRecord(Event *event, void *stream) {
    (void)stream;
    ENTER();
    event->copied_ms = copied_ms;
    return clock_gettime(CLOCK_MONOTONIC, &event->at) ? 999 : 0;
}
CUresult cuEventSynchronize(void *event) { (void)event; ENTER(); return fault(); }
CUresult cuEventElapsedTime(float *milliseconds, const Event *from, const Event *to) {
    ENTER();
    double ms = (double)(to->at.tv_sec - from->at.tv_sec) * 1e3 + (double)(to->at.tv_nsec - from->at.tv_nsec) * 1e-6;
    *milliseconds = (float)(to->copied_ms > from->copied_ms ? to->copied_ms - from->copied_ms : ms);
    return 0;
}
