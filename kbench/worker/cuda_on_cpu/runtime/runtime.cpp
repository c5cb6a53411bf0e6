// The whole runtime as one translation unit: a second of compiling, and accesses inline into their callbacks.
// It is compiled without instrumentation and linked into the candidate's own library.
#include "scheduler.cpp"
#include "memory.cpp"
#include "places.cpp"
