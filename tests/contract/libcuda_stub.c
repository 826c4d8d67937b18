/* A CUDA driver that has no GPU behind it: answers what bench/device/detect.py and Triton's own
 * driver (triton/backends/nvidia/driver.c and the launchers that it writes) ask, and launches nothing.
 *
 * Built against the cuda.h that Triton brings, so a function or constant that NVIDIA does not have fails to
 * compile. What it refuses is what that header documents as an error; everything else it accepts.
 *
 * cuInit fails as on a machine without a GPU unless ROOFBENCH_STUB_GPUS is set: PyTorch then finds no CUDA, and
 * neither does bench/device/detect.py. Triton's driver never calls it. There are three devices, by ordinal: an A100
 * (sm_80), an H100 (sm_90) and a B200 (sm_100). Limits: CUDA C++ Programming Guide, "Technical Specifications
 * per Compute Capability".
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

#define KIB 1024
#define DEVICES 3

static const struct device {
  const char *name;
  int major, minor, sm_count, shared_optin, shared_of_sm, clock_khz, l2_byte;
  size_t memory_byte;
} devices[DEVICES] = {
    {"NVIDIA A100-SXM4-80GB", 8, 0, 108, 163 * KIB, 164 * KIB, 1410000, 40 * KIB * KIB, (size_t)80 << 30},
    {"NVIDIA H100 80GB HBM3", 9, 0, 132, 227 * KIB, 228 * KIB, 1980000, 50 * KIB * KIB, (size_t)80 << 30},
    {"NVIDIA B200", 10, 0, 148, 227 * KIB, 228 * KIB, 1965000, 126 * KIB * KIB, (size_t)180 << 30},
};

static const struct device *current; /* a context is its device */
static unsigned long long launches;

/* Not CUDA's: how many launches the driver has accepted. */
unsigned long long roofbench_stub_launches(void) { return launches; }

CUresult cuDriverGetVersion(int *version) {
  *version = 13010; /* CUDA 13.1, which neither header nor wheel is of: whoever says it has asked here */
  return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags) {
  return getenv("ROOFBENCH_STUB_GPUS") ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
  *text = error == CUDA_ERROR_INVALID_VALUE ? "invalid argument" : "an error";
  return CUDA_SUCCESS;
}

/* ---- devices */

CUresult cuDeviceGetCount(int *count) {
  *count = DEVICES;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  if (ordinal < 0 || ordinal >= DEVICES) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  strncpy(name, devices[device].name, length);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *byte, CUdevice device) {
  *byte = devices[device].memory_byte;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  memset(uuid, device + 1, sizeof *uuid);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  if (device < 0 || device >= DEVICES) return CUDA_ERROR_INVALID_DEVICE;
  const struct device *of = &devices[device];
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = of->major; break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = of->minor; break;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = of->sm_count; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = of->shared_optin; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = of->shared_of_sm; break;
  case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: *value = 64 * KIB; break;
  case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
  case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = of->clock_khz; break;
  case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 1593000; break;
  case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 5120; break;
  case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = of->l2_byte; break;
  default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

/* ---- contexts, modules, functions */

CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = (CUcontext)current;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  current = (const struct device *)context;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  if (device < 0 || device >= DEVICES) return CUDA_ERROR_INVALID_DEVICE;
  *context = (CUcontext)&devices[device];
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) { return CUDA_SUCCESS; }

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  if (memcmp(image, "\x7f" "ELF", 4)) return CUDA_ERROR_INVALID_IMAGE; /* a cubin is an ELF file */
  *module = (CUmodule)image;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  *function = (CUfunction)module;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  /* Registers and spills stand in the cubin (tests/kernels/compiled.py reads them); nothing here needs them. */
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  int too_large = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value > current->shared_optin;
  return too_large ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) { return CUDA_SUCCESS; }

CUresult cuOccupancyMaxActiveClusters(int *count, CUfunction function, const CUlaunchConfig *config) {
  *count = 1;
  return CUDA_SUCCESS;
}

/* ---- memory: host memory stands for device memory */

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  if (attribute != CU_POINTER_ATTRIBUTE_DEVICE_POINTER) return CUDA_ERROR_INVALID_VALUE;
  *(CUdeviceptr *)data = pointer;
  return CUDA_SUCCESS;
}

static size_t item_byte(CUtensorMapDataType type) {
  switch (type) {
  case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
  case CU_TENSOR_MAP_DATA_TYPE_UINT16:
  case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
  case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
  case CU_TENSOR_MAP_DATA_TYPE_UINT64:
  case CU_TENSOR_MAP_DATA_TYPE_INT64:
  case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return 8;
  default: return 4;
  }
}

/* The conditions that cuda.h documents for cuTensorMapEncodeTiled with CU_TENSOR_MAP_INTERLEAVE_NONE. */
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *size, const cuuint64_t *stride_byte, const cuuint32_t *box,
                                const cuuint32_t *step, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  static const size_t span_byte[] = {0, 32, 64, 128};
  if ((uintptr_t)map % 64 || (uintptr_t)address % 16 || rank == 0 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  for (cuuint32_t axis = 0; axis < rank; axis++) {
    if (size[axis] == 0 || size[axis] > (cuuint64_t)1 << 32) return CUDA_ERROR_INVALID_VALUE;
    if (box[axis] == 0 || box[axis] > 256 || step[axis] == 0 || step[axis] > 8) return CUDA_ERROR_INVALID_VALUE;
  }
  for (cuuint32_t axis = 0; axis + 1 < rank; axis++)
    if (stride_byte[axis] % 16 || stride_byte[axis] >= (cuuint64_t)1 << 40) return CUDA_ERROR_INVALID_VALUE;
  size_t row_byte = box[0] * item_byte(type);
  if (row_byte % 16) return CUDA_ERROR_INVALID_VALUE;
  if (swizzle >= CU_TENSOR_MAP_SWIZZLE_32B && swizzle <= CU_TENSOR_MAP_SWIZZLE_128B &&
      row_byte > span_byte[swizzle])
    return CUDA_ERROR_INVALID_VALUE;
  memset(map, 0, sizeof *map);
  return CUDA_SUCCESS;
}

/* ---- launches */

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
  if (!config->gridDimX || config->gridDimX > 2147483647u) return CUDA_ERROR_INVALID_VALUE;
  if (!config->gridDimY || config->gridDimY > 65535 || !config->gridDimZ || config->gridDimZ > 65535)
    return CUDA_ERROR_INVALID_VALUE;
  if (config->blockDimX * config->blockDimY * config->blockDimZ > 1024) return CUDA_ERROR_INVALID_VALUE;
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  if (config->sharedMemBytes > (unsigned)current->shared_optin) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  launches++;
  return CUDA_SUCCESS;
}
