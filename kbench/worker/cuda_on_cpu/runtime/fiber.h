// One stack leaves the processor and another comes: the registers that a call must keep, and nothing else.
#pragma once
#include <cstdint>

namespace kbench_cuda {

#if defined(__x86_64__)

asm(R"(
.text
.globl kbench_cuda_switch
.hidden kbench_cuda_switch
.type kbench_cuda_switch,@function
kbench_cuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kbench_cuda_switch,.-kbench_cuda_switch
)");
extern "C" void kbench_cuda_switch(void** save, void* load);

// The stack of a fiber that begins in `entry`: six registers, the address, and the hole of a return address.
inline void* new_stack(char* top, void (*entry)()) {
  auto* slot = reinterpret_cast<uintptr_t*>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15});
  *--slot = 0;
  *--slot = reinterpret_cast<uintptr_t>(entry);
  for (int i = 0; i < 6; i++) *--slot = 0;
  return slot;
}

#elif defined(__aarch64__)

asm(R"(
.text
.globl kbench_cuda_switch
.hidden kbench_cuda_switch
.type kbench_cuda_switch,%function
kbench_cuda_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size kbench_cuda_switch,.-kbench_cuda_switch
)");
extern "C" void kbench_cuda_switch(void** save, void* load);

inline void* new_stack(char* top, void (*entry)()) {
  auto* slot = reinterpret_cast<uintptr_t*>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15});
  slot -= 20;
  for (int i = 0; i < 20; i++) slot[i] = 0;
  slot[11] = reinterpret_cast<uintptr_t>(entry);  // x30, where `ret` goes
  return slot;
}

#else
#error "CUDA on the CPU needs an x86-64 or a 64-bit ARM processor"
#endif

}  // namespace kbench_cuda
