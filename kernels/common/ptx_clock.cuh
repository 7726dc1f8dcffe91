// The timer that all SMs share. Section number as in ptx.cuh.
#pragma once

// %globaltimer (10, Special Registers): nanoseconds. Volatile and with a clobber: it is read where it stands.
__device__ __forceinline__ unsigned long long globaltimer() {
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds)::"memory");
    return nanoseconds;
}
