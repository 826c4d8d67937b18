/* A CUDA driver with two GPUs, compiled with the names and answers of a test: test_device.py. */
#include <string.h>
#ifndef INIT
#define INIT 0
#endif
static const char *names[] = {"NVIDIA H100 80GB HBM3", NAME};
static const size_t memory[] = {85520809984u, 25757220864u};
typedef struct { unsigned char bytes[16]; } Uuid;
int cuInit(unsigned flags) { return INIT; }
int cuDriverGetVersion(int *v) { *v = 12080; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return i < 2 ? 0 : 101; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, names[d], n); return 0; }
static const char *addresses[] = {"0000:1B:00.0", "0000:AF:00.0"};
int cuDeviceGetPCIBusId(char *s, int n, int d) { strncpy(s, addresses[d], n); return 0; }
int cuDeviceTotalMem_v2(size_t *m, int d) { *m = memory[d]; return 0; }
#define FILL(first) for (int i = 0; i < 16; i++) u->bytes[i] = (first) + i; return 0
int cuDeviceGetUuid_v2(Uuid *u, int d) { FILL(16 * d); }
int cuDeviceGetAttribute(int *v, int a, int d) {
    switch (a) {
        case 16: *v = d ? 84 : H100_SM; return 0;
        case 38: *v = d ? 6291456 : 52428800; return 0;
        case 75: *v = d ? MAJOR : 9; return 0;
        case 76: *v = d ? 6 : 0; return 0;
    }
    return 1;
}
