/* Stands for kernels/common/ptx_clock.cuh on the CPU: timers that tick by being read, 1.5 cycles a nanosecond. */
#pragma once

inline unsigned long long globaltimer() {
    static unsigned long long nanoseconds;
    return nanoseconds += 1000;
}
inline long long clock64() { return static_cast<long long>(globaltimer() * 3 / 2); }
